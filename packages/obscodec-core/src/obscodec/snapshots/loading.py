"""Loading: which class makes what is in a snapshot again."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

import numpy as np

from obscodec.arguments import as_nbytes, refuse_unknown
from obscodec.errors import HeapFull, LimitTooLow, SnapshotError, SpecError
from obscodec.runtime import says_memory_error
from obscodec.segments import Ints
from obscodec.snapshots.folder import Folder
from obscodec.snapshots.known import Known
from obscodec.snapshots.reader import DamagedStreams, OpenGeneration
from obscodec.snapshots.saved import LOADED, MADE, Saved, named
from obscodec.snapshots.tree import unflatten
from obscodec.state import State, part_of
from obscodec.stores import store_of

S = TypeVar("S", bound=Saved)


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


class LoadKeywords(TypedDict, total=False):
    """The keyword arguments of :func:`load`, for type checkers and editors."""

    generation: int | None
    mmap: bool
    salvage: bool
    max_bytes: int | None
    spill: str | os.PathLike[str] | None
    continue_episodes: bool


def load(path: str | os.PathLike[str], **how: Unpack[LoadKeywords]) -> Any:
    """What :func:`save` or a :class:`Snapshot` has saved in a folder, equal in all that it holds.

    Everything is checked, so the folder may come from a stranger. The episodes that were running when it was saved end:
    see ``RingBuffer.end_episodes``.

    Args:
        path: the folder.
        **how: ``generation``: the number of a generation, None for the last one.

            ``mmap``: leave blocks in their files until they are read or overwritten, so that this returns at once.
            Their checksums are not checked then: ``obscodec inspect`` does that. Files under 4 MiB are read and checked
            all the same. Nobody may shorten or overwrite a file meanwhile, as ``cp`` and ``rsync --inplace`` do;
            removing or replacing it does no harm. A read of a shortened file raises SnapshotError; if it is shortened
            during that read, the system ends the process (SIGBUS).

            ``salvage``: load what is intact of a damaged snapshot, whose ``blocks-*.segment`` may be damaged or
            missing; without ``generation``, of the last generation whose other files are intact.

            ``max_bytes``: the limit of the buffer's memory, in place of the one that it was saved with.

            ``spill``: for a buffer with ``max_bytes``, the folder for its oldest blocks. A buffer that had one needs
            one here: a snapshot does not choose where files are written.

            ``continue_episodes``: True if the next steps go on with the episodes that were running, such as those of a
            simulator that was saved with the buffer.

    Returns:
        The buffer, array or store; with ``salvage``, :class:`Salvaged`.

    Raises:
        SnapshotError: the folder has no snapshot; or a file of it is damaged, missing, or of a newer version.
        SpecError: ``spill`` is given for a buffer without ``max_bytes``, or ``max_bytes`` for something that has none.
        ShapeError: ``max_bytes`` is too low for the steps that it must hold.
        BackendUnavailable: it was on a device that can't be used here.
        MissingPackage: it has a codec of a package that is not installed.
        MemoryError: there is no room for it.
    """
    refuse_unknown("load", how.keys() - LoadKeywords.__annotations__.keys(), LoadKeywords.__annotations__)
    return load_by(_new_saved, path, **how)


def _new_saved(kind: str, arguments: State, path: str) -> Saved:
    """An empty object of a kind of this package."""
    with named(path):
        made = MADE[kind](arguments) if kind in MADE else store_of(kind, arguments)
    if made is None:
        raise SnapshotError(f"{path} has a {kind}: load it by {kind}.load({path!r})")
    return made


@says_memory_error
def load_by(
    make: Callable[[str, State, str], S],
    path: str | os.PathLike[str],
    *,
    generation: int | None = None,
    mmap: bool = False,
    salvage: bool = False,
    max_bytes: int | None = None,
    spill: str | os.PathLike[str] | None = None,
    continue_episodes: bool = False,
) -> Any:
    """:func:`load` for a class of any package.

    ``make`` is called with the kind, the arguments and the path of what was saved, before its state is read; it returns
    an empty object. To salvage one that is no store, it needs a method ``forget_damaged``.
    """
    limit = as_nbytes("max_bytes", max_bytes)
    damage: list[str] | None = [] if salvage else None
    there = [*Folder(path).generations()][::-1]
    for number in there if salvage and generation is None and there else [generation]:
        try:
            opened = OpenGeneration(Folder(path), number)
            kind, arguments = _arguments(opened, path)
            _set_limit(kind, arguments, limit, spill, path)
            try:
                made = make(kind, arguments, os.fspath(path))  # first: it may refuse
                state, known = _state(opened, path, mmap, damage)
                made = restored(made, state, path)
            except (HeapFull, LimitTooLow) as error:
                if arguments.get("max_bytes") is None:
                    raise
                what = f"{path} has a buffer that does not fit: {error}"
                raise type(error)(f"{what}. load takes another max_bytes") from error
            LOADED[made] = Folder(path).path, known
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


def _set_limit(
    kind: str,
    arguments: State,
    max_bytes: int | None,
    spill: str | os.PathLike[str] | None,
    path: str | os.PathLike[str],
) -> None:
    """Give a buffer another ``max_bytes`` than it was saved with, and the folder for its oldest blocks."""
    if "spill" not in arguments:
        if max_bytes is not None:
            raise SpecError(f"{path} has a {kind}, which takes no max_bytes when it is loaded: leave it out")
        return
    if max_bytes is not None:
        arguments["max_bytes"] = max_bytes
    if spill is not None and arguments.get("max_bytes") is None:
        raise SpecError(f"{path} has a buffer without max_bytes, of which nothing can exceed it: leave spill out")
    if arguments["spill"] and spill is None:
        raise SnapshotError(f"{path} has a buffer whose oldest blocks are in files: pass spill, a folder for them")
    arguments["spill"] = spill


@says_memory_error
def read_snapshot(
    path: str | os.PathLike[str], generation: int | None = None, *, loaded_into: object | None = None
) -> tuple[str, State, State]:
    """The kind, the arguments and the state in a snapshot; see :func:`load` for the errors.

    ``loaded_into`` is what a ``Snapshot`` of this folder will write next, and has this generation then.
    """
    opened = OpenGeneration(Folder(path), generation)
    kind, arguments = _arguments(opened, path)
    state, known = _state(opened, path, False, None)
    if loaded_into is not None:
        LOADED[loaded_into] = Folder(path).path, known
    return kind, arguments, state


@says_memory_error
def read_arguments(path: str | os.PathLike[str], generation: int | None = None) -> tuple[str, State]:
    """The kind and the arguments in a snapshot, of which nothing else is read: no tensors, and no items."""
    return _arguments(OpenGeneration(Folder(path), generation), path)


def written_by(path: str | os.PathLike[str]) -> str:
    """The package that wrote the last generation of a snapshot, a space, and its version."""
    return str(OpenGeneration(Folder(path), None).manifest.get("written_by", ""))


@says_memory_error
def read_values(path: str | os.PathLike[str], generation: int | None = None) -> tuple[State, Any]:
    """The arguments in a snapshot, and the state as JSON values, in which an object stands for each array."""
    opened = OpenGeneration(Folder(path), generation)
    _, arguments = _arguments(opened, path)
    return arguments, opened.manifest["values"].get("state")


def _arguments(opened: OpenGeneration, path: str | os.PathLike[str]) -> tuple[str, State]:
    tree = opened.part("arguments")
    with named(path):
        values = part_of({"values": tree.values}, "values", dict)
        arguments = unflatten(tree._replace(values=values["arguments"]))
        return part_of(opened.manifest, "kind", str), part_of({"arguments": arguments}, "arguments", dict)


def _state(
    opened: OpenGeneration, path: str | os.PathLike[str], mmap: bool, damage: list[str] | None
) -> tuple[State, Known]:
    read = opened.read(maps=mmap, salvages=damage is not None)
    with named(path):
        state = part_of(unflatten(read.tree), "state", dict)
    if damage is not None:
        damage += read.damage
    return state, read.known


@says_memory_error
def restored(made: S, state: State, path: str | os.PathLike[str]) -> S:
    """An empty object with a state that :func:`read_snapshot` read; SnapshotError if it has no such state."""
    with named(path):
        made.restore(state)
    return made
