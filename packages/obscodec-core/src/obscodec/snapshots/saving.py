"""Saving: Snapshot writes generations of a buffer in the background, save writes one."""

import atexit
import os
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Self

from obscodec.arguments import as_count, as_option, kind_of, says_arguments
from obscodec.arrays import TensorArray
from obscodec.buffers import Prioritized, RingBuffer
from obscodec.errors import DTypeError
from obscodec.runtime import Background, Job, patiently, says_errors, says_memory_error
from obscodec.snapshots.folder import Folder, hash_of
from obscodec.snapshots.known import Known
from obscodec.snapshots.saved import LOADED, MADE, Saved
from obscodec.snapshots.writer import before_generation, write_generation
from obscodec.stats import BufferStats
from obscodec.stores import Store
from obscodec.trees import Tree, flatten

_WRITTEN_BY: Final = f"obscodec {version('obscodec')}"  # found here: it imports, which a forked process may wait for
_SAVED: Final = "a RingBuffer, a Prioritized, a TensorArray or a store"
_WRITER: Final = Background()
atexit.register(_WRITER.finish)  # generations that are being written are finished before Python exits


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
        ...     snapshot.generations, len(obscodec.load(folder, generation=3))
        ([2, 3, 4], 3)
    """

    def __init__(self, path: str | os.PathLike[str], *, keep: int = 3) -> None:
        self._folder, self._keep = Folder(path), as_count("keep", keep)
        self._known = Known()
        self._job: Job[Known] | None = None

    @property
    def generations(self) -> list[int]:
        """The numbers of the finished generations, rising."""
        return [*self._folder.generations()] if self._folder.path.exists() else []

    @says_memory_error
    def write(
        self, saved: Saved, generation: int | None = None, *, beside: Mapping[str, str | os.PathLike[str]] | None = None
    ) -> int:
        """Begin to write another generation; waits for the one before it.

        Args:
            saved: what :func:`save` takes, or a buffer of an adapter; the same one each time.
            generation: its number, higher than the last one, such as the number of steps of a training; None for the
                next one. A buffer that was loaded from an earlier generation of this folder goes on from there: it
                replaces the generations from this number on.
            beside: files on the disk that belong to it, by what each is, such as ``{"model": "model.zip"}``:
                ``check_beside`` of :class:`obscodec.snapshots.OpenGeneration` tells whether they are still those.

        Returns:
            The number.

        Raises:
            DTypeError: ``saved`` is something else, or can't be saved.
            SnapshotError: the folder has other files, or later generations of another buffer.
            OSError: the disk refused the generation before, or a file beside it can't be read.
        """
        if not hasattr(saved, "arguments"):
            raise DTypeError(f"write takes {_SAVED}, or a buffer of an adapter, got {kind_of(saved)}")
        number = self.make_way(saved, generation)
        tree, head = _parts(saved)
        if beside:
            head["beside"] = {name: hash_of(Path(file)) for name, file in beside.items()}
        write = partial(write_generation, self._folder, tree, head, self._known, number, self._keep)
        self._job = _WRITER.submit(write)
        return number

    @says_memory_error
    def make_way(self, saved: Saved, generation: int | None = None) -> int:
        """Do what comes before :meth:`write`: wait, refuse a number, and remove the generations that it replaces.

        For files beside the generation that are written first, and would otherwise fit a generation that is replaced.
        See :meth:`write` for the arguments, the result and the errors.
        """
        self.wait()
        number = as_option("generation", generation)
        self._folder.make()
        with suppress(TypeError):  # there can be no weak reference to it, so it was not loaded
            path, known = LOADED.get(saved, (None, self._known))
            if path == self._folder.path:  # else it may go on there later
                self._known = known
                del LOADED[saved]
        if number is None:
            number = 1 + self._folder.highest_number()
        staying = before_generation(self._folder, self._known, number)
        for manifest in {*self._folder.generations().values()} - {*staying.values()}:
            patiently((self._folder.path / manifest).unlink)  # the next writer removes its files
        return number

    @says_memory_error
    def wait(self) -> None:
        """Wait until the last generation is finished.

        Raises:
            OSError: the disk refused it; the generations before it stay.
        """
        job = self._job
        if job is not None and job.is_here:
            job.wait()
            self._job = None
            self._known = job.result()
        self._job = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


@says_errors
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
        ...     obscodec.load(folder).read(ids).mean()
        np.float64(1.0)
    """
    if not isinstance(saved, (RingBuffer, Prioritized, TensorArray, Store)):
        remedy = "buffers of adapters have a method save"
        if isinstance(saved, (str, os.PathLike)):
            remedy = "the path comes second, as in save(buffer, path)"
        raise DTypeError(f"save takes {_SAVED}, got {kind_of(saved)}: {remedy}")
    write_snapshot(saved, path)


@says_memory_error
def write_snapshot(saved: Saved, path: str | os.PathLike[str]) -> None:
    """:func:`save` for a class of any package, which :func:`load` loads ``by`` another function."""
    tree, head = _parts(saved)
    write_generation(Folder(path), tree, head, Known(), None, 1)


def _parts(saved: Saved) -> tuple[Tree, dict[str, Any]]:
    """A state, and what a manifest says of it."""
    known = (of.__name__ for of in type(saved).__mro__ if of.__name__ in MADE or issubclass(of, Store))
    kind = getattr(saved, "saved_as", None) or next(known, type(saved).__name__)
    head = {"kind": kind, "written_by": getattr(saved, "written_by", _WRITTEN_BY)}
    with getattr(saved, "changing", None) or nullcontext():
        tree = flatten({"arguments": saved.arguments(), "state": saved.state()})
        if isinstance(saved, (Store, TensorArray)):
            name, store = ("array", saved.store) if isinstance(saved, TensorArray) else ("tensors", saved)
            stats = BufferStats({name: store.stats()}, id_bytes=0, waiting_bytes=0, other_bytes=0, raw_bytes=0)
            n_steps = len(saved) if isinstance(saved, TensorArray) and saved.ids.ndim else None
            head["contents"] = stats.manifest({name: store.layout}, n_steps, None)
        elif describe := getattr(saved, "manifest", None):
            head["contents"] = describe()
    return tree, head
