"""Saving and loading: what is in a snapshot, and which class makes it again."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from obscodec.arguments import as_count, as_nbytes, as_option, kind_of, says_arguments
from obscodec.arrays import TensorArray
from obscodec.buffers import LimitTooLow, Prioritized, RingBuffer
from obscodec.errors import (
    BackendUnavailable,
    DTypeError,
    HeapFull,
    MissingPackage,
    ObscodecError,
    SnapshotError,
    SpecError,
)
from obscodec.runtime import Background, Job, says_memory_error
from obscodec.segments import Ints
from obscodec.snapshots.beside import Files, hashes_of_files
from obscodec.snapshots.folder import Folder
from obscodec.snapshots.known import Known
from obscodec.snapshots.reader import DamagedStreams, OpenGeneration
from obscodec.snapshots.tree import Tree, flatten, unflatten
from obscodec.snapshots.writer import before_generation, write_generation
from obscodec.state import State, part_of
from obscodec.stats import BufferStats
from obscodec.stores import Store, store_of


class Saved(Protocol):
    """What can be saved: see ``obscodec.state``.

    A class of another package has an attribute ``written_by``: the name of its package, a space, and the version. A
    class that knows episodes has a method ``end_episodes``, which :func:`load` calls; a buffer has a method
    ``manifest``, which returns what ``BufferStats.manifest`` does: ``obscodec inspect`` prints it.
    """

    def arguments(self) -> State:
        """The arguments that make an equal, empty object."""

    def state(self) -> State:
        """What the object holds."""

    def restore(self, state: State) -> None:
        """Fill this object, which is empty."""


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


S = TypeVar("S", bound=Saved)

_MADE: Final[dict[str, Callable[[State], Saved]]] = {
    "Prioritized": Prioritized.from_arguments,
    "RingBuffer": RingBuffer.from_arguments,
    "TensorArray": TensorArray.from_arguments,
}
_WRITTEN_BY: Final = f"obscodec {version('obscodec')}"  # found here: it imports, which a forked process may wait for
_WRITER: Final = Background()
_loaded: WeakKeyDictionary[object, tuple[Path, Known]] = WeakKeyDictionary()  # where a buffer is from


@says_arguments
class Snapshot:
    """A folder to which a buffer is written again and again, each time as another generation.

    A generation has all of the buffer, but writes only what is new: its cost follows the steps since the last one.
    :meth:`write` copies the tables of the buffer, some milliseconds for a million steps, and returns; a thread in the
    background writes the files. If the process is killed, the last finished generation stays.

    A context: its end waits for the last generation.

    Args:
        path: the folder; the first write makes it.
        keep: how many generations to keep.

    Raises:
        ShapeError: ``keep`` is less than 1.

    Example:
        >>> import tempfile
        >>> import numpy as np, obscodec
        >>> buffer = obscodec.RingBuffer(100, {"frame": obscodec.Field((84, 84), np.uint8)})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Snapshot(folder) as snapshot:
        ...         for step in range(4):
        ...             buffer.append(frame=np.full((84, 84), step, np.uint8))
        ...             generation = snapshot.write(buffer)
        ...     snapshot.generations, len(load(folder, generation=3))
        ([2, 3, 4], 3)
    """

    def __init__(self, path: str | os.PathLike[str], *, keep: int = 3) -> None:
        self._folder, self._keep = Folder(path), as_count("keep", keep)
        self._known = Known()
        self._job: Job[Known] | None = None
        self._process = os.getpid()

    @property
    def generations(self) -> list[int]:
        """The numbers of the finished generations, rising."""
        return [*self._folder.generations()] if self._folder.path.exists() else []

    @says_memory_error
    def write(self, saved: Saved, generation: int | None = None, *, beside: Files | None = None) -> int:
        """Begin to write another generation; waits for the one before it.

        Args:
            saved: what :func:`save` takes, or a buffer of an adapter; the same one each time.
            generation: its number, higher than the last one, such as the number of steps of a training; None for the
                next one. A buffer that was loaded from an earlier generation of this folder goes on from there: it
                replaces the generations from this number on.
            beside: files on the disk that belong to it, by what each is, such as ``{"model": "model.zip"}``:
                :func:`obscodec.snapshots.check_beside` tells whether they are still those.

        Returns:
            The number.

        Raises:
            DTypeError: ``saved`` is something else, or can't be saved.
            SnapshotError: the folder has other files, or later generations of another buffer.
            OSError: the disk refused the generation before, or a file beside it can't be read.
        """
        number = self.make_way(saved, generation)
        tree, head = _parts(saved)
        if beside:
            head["beside"] = hashes_of_files(beside)
        write = partial(write_generation, self._folder, tree, head, self._known, number, self._keep)
        self._process, self._job = os.getpid(), _WRITER.submit(write)
        return number

    @says_memory_error
    def make_way(self, saved: Saved, generation: int | None = None) -> int:
        """Do what comes before :meth:`write`: wait, refuse a number, and remove the generations that it replaces.

        For files beside the generation that are written first, and would otherwise fit a generation that is replaced.

        Args:
            saved: see :meth:`write`, as for the number and the errors.
            generation: see there.

        Returns:
            The number.
        """
        self.wait()
        number = as_option("generation", generation)
        self._folder.make()
        with suppress(TypeError):  # there can be no weak reference to it, so it was not loaded
            path, known = _loaded.get(saved, (None, self._known))
            if path == self._folder.path:  # else it may go on there later
                self._known = known
                del _loaded[saved]
        if number is None:
            number = 1 + self._folder.highest_number()
        staying = before_generation(self._folder, self._known, number)
        for later in self._folder.generations().keys() - staying.keys():
            self._folder.remove_manifest(later)
        return number

    @says_memory_error
    def wait(self) -> None:
        """Wait until the last generation is finished.

        Raises:
            OSError: the disk refused it; the generations before it stay.
        """
        job = self._job
        if job is not None and self._process == os.getpid():  # a forked process does not have the job
            job.wait()
            self._job = None
            self._known = job.result()
        self._job = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


@says_memory_error
@says_arguments
def save(saved: Saved, path: str | os.PathLike[str]) -> None:
    """Save a buffer, an array or a store in a folder, from which :func:`load` makes it again, in any later version.

    Tensors are written as they are stored, and not decoded. A snapshot that the folder has already is replaced as soon
    as the new one is complete: a failed or killed save leaves it as it was. Nobody may write to the buffer meanwhile.
    :class:`Snapshot` writes in the background, and only what is new.

    Args:
        saved: a RingBuffer, Prioritized, a TensorArray, with its whole store, or a store. A subclass of the first
            three comes back as a plain one.
        path: the folder; it is made if it is not there.

    Raises:
        DTypeError: ``saved`` is something else.
        SnapshotError: the folder has other files, or a snapshot of another class, or another process saves
            to it.
        OSError: the disk is full, or refuses.
        MemoryError: there is not enough memory.

    Example:
        >>> import tempfile
        >>> import numpy as np, obscodec
        >>> store = obscodec.FrameStore(obscodec.Layout((84, 84), "uint8"))
        >>> ids = store.append(np.ones((1, 84, 84), np.uint8))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(store, folder)
        ...     load(folder).read(ids).mean()
        np.float64(1.0)
    """
    if not isinstance(saved, (RingBuffer, Prioritized, TensorArray, Store)):
        what = "save takes a RingBuffer, a Prioritized, a TensorArray or a store"
        raise DTypeError(f"{what}, got {kind_of(saved)}: buffers of adapters have a method save")
    write_snapshot(saved, path)


@says_memory_error
def write_snapshot(saved: Saved, path: str | os.PathLike[str]) -> None:
    """:func:`save` for a class of any package, which calls :func:`read_snapshot` to load."""
    tree, head = _parts(saved)
    write_generation(Folder(path), tree, head, Known(), None, 1)


@says_arguments
def load(
    path: str | os.PathLike[str],
    *,
    generation: int | None = None,
    mmap: bool = False,
    salvage: bool = False,
    max_bytes: int | None = None,
    spill: str | os.PathLike[str] | None = None,
    continue_episodes: bool = False,
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
            or replacing it does no harm. A read of a shortened file raises SnapshotError; if it is shortened during
            that read, the system ends the process (SIGBUS).
        salvage: load what is intact of a damaged snapshot, whose ``blocks-*.segment`` may be damaged or missing;
            without ``generation``, of the last generation whose other files are intact.
        max_bytes: the limit of the buffer's memory, in place of the one that it was saved with.
        spill: for a buffer with ``max_bytes``, the folder for its oldest blocks. A buffer that had one needs one here:
            a snapshot does not choose where files are written.
        continue_episodes: True if the next steps go on with the episodes that were running, such as those of a
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
    return load_by(
        new_saved,
        path,
        generation=generation,
        mmap=mmap,
        salvage=salvage,
        max_bytes=max_bytes,
        spill=spill,
        continue_episodes=continue_episodes,
    )


def new_saved(kind: str, arguments: State, path: str) -> Saved:
    """An empty object of a kind of this package.

    Raises:
        SnapshotError: there is no such kind, or it takes no such arguments.
    """
    if kind not in _MADE and kind not in Store.kinds:
        raise SnapshotError(f"{path} has a {kind}: load it by {kind}.load({path!r})")
    with named(path):
        return _MADE[kind](arguments) if kind in _MADE else store_of(kind, arguments)


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

    Args:
        make: called with the kind, the arguments and the path of what was saved, before its state is read; returns an
            empty object.
        path: see :func:`load`, as for the others.
        generation: see there.
        mmap: see there.
        salvage: see there; an object that is no store has a method ``forget_damaged`` then.
        max_bytes: see there.
        spill: see there.
        continue_episodes: see there.
    """
    limit = as_nbytes("max_bytes", max_bytes)
    damage: list[str] | None = [] if salvage else None
    there = [*Folder(path).generations()][::-1]
    for number in there if salvage and generation is None and there else [generation]:
        try:
            opened = OpenGeneration(Folder(path), number)
            kind, arguments = _arguments(opened, path)
            if limit is not None:
                _set_limit(kind, arguments, limit, path)
            if "spill" in arguments:
                arguments["spill"] = _folder_to_spill(arguments, spill, path)
            with _limit_told(arguments, path):
                made = make(kind, arguments, os.fspath(path))  # first: it may refuse
                state, known = _state(opened, path, mmap, damage)
                made = restored(made, state, path)
            _loaded[made] = Folder(path).path, known
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


def _set_limit(kind: str, arguments: State, max_bytes: int, path: str | os.PathLike[str]) -> None:
    """Have a buffer another ``max_bytes`` than it was saved with."""
    if "spill" not in arguments:
        raise SpecError(f"{path} has a {kind}, which takes no max_bytes when it is loaded: leave it out")
    arguments["max_bytes"] = max_bytes


@contextmanager
def _limit_told(arguments: State, path: str | os.PathLike[str]) -> Iterator[None]:
    """A context that says of a buffer that does not fit in its limit that it can be loaded with another one."""
    try:
        yield
    except (HeapFull, LimitTooLow) as error:
        if arguments.get("max_bytes") is None:
            raise
        raise type(error)(f"{path} has a buffer that does not fit: {error}. load takes another max_bytes") from error


def _folder_to_spill(
    arguments: State, spill: str | os.PathLike[str] | None, path: str | os.PathLike[str]
) -> str | os.PathLike[str] | None:
    if spill is not None and arguments.get("max_bytes") is None:
        raise SpecError(f"{path} has a buffer without max_bytes, of which nothing can exceed it: leave spill out")
    if arguments["spill"] and spill is None:
        raise SnapshotError(f"{path} has a buffer whose oldest blocks are in files: pass spill, a folder for them")
    return spill


@says_memory_error
def read_snapshot(
    path: str | os.PathLike[str],
    generation: int | None = None,
    *,
    mmap: bool = False,
    damage: list[str] | None = None,
    loaded_into: object | None = None,
) -> tuple[str, State, State]:
    """The kind, the arguments and the state in a snapshot.

    Args:
        path: the folder.
        generation: its number, None for the last one.
        mmap: see :func:`load`.
        damage: gets a text for each damaged place, which is left out; None to refuse damage.
        loaded_into: what a ``Snapshot`` of this folder will write next, and has this generation then.

    Raises:
        SnapshotError: see :func:`load`.
    """
    opened = OpenGeneration(Folder(path), generation)
    kind, arguments = _arguments(opened, path)
    state, known = _state(opened, path, mmap, damage)
    if loaded_into is not None:
        _loaded[loaded_into] = Folder(path).path, known
    return kind, arguments, state


@says_memory_error
def read_arguments(path: str | os.PathLike[str], generation: int | None = None) -> tuple[str, State]:
    """The kind and the arguments in a snapshot, of which nothing else is read: no tensors, and no items.

    Args:
        path: the folder.
        generation: its number, None for the last one.

    Raises:
        SnapshotError: see :func:`load`.
    """
    return _arguments(OpenGeneration(Folder(path), generation), path)


def written_by(path: str | os.PathLike[str]) -> str:
    """The package that wrote the last generation of a snapshot, a space, and its version.

    Raises:
        SnapshotError: see :func:`load`.
    """
    return str(OpenGeneration(Folder(path), None).manifest.get("written_by", ""))


@says_memory_error
def read_values(path: str | os.PathLike[str], generation: int | None = None) -> tuple[State, Any]:
    """The arguments in a snapshot, and the state as JSON values, in which an object stands for each array.

    Raises:
        SnapshotError: see :func:`load`.
    """
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
    """An empty object with a state that :func:`read_snapshot` read.

    Raises:
        SnapshotError: no such object has this state.
    """
    with named(path):
        made.restore(state)
    return made


def _parts(saved: Saved) -> tuple[Tree, dict[str, Any]]:
    """A state, and what a manifest says of it."""
    known = (of.__name__ for of in type(saved).__mro__ if of.__name__ in _MADE or of in Store.kinds.values())
    head = {"kind": next(known, type(saved).__name__), "written_by": getattr(saved, "written_by", _WRITTEN_BY)}
    tree = flatten({"arguments": saved.arguments(), "state": saved.state()})
    if isinstance(saved, (Store, TensorArray)):
        name, store = ("array", saved.store) if isinstance(saved, TensorArray) else ("tensors", saved)
        stats = BufferStats({name: store.stats()}, id_bytes=0, waiting_bytes=0, other_bytes=0, raw_bytes=0)
        n_steps = len(saved) if isinstance(saved, TensorArray) and saved.ids.ndim else None
        head["contents"] = stats.manifest({name: store.layout}, n_steps, None)
    elif describe := getattr(saved, "manifest", None):
        head["contents"] = describe()
    return tree, head


@contextmanager
def named(path: str | os.PathLike[str]) -> Iterator[None]:
    """A context that raises what is wrong with the content of a snapshot as SnapshotError."""
    try:
        yield
    except (SnapshotError, HeapFull, LimitTooLow, BackendUnavailable, MissingPackage):
        raise
    except (
        ObscodecError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise SnapshotError(f"{path} has a content that no obscodec writes: {error}") from error


@atexit.register
def _finish() -> None:
    """Finish the generations that are being written before Python exits."""
    _WRITER.finish()
