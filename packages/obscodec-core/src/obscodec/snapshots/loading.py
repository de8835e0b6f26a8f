"""Loading: which class makes what is in a snapshot again."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from obscodec.arguments import as_nbytes
from obscodec.errors import HeapFull, LimitTooLow, SnapshotError, SpecError
from obscodec.runtime import says_errors, says_memory_error
from obscodec.segments import Ints
from obscodec.snapshots.folder import Folder, find_snapshot, hash_of
from obscodec.snapshots.known import Known
from obscodec.snapshots.reader import DamagedStreams, Reader
from obscodec.snapshots.saved import LOADED, MADE, Saved, named
from obscodec.state import State, part_of
from obscodec.stores import store_of
from obscodec.trees import Tree, unflatten


class OpenGeneration:
    """A generation of a snapshot, the last one for None, of which the manifest was read, and nothing else so far.

    Attributes:
        manifest: JSON values.
        kind: the class of what was saved.
        written_by: the package that wrote it, a space, and its version.

    Raises:
        SnapshotError: there is no such generation, or it is damaged, or of a newer version.
    """

    def __init__(self, path: str | os.PathLike[str], number: int | None = None) -> None:
        self._path, self._folder = path, Folder(path)
        there = self._folder.generations()
        if not there:
            found = find_snapshot(self._folder.path)
            raise SnapshotError(f"{self._folder.path} has no snapshot" + (f", {found} has one" if found else ""))
        if number is not None and number not in there:
            raise SnapshotError(f"{self._folder.path} has no generation {number}, only generations {[*there]}")
        self._name = there[max(there) if number is None else number]
        self.manifest = self._folder.read_manifest(self._name)
        self.kind, self.written_by = (str(self.manifest.get(name, "")) for name in ("kind", "written_by"))

    @says_memory_error
    def arguments(self) -> State:
        """The arguments of what was saved, of which nothing else is read: no tensors, and no items."""
        with named(self._folder.path / self._name):
            tree = Reader(self._folder, self.manifest, _refuse).part("arguments")
        with named(self._path):
            values = part_of({"values": tree.values}, "values", dict)
            arguments = unflatten(tree._replace(values=values["arguments"]))
            return part_of({"arguments": arguments}, "arguments", dict)

    def values(self) -> Any:
        """The state as JSON values, in which an object stands for each array."""
        return self.manifest["values"].get("state")

    @says_memory_error
    def state(self, *, maps: bool = False, damage: list[str] | None = None, loaded_into: object | None = None) -> State:
        """The state of what was saved; see :func:`load` for the errors.

        With ``maps``, blocks stay in their files. Damaged blocks are left out if there is a list ``damage``, which gets
        a text for each place. ``loaded_into`` is what a ``Snapshot`` of this folder will write next, and has this
        generation then.
        """
        tree, known = self.read(maps=maps, damage=damage)
        with named(self._path):
            state = part_of(unflatten(tree), "state", dict)
        if loaded_into is not None:
            LOADED[loaded_into] = self._folder.path, known
        return state

    def read(self, *, maps: bool = False, damage: list[str] | None = None) -> tuple[Tree, Known]:
        """All parts, and what the folder has of them, for the next generation; otherwise as :meth:`state`.

        No checksum is checked of blocks that stay in their files, which are large ones.
        """
        with named(self._folder.path / self._name):
            reader = Reader(self._folder, self.manifest, _refuse if damage is None else damage.append)
            return reader.read(self._name, maps)

    def check_beside(self, files: Mapping[str, str | os.PathLike[str]]) -> None:
        """Make sure that files, by what each is, are those that were written with it, all of them and no others.

        Raises:
            SnapshotError: one is damaged, missing, or of another generation or training.
        """
        written, what = self.manifest.get("beside"), f"generation {self.manifest['generation']} in {self._folder.path}"
        written = written if isinstance(written, dict) else {}
        if missing := sorted(written.keys() - files.keys()):
            raise SnapshotError(f"{what} was written with a {missing[0]}, which is missing")
        for name, file in files.items():
            try:
                is_same = hash_of(Path(file)) == written.get(name)
            except OSError as error:
                raise SnapshotError(f"{file} can't be read: {error.strerror}") from error
            if not is_same:
                raise SnapshotError(f"{file} is damaged, or was not written with {what}: restore the one that was")


def _refuse(damage: str) -> None:
    raise DamagedStreams(damage)


class Salvaged(NamedTuple):
    """What could be loaded of a damaged snapshot: ``buffer, lost, damage = load(path, salvage=True)``.

    Attributes:
        buffer: the buffer, array or store. Its lost tensors are zeros; those of a store raise ``CorruptStream``.
        lost: ``i64[n, 2]``: the step, as in ``buffer[step]``, and the environment of each item that has lost a tensor,
            be it of its stack; the indices of lost items for an array, ``i64[n, ids.ndim]``. Leave these out:
            ``sample`` draws them as zeros.
        damage: what is damaged, a text for each place.
    """

    buffer: Any
    lost: Ints
    damage: list[str]


def _new_saved(kind: str, arguments: State, path: str) -> Saved:
    """An empty object of a kind of this package."""
    with named(path):
        made = MADE[kind](arguments) if kind in MADE else store_of(kind, arguments)
    if made is None:
        raise SnapshotError(f"{path} has a {kind}: call {kind}.load({path!r})")
    return made


@says_errors
def load(
    path: str | os.PathLike[str],
    *,
    generation: int | None = None,
    mmap: bool = False,
    salvage: bool = False,
    max_bytes: int | None = None,
    spill: str | os.PathLike[str] | None = None,
    continue_episodes: bool = False,
    by: Callable[[str, State, str], Saved] = _new_saved,
) -> Any:
    """What :func:`save` or a :class:`Snapshot` has saved in a folder, equal in all that it holds.

    Everything is checked, so the folder may come from a stranger. The episodes that were running when it was saved end:
    see ``RingBuffer.end_episodes``.

    Args:
        path: the folder.
        generation: the number of a generation, None for the last one.
        mmap: leave blocks in their files until they are read or overwritten, so that this returns at once. Their
            checksums are not checked then: ``obscodec inspect`` does that. Files under 4 MiB are read and checked all
            the same. Nobody may shorten or overwrite a file meanwhile, as ``cp`` and ``rsync --inplace`` do; removing
            or replacing it does no harm, and Windows refuses it as long as the buffer is there. A read of a shortened
            file raises SnapshotError; if it is shortened during that read, the system ends the process (SIGBUS).
        salvage: load what is intact of a damaged snapshot, whose ``blocks-*.segment`` may be damaged or missing;
            without ``generation``, of the last generation whose other files are intact.
        max_bytes: the limit of the buffer's memory, in place of the one that it was saved with.
        spill: for a buffer with ``max_bytes``, the folder for its oldest blocks. A buffer that had one needs one here:
            a snapshot does not choose where files are written.
        continue_episodes: True if the next steps go on with the episodes that were running, such as those of a
            simulator that was saved with the buffer.
        by: for a class of another package: called with the kind, the arguments and the path of what was saved, before
            its state is read; returns an empty object. To salvage one that is no store, it needs a method
            ``forget_damaged``.

    Returns:
        The buffer, array or store; with ``salvage``, :class:`Salvaged`.

    Raises:
        SnapshotError: the folder has no snapshot; or a file of it is damaged, missing, or of a newer version.
        SpecError: ``spill`` is given for a buffer without ``max_bytes``, or ``max_bytes`` for something that has none.
        ShapeError: ``max_bytes`` is too low for the steps that it must hold.
        BackendUnavailable: it was on a device that can't be used here.
        MemoryError: there is no room for it.
    """
    limit = as_nbytes("max_bytes", max_bytes)
    damage: list[str] | None = [] if salvage else None
    there = [*Folder(path).generations()][::-1]
    for number in there if salvage and generation is None and there else [generation]:
        try:
            opened = OpenGeneration(path, number)
            arguments = opened.arguments()
            _set_limit(opened.kind, arguments, limit, spill, path)
            try:
                made = by(opened.kind, arguments, os.fspath(path))  # first: it may refuse
                state = opened.state(maps=mmap, damage=damage, loaded_into=made)
                with named(path):
                    made.restore(state)
            except (HeapFull, LimitTooLow) as error:
                if arguments.get("max_bytes") is None:
                    raise
                what = f"{path} has a buffer that does not fit: {error}"
                raise type(error)(f"{what}. Pass a larger max_bytes to load") from error
            break
        except SnapshotError as error:
            if isinstance(error, DamagedStreams):
                raise SnapshotError(f"{error}; load it with salvage=True to get what is intact") from error
            if damage is None or number in (generation, *there[-1:]):
                raise
            damage.append(str(error))
    forget, end = getattr(made, "forget_damaged", None), getattr(made, "end_episodes", None)
    lost = forget() if damage and forget else np.empty((0, 2), np.int64)
    if end is not None and not continue_episodes:
        end()
    return made if damage is None else Salvaged(made, lost, damage)


def _set_limit(kind: str, arguments: State, max_bytes: int | None, spill: object, path: object) -> None:
    """Give a buffer another ``max_bytes`` than it was saved with, and the folder for its oldest blocks."""
    if "spill" not in arguments:
        if max_bytes is not None:
            raise SpecError(f"{path} has a {kind}, which takes no max_bytes when it is loaded: leave it out")
        return
    if max_bytes is not None:
        arguments["max_bytes"] = max_bytes
    if spill is not None and arguments.get("max_bytes") is None:
        raise SpecError(f"{path} has a buffer without max_bytes: pass max_bytes, too, or leave spill out")
    if arguments["spill"] and spill is None:
        raise SnapshotError(f"{path} has a buffer whose oldest blocks are in files: pass spill, a folder for them")
    arguments["spill"] = spill
