"""Store: what a TensorArray needs of the thing that keeps its tensors."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, cast
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from obscodec.arrays import as_writable
from obscodec.backends import backend
from obscodec.errors import DTypeError, HeapFull, ShapeError, SlotError, SpecError
from obscodec.frame_reader import FrameReader
from obscodec.layout import Layout
from obscodec.segments import Ints
from obscodec.turns import turns

_READINGS = threading.Lock()  # of all stores; several threads can sample
_TOGETHER_NBYTES = 1 << 20  # of tensors that are put side by side at once: they stay in the cache until they are stored
NO_TENSOR = 0  # the id of the zero tensor, which every store has from the start and nobody can release


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What a store holds, in bytes.

    Attributes:
        n_tensors: tensors that are stored.
        raw_bytes: what these would take uncompressed.
        live_bytes: their streams.
        reserved_bytes: memory reserved for streams, the live ones included.
        table_bytes: the tables that find a stream.
        dictionary_bytes: dictionaries that the streams need.
    """

    n_tensors: int
    raw_bytes: int
    live_bytes: int
    reserved_bytes: int
    table_bytes: int
    dictionary_bytes: int

    @property
    def total_bytes(self) -> int:
        """All memory of the store."""
        return self.reserved_bytes + self.table_bytes + self.dictionary_bytes

    @property
    def ratio(self) -> float:
        """Uncompressed bytes for each byte of memory; 1 for an empty store."""
        return self.raw_bytes / self.total_bytes if self.total_bytes else 1.0


def each_stream(streams: npt.ArrayLike, n: int) -> Ints:
    """The stream of each of ``n`` tensors, from one for each or one for all.

    Raises:
        ShapeError: there are neither one nor ``n``.
    """
    given = np.asarray(streams)
    if given.shape == (n,) and given.dtype == np.int64:
        return given
    given = given.astype(np.int64)
    if given.shape == (n,):
        return given
    if given.size != 1:
        raise ShapeError(f"{n} tensors have {n} streams or one for all, got {given.shape}")
    return np.full(n, given.item())


def repeats(which: Ints, m: int) -> npt.NDArray[np.bool_]:
    """``bool[n]``: which numbers in ``which`` are there a second time or more, where all of ``0..m-1`` are there."""
    n = len(which)
    first = np.empty(m, np.int64)
    first[which[::-1]] = np.arange(n - 1, -1, -1)  # the last of several assignments stays
    again = np.ones(n, bool)
    again[first] = False
    return again


def check_ids(ids: Ints, dtype: np.dtype[np.signedinteger]) -> None:
    """Make sure that ids fit into an array of ``dtype``.

    Raises:
        HeapFull: one does not.
    """
    largest = np.iinfo(dtype).max
    if ids.size and max(int(ids.max()), -int(ids.min())) > largest:
        raise HeapFull(f"the store has given out an id over {largest}: use an array of ids of a wider dtype")


class Store(ABC):
    """Tensors of one layout, each under an integer id. Id 0 is the zero tensor.

    Attributes:
        layout: shape and dtype of one tensor.
        device: where tensors are decoded: ``"cpu"``, or a GPU, whose arrays :meth:`read_into` takes too.
        changing: held while an array of ids of this store is changed; a lock if several threads may do that.
    """

    layout: Layout
    device: str = "cpu"
    changing: AbstractContextManager[object] = nullcontext()

    @cached_property
    def stagings(self) -> WeakSet[Any]:
        """Where rows wait that are on their way into this store."""
        return WeakSet()

    @cached_property
    def readings(self) -> WeakSet[Any]:
        """What is decoding in the background."""
        return WeakSet()

    def note_reading(self, reading: Any) -> None:
        """Have whoever releases tensors wait for a reading in the background."""
        with _READINGS:
            self.readings.add(reading)

    def wait_for_readings(self) -> None:
        """Wait until nothing decodes in the background: what it reads may be released then."""
        with _READINGS:
            readings = list(self.readings) if self.readings else []
            self.readings.clear()
        for reading in readings:
            reading.wait()

    @abstractmethod
    def append(self, tensors: npt.NDArray[np.generic], streams: npt.ArrayLike = 0) -> Ints:
        """Store ``[n, *shape]``.

        Args:
            tensors: in the order of time for each stream; a numpy array, for a store on a GPU also an array of any
                library there.
            streams: which stream each tensor belongs to, ``i64[n]`` or one for all: the index of the environment. What
                follows each other in a stream is likely to be alike.

        Returns:
            ``i64[n]``, the ids. The caller owns one reference to each.
        """

    def has_on_device(self, x: object) -> bool:
        """Whether ``x`` is an array in the memory of the GPU of this store, which :meth:`append` takes too."""
        if self.device == "cpu" or isinstance(x, np.ndarray):
            return False
        try:
            backend(self.device).check(self.device, x)
        except DTypeError:
            return False
        return True

    def on_cpu(self, x: Any) -> npt.NDArray[np.generic]:
        """A numpy array as it is; a copy of one on the device of this store.

        Raises:
            DTypeError: ``x`` is neither.
        """
        if isinstance(x, np.ndarray):
            return x
        if self.device == "cpu":
            raise DTypeError(f"tensors are a numpy array, for a store on the CPU, got {type(x).__name__}")
        return backend(self.device).download(self.device, x)

    def append_together(self, arrays: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray[np.int64]:
        """Store several arrays in the order of time: the first tensor of each, then the second of each.

        So the next observation of a step, which is the observation of the following one, comes right before it.

        Args:
            arrays: ``[*batch, *shape]``, all of one shape; see :meth:`append`. The first axis of ``batch`` is time;
                what is at one place of the others, an environment or one of its agents, is a stream of its own. Along
                the first axis environments may take turns, too; that shows where the last array has what is in the
                first one some steps later.

        Returns:
            ``i64[n_arrays, *batch]``, the ids. The caller owns one reference to each.

        Raises:
            ShapeError: an array has another shape.
            DTypeError: an array has another dtype.
            HeapFull: there is not enough room; nothing was stored.
        """
        n_arrays = len(arrays)
        if n_arrays > 1:  # to be put side by side; one alone goes as it is
            arrays = [self.on_cpu(array) for array in arrays]
        batch = arrays[0].shape[: arrays[0].ndim - len(self.layout.shape)]
        n = math.prod(batch)
        rows = [array.reshape((n, *array.shape[len(batch) :])) for array in arrays]
        n_each = max(1, math.prod(batch[1:]))  # tensors of each step
        n_turns = turns(rows[0][::n_each], rows[-1][::n_each]) if n_arrays > 1 else 1
        streams = np.resize(np.arange(n_turns * n_each), n)
        if n_arrays == 1:
            return self.append(rows[0], streams).reshape(1, *batch)
        ids = np.empty((n, n_arrays), np.int64)
        for start, stop in pairwise([*range(0, n, max(1, _TOGETHER_NBYTES // (n_arrays * self.layout.nbytes))), n]):
            tensors = np.stack([array[start:stop] for array in rows], axis=1)
            try:
                stored = self.append(tensors.reshape(-1, *tensors.shape[2:]), streams[start:stop].repeat(n_arrays))
            except BaseException:
                self.release(ids[:start].reshape(-1))
                raise
            ids[start:stop] = stored.reshape(-1, n_arrays)
        return np.ascontiguousarray(ids.T).reshape(n_arrays, *batch)

    def adopt(self, other: Store, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Store tensors of another store: as they are encoded there if both encode alike, else decoded and encoded.

        A tensor that is in this store already may be stored a second time; those that are one there are one here.

        Args:
            other: where they are; it may be damaged.
            ids: ``[n_arrays, *batch]``, their ids there, as :meth:`append_together` takes the tensors.

        Returns:
            ``i64[n_arrays, *batch]``, the ids here. The caller owns one reference to each, and still those that it had
            in the other store.

        Raises:
            SlotError: an id is of no tensor there.
            ShapeError: tensors of the other store have another shape.
            DTypeError: tensors of the other store have another dtype.
            CorruptStream: what is encoded there is damaged; nothing was stored. Of a codec that compresses bytes this
                may come up later, when such a tensor is read.
            HeapFull: there is not enough room; nothing was stored.
        """
        adopted = self.adopt_alike(other, ids.reshape(-1).astype(np.int64))
        if adopted is None:
            return self.append_together(
                [other.read(of.reshape(-1)).reshape(*of.shape, *other.layout.shape) for of in ids]
            )
        return adopted.reshape(ids.shape)

    def adopt_alike(self, other: Store, ids: Ints) -> Ints | None:
        """:meth:`adopt` for ``i64[n]`` of a store that encodes alike; None of another one, and nothing is stored."""
        del other, ids
        return None

    def replace(self, old: Ints, tensors: npt.NDArray[np.generic], streams: npt.ArrayLike = 0) -> Ints:
        """:meth:`append`, and when that is done, :meth:`release` of the ids ``old``. A refused call changes nothing."""
        ids = self.append(tensors, streams)
        try:
            self.release(old)
        except BaseException:
            self.release(ids)
            raise
        return ids

    def replace_repeated(self, old: Ints, tensors: npt.NDArray[np.generic], which: Ints, streams: Ints) -> Ints:
        """:meth:`replace` by the tensors ``tensors[which]``.

        Args:
            old: ``i64[n]``.
            tensors: ``[m, *shape]``.
            which: ``i64[n]``, each of ``0..m-1`` at least once.
            streams: ``i64[m]``, the stream of each of ``tensors``.

        Returns:
            ``i64[n]``, the ids. The caller owns one reference for each.
        """
        if len(which) == len(tensors) and (which[1:] > which[:-1]).all():  # each once, in order
            return self.replace(old, tensors, streams)
        return self.replace(old, tensors[which], streams[which])

    @abstractmethod
    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """Decode tensors.

        Args:
            ids: ``i64[n]``.
            out: ``[n, *shape]`` of this dtype and contiguous, a numpy array; for a store on a GPU also an array of any
                library there. Such a one is filled in the order of the current stream.

        Raises:
            SlotError: an id is of no tensor.
            DTypeError: ``out`` is no numpy array, and not in the memory of the device of this store.
        """

    def read_on_cpu(self, ids: Ints, out: Any) -> None:
        """:meth:`read_into` for an array of another library: decode on the CPU, and copy that to the device."""
        if self.device == "cpu":
            raise DTypeError(f"out is a numpy array, for a store on the CPU, got {type(out).__name__}")
        backend(self.device).fill(self.device, out, len(ids), self.layout, partial(self.read_into, ids))

    def behind(self, ids: Ints) -> tuple[Store, Ints]:
        """The store that decodes tensors, and their ids there: this one, unless it hands them on to another.

        Raises:
            SlotError: an id is of no tensor.
            SpecError: it is not decided yet which store that is.
        """
        return self, ids

    def update_device(self) -> FrameReader:
        """Have the device know all that is stored now; what decodes there, for who reads by ids that are there too.

        Raises:
            SpecError: it does not read by ids that are on a device.
            HeapFull: the device has not enough memory.
        """
        raise SpecError(
            f"a {type(self).__name__} on {self.device!r} can't be read by ids on a GPU: that takes frames, or stacks "
            "of them, with the codec 'delta-rle', 'rle' or 'raw' on that GPU"
        )

    @abstractmethod
    def release(self, ids: Ints) -> None:
        """Give back one reference to each of ``ids``; a tensor that has none left is dropped."""

    def read(self, ids: npt.ArrayLike, out: Any = None) -> npt.NDArray[np.generic]:
        """Decode tensors.

        Args:
            ids: ``[n]``, in any order and as often as you like.
            out: ``[n, *shape]`` to fill, numpy or any array with DLPack; for a store on a GPU, numpy or any array
                there; a new numpy array if None.

        Returns:
            The tensors, in ``out`` if that was given.

        Raises:
            SlotError: an id is of no tensor.
            ShapeError: ``ids`` or ``out`` has another shape.
            DTypeError: ``out`` has another dtype, or is read-only.
        """
        given = np.asarray(ids)
        if given.size and given.dtype.kind not in "iu":
            raise SlotError(f"ids are integers, got {given.dtype}")
        wanted = np.atleast_1d(given.astype(np.int64))
        if wanted.ndim > 1:
            raise ShapeError(f"ids have shape (n,), got {wanted.shape}")
        if out is None:
            tensors = np.empty((len(wanted), *self.layout.shape), self.layout.dtype)
            self.read_into(wanted, tensors)
            return tensors
        if self.device != "cpu" and not isinstance(out, np.ndarray):
            self.read_into(wanted, out)
            return cast("npt.NDArray[np.generic]", out)
        target = as_writable(out)
        if target.shape != (len(wanted), *self.layout.shape):
            raise ShapeError(f"out has shape {(len(wanted), *self.layout.shape)}, got {target.shape}")
        if target.dtype == self.layout.dtype and target.flags.c_contiguous:
            self.read_into(wanted, target)
        elif target.dtype.newbyteorder("<") == self.layout.dtype:
            target[...] = self.read(wanted)
        else:
            raise DTypeError(f"out has dtype {self.layout.dtype}, got {target.dtype}")
        return target

    def __getstate__(self) -> dict[str, object]:
        """All but locks, with the rows that wait."""
        for staging in list(self.stagings):
            staging.flush()
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "stagings", "readings")}

    @abstractmethod
    def stats(self) -> StoreStats:
        """What the store holds now."""
