"""Store: the base class of all stores."""

from __future__ import annotations

import sys
import warnings
from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from obscodec.codecs import pack, unpack
from obscodec.devices import FrameReader, backend
from obscodec.errors import CorruptStream, DTypeError, ShapeError, SlotError, SpecError
from obscodec.fixed import Fixed
from obscodec.frames import StepWriter
from obscodec.layout import Layout, as_array, as_writable
from obscodec.runtime import says_memory_error
from obscodec.segments import Ints
from obscodec.state import State, array_of, versioned
from obscodec.stats import StoreStats
from obscodec.stores.exchange import IdExchange
from obscodec.stores.ids import as_ids, each_sequence
from obscodec.stores.stored_part import StoredPart

MAKE_ANOTHER = "make another store, and append what store.read(ids) of this one returns"
_MIN_PACKED_NBYTES = 1 << 12


class Store(IdExchange):
    """Tensors of one layout, each under an integer id. Id 0 is the zero tensor.

    Attributes:
        layout: shape and dtype of one tensor.
        device: where tensors are decoded: ``"cpu"``, or a GPU, whose arrays :meth:`read_into` also fills.
    """

    layout: Fixed[Layout] = Fixed(MAKE_ANOTHER)
    device: Fixed[str] = Fixed(MAKE_ANOTHER)
    _kinds: ClassVar[dict[str, type[Store]]] = {}  # all classes of stores, by name

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Store._kinds[cls.__name__] = cls

    @says_memory_error
    def append(self, tensors: npt.NDArray[np.generic], sequences: npt.ArrayLike = 0) -> Ints:
        """Store ``[n, *shape]``.

        Args:
            tensors: in the order of time for each sequence; a numpy array, for a store on a GPU also an array of any
                library on this GPU.
            sequences: the sequence of each tensor, ``i64[n]`` or one number for all: the index of its environment.
                Neighbours in a sequence are likely to be alike.

        Returns:
            ``i64[n]``, the ids, with one reference to each for the caller.

        Raises:
            ShapeError: the tensors have another shape.
            DTypeError: the tensors have another dtype.
            HeapFull: there is not enough room; nothing was stored.
        """
        tensors = tensors if hasattr(tensors, "shape") else self._to_host(tensors)
        n = int(tensors.shape[0]) if len(tensors.shape) else 0
        if self._references.gone:
            with self.changing:
                self.settle()
        ids, of_sequences = np.zeros(n, np.int64), each_sequence(sequences, n)
        try:
            self.take_in(tensors, np.arange(n), of_sequences, ids)
            return ids
        except BaseException:
            self._give_back(ids)
            raise

    @says_memory_error
    def release(self, ids: npt.ArrayLike) -> None:
        """Give back one reference to each id, except 0. A tensor without references and guards is dropped.

        Raises:
            SlotError: an id is of no tensor, or is released more often than it was given out; nothing was done.
        """
        with self.changing:
            self.settle(as_ids(ids).copy())

    def _to_host(self, x: Any) -> npt.NDArray[np.generic]:
        """Tensors as a numpy array; a copy if they are on the GPU of this store. DTypeError for any others."""
        if isinstance(x, np.ndarray):
            return as_array(x)
        if self.device == "cpu":
            raise DTypeError(f"tensors are a numpy array, for a store on the CPU, got {type(x).__name__}")
        return backend(self.device).download(self.device, x)

    def step_writer(self, n: int) -> StepWriter | None:
        """What stores steps of ``n`` tensors, one of each sequence ``0..n-1``, with a compiled call for each step.

        None if this store takes several steps better at once. Whoever writes with it holds :attr:`changing`, and calls
        :meth:`settle` before.
        """
        del n
        return None

    @abstractmethod
    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """Decode tensors.

        Args:
            ids: ``i64[n]``.
            out: a contiguous numpy array ``[n, *shape]`` of the dtype. A store on a GPU also takes an array of any
                library on this GPU, and fills it on the current stream.

        Raises:
            SlotError: an id is of no tensor.
            DTypeError: ``out`` is no such array.
        """

    def parts(self, ids: Ints) -> list[StoredPart]:
        """Tensors as they are stored, to be decoded elsewhere; together they have all places ``0..n-1``.

        A store that does not say how decodes them.
        """
        return [StoredPart.plain(np.arange(len(ids)), self.layout, self.read(ids))]

    def _read_via_host(self, ids: Ints, out: Any) -> None:
        """:meth:`read_into` for an array on a GPU: decode on the CPU, and copy the tensors to the GPU."""
        if self.device == "cpu":
            raise DTypeError(f"out is a numpy array, for a store on the CPU, got {type(out).__name__}")
        backend(self.device).fill(self.device, out, len(ids), self.layout, partial(self.read_into, ids))

    @property
    def has_device_reader(self) -> bool:
        """Whether :meth:`device_reader` returns one, at once."""
        return False

    def device_reader(self, ids: Ints) -> tuple[FrameReader, Ints]:
        """What decodes tensors on the GPU, for ids in the memory of the GPU; and the ids that it knows them by.

        Raises:
            SpecError: this store can't be read by ids on a GPU, or has not decided yet how it keeps tensors.
        """
        del ids
        raise SpecError(
            f"a {type(self).__name__} on {self.device!r} can't be read by ids on a GPU: that takes frames, or stacks "
            "of them, with the codec 'delta-rle', 'delta-rle|lz4', 'rle' or 'raw' on that GPU"
        )

    @says_memory_error
    def read(self, ids: npt.ArrayLike, out: Any = None) -> npt.NDArray[np.generic]:
        """Decode tensors.

        Args:
            ids: ``[n]``, in any order; an id may occur several times.
            out: an array ``[n, *shape]`` to fill, of numpy or with DLPack; for a store on a GPU, a numpy array or an
                array on this GPU. None for a new numpy array.

        Returns:
            ``out``, or the new array.

        Raises:
            SlotError: an id is of no tensor.
            ShapeError: ``ids`` or ``out`` has another shape.
            DTypeError: ``out`` has another dtype, or is read-only.
        """
        wanted = as_ids(ids)
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

    @abstractmethod
    def arguments(self) -> State:
        """The arguments for an equal, empty store, by name; for a store in it, those of :func:`store_of`.

        See ``obscodec.state``.
        """

    @says_memory_error
    def state(self) -> State:
        """All tensors and references, as they are now; :meth:`restore` fills an equal, empty store with them.

        Rows that wait are stored first, and an interrupted exchange is completed. ``waiting`` are the ids that will be
        given back when guards are closed, if there are any.
        """
        for write_buffer in self.write_buffers:
            write_buffer.flush()
        with self.changing:
            self.settle()
            self._catch_up()
            waiting = self._references.waiting
            return {**self._state(), "waiting": waiting} if waiting.any() else self._state()

    @abstractmethod
    def _state(self) -> State:
        """See :meth:`state`."""

    def restore(self, state: State) -> None:
        """Fill this store, which is empty, with the :meth:`state` of a store that was made with equal arguments.

        Raises:
            CorruptStream: no store has such a state; this store must not be used any more.
            HeapFull: there is not enough room.
        """
        self._restore(state)
        if "waiting" in state:  # for guards of the other store
            try:
                self._give_back(array_of(state, "waiting", np.int64, (None,)))
            except SlotError as error:
                raise CorruptStream(f"'waiting' of a state: {error}") from error

    @abstractmethod
    def _restore(self, state: State) -> None:
        """See :meth:`restore`."""

    def __reduce__(self) -> tuple[object, ...]:
        arguments = type(self), self.arguments(), _with_packed(self.state())
        return versioned((_restored, arguments, {"changing": self.changing}))

    def stats(self) -> StoreStats:
        """What the store holds now; tensors that were released count as long as a guard keeps them."""
        with self.changing:
            self.settle()
            self._catch_up()
        return self._stats()

    @abstractmethod
    def _stats(self) -> StoreStats:
        """See :meth:`stats`."""

    @property
    def _parts(self) -> tuple[Store, ...]:
        """The stores that this one consists of."""
        return ()

    def decide(self) -> None:
        """Wait until it is decided how tensors are stored, by those so far, if there are any, and all are stored so."""
        for part in self._parts:
            part.decide()

    @property
    def memory_bytes(self) -> int:
        """About the memory of ``stats().total_bytes``, known at once and without a lock."""
        return sum(part.memory_bytes for part in self._parts)

    def spill(self, folder: str, nbytes: int) -> int:
        """Move the oldest streams from memory to files in a folder; they are read there as before.

        The files have no names. Their space on the disk is free again when the streams are, or when the process ends.
        Other threads can use the store meanwhile.

        Args:
            folder: of the files.
            nbytes: how many bytes of memory to free.

        Returns:
            How many bytes of memory it has freed: more, by a chunk of at most 2 MiB, or fewer if no more can go.

        Raises:
            OSError: the disk is full or refuses; all tensors are as they were.
            SpecError: a GPU reads the streams in pinned memory.
        """
        freed = 0
        for part in self._parts:
            if freed < nbytes:
                freed += part.spill(folder, nbytes - freed)
        return freed


class _Packed(np.ndarray[Any, np.dtype[Any]]):
    """An array that is packed where it is pickled, and comes back as a plain one."""

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return _unpacked, (pack([np.asarray(self)]),)


def _unpacked(packed: bytes) -> npt.NDArray[np.generic]:
    (array,) = unpack(packed, max_bytes=sys.maxsize)  # pickles come from friends
    return array


def _with_packed(value: Any) -> Any:
    """A state whose large arrays are packed where they are pickled."""
    if isinstance(value, dict):
        return {name: _with_packed(item) for name, item in value.items()}
    return value.view(_Packed) if isinstance(value, np.ndarray) and value.nbytes >= _MIN_PACKED_NBYTES else value


def store_of(kind: str, arguments: State) -> Store | None:
    """An empty store of a kind, the name of its class, by ``Store.arguments``; None if there is no such kind."""
    return _made(Store._kinds[kind], arguments) if kind in Store._kinds else None


def _made(kind: type[Store], arguments: State) -> Store:
    made = {}
    for name, value in arguments.items():
        is_store = isinstance(value, dict) and "kind" in value
        made[name] = store_of(**value) if is_store else value
        if is_store and made[name] is None:
            raise CorruptStream(f"a store has a part of no known kind: {value['kind']!r}")
    return kind(**made)


def _restored(kind: type[Store], arguments: State, state: State) -> Store:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the store that was pickled has warned
        store = _made(kind, arguments)
    store.restore(state)
    return store
