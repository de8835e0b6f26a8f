"""Store: what a TensorArray needs of the thing that keeps its tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from obscodec.devices import FrameReader, backend
from obscodec.errors import DTypeError, ShapeError, SpecError
from obscodec.layout import Layout, as_array, as_writable
from obscodec.runtime import says_memory_error
from obscodec.segments import Ints
from obscodec.stats import StoreStats
from obscodec.stores.exchange import IdExchange
from obscodec.stores.ids import as_ids, each_sequence


class Store(IdExchange, ABC):
    """Tensors of one layout, each under an integer id. Id 0 is the zero tensor.

    Attributes:
        layout: shape and dtype of one tensor.
        device: where tensors are decoded: ``"cpu"``, or a GPU, whose arrays :meth:`read_into` takes too.
    """

    layout: Layout
    device: str = "cpu"

    @abstractmethod
    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """Store tensors under ids of which the caller owns one reference to each.

        Args:
            tensors: ``[m, *shape]``; see :meth:`append`.
            which: ``i64[n]``, the tensor that each id is for, each of ``0..m-1`` at least once.
            sequences: ``i64[m]``, the sequence of each tensor.
            ids: ``i64[n]`` of zeros, filled. Whatever ends this call, wherever: those that are not 0 then are the
                caller's, to be given to :meth:`give_back`, and no others.

        Raises:
            ShapeError: the tensors have another shape.
            DTypeError: the tensors have another dtype.
            HeapFull: there is not enough room.
        """

    @abstractmethod
    def give_back(self, ids: Ints) -> None:
        """Give back one reference to each of ``ids``, and set them to 0; a tensor that has none left is dropped.

        Whatever ends this call, wherever: those that are not 0 then are still the caller's. So it can be called again.

        Args:
            ids: ``i64[n]``; 0 among them is left alone.

        Raises:
            SlotError: an id is of no tensor, or is given back more often than it was given out; nothing was done.
        """

    @says_memory_error
    def append(self, tensors: npt.NDArray[np.generic], sequences: npt.ArrayLike = 0) -> Ints:
        """Store ``[n, *shape]``.

        Args:
            tensors: in the order of time for each sequence; a numpy array, for a store on a GPU also an array of any
                library there.
            sequences: which sequence each tensor belongs to, ``i64[n]`` or one for all: the index of the environment.
                Tensors that follow each other in a sequence are likely to be alike.

        Returns:
            ``i64[n]``, the ids. The caller owns one reference to each.

        Raises:
            ShapeError: the tensors have another shape.
            DTypeError: the tensors have another dtype.
            HeapFull: there is not enough room; nothing was stored.
        """
        n = self.number_of(tensors)
        ids, of_sequences = np.zeros(n, np.int64), each_sequence(sequences, n)
        try:
            self.take_in(tensors, np.arange(n), of_sequences, ids)
            return ids
        except BaseException:
            self.give_back(ids)
            raise

    @says_memory_error
    def release(self, ids: npt.ArrayLike) -> None:
        """Give back one reference to each of ``ids``; a tensor that has none left is dropped. 0 is left alone.

        Raises:
            SlotError: an id is of no tensor, or is released more often than it was given out; nothing was done.
        """
        self.give_back(as_ids(ids).copy())

    def number_of(self, tensors: Any) -> int:
        """How many tensors there are in an array, 0 if it has no axes.

        Raises:
            DTypeError: it is no array.
        """
        shape: tuple[int, ...] = tensors.shape if hasattr(tensors, "shape") else self.to_host(tensors).shape
        return int(shape[0]) if len(shape) else 0

    def is_on_device(self, x: object) -> bool:
        """Whether ``x`` is an array in the memory of the GPU of this store, which :meth:`append` takes too."""
        if self.device == "cpu" or isinstance(x, np.ndarray):
            return False
        try:
            backend(self.device).check(self.device, x)
        except DTypeError:
            return False
        return True

    def to_host(self, x: Any) -> npt.NDArray[np.generic]:
        """A numpy array as it is; a copy of one on the device of this store.

        Raises:
            DTypeError: ``x`` is neither, or has a mask or a unit, which would be lost.
        """
        if isinstance(x, np.ndarray):
            return as_array(x)
        if self.device == "cpu":
            raise DTypeError(f"tensors are a numpy array, for a store on the CPU, got {type(x).__name__}")
        return backend(self.device).download(self.device, x)

    @says_memory_error
    def transfer(self, other: Store, ids: npt.NDArray[np.integer], sequences: npt.ArrayLike = 0) -> Ints:
        """Store tensors of another store: as they are encoded there if both encode alike, else decoded and encoded.

        A tensor that is in this store already may be stored a second time; those that are one there are one here.

        Args:
            other: where they are; it may be damaged.
            ids: ``i64[...]``, their ids there, in the order of time for each sequence.
            sequences: see :meth:`append`.

        Returns:
            ``i64[...]``, the ids here. The caller owns one reference to each, and still those that it had in the other
            store.

        Raises:
            SlotError: an id is of no tensor there.
            ShapeError: tensors of the other store have another shape.
            DTypeError: tensors of the other store have another dtype.
            CorruptStream: what is encoded there is damaged; nothing was stored. Of a codec that compresses bytes this
                may come up later, when such a tensor is read.
            HeapFull: there is not enough room; nothing was stored.
        """
        wanted, out = ids.reshape(-1).astype(np.int64), np.zeros(ids.size, np.int64)
        try:
            if not self.transfer_alike(other, wanted, out):
                tensors, of_sequences = other.read(wanted), each_sequence(sequences, len(wanted))
                self.take_in(tensors, np.arange(len(wanted)), of_sequences, out)
            return out.reshape(ids.shape)
        except BaseException:
            self.give_back(out)
            raise

    def transfer_alike(self, other: Store, ids: Ints, out: Ints) -> bool:
        """:meth:`transfer` for ``i64[n]`` of a store that encodes alike.

        Args:
            other: where they are.
            ids: ``i64[n]``, their ids there.
            out: ``i64[n]`` of zeros, filled with those here, as :meth:`take_in` does that.

        Returns:
            Whether it does encode alike; if not, nothing is stored.
        """
        del other, ids, out
        return False

    def replace(self, old: Ints, tensors: npt.NDArray[np.generic], sequences: npt.ArrayLike = 0) -> Ints:
        """:meth:`append`, and when that is done, :meth:`release` of the ids ``old``. A refused call changes nothing.

        Ids that are in an array are replaced there by :meth:`exchange`.
        """
        ids = self.append(tensors, sequences)
        try:
            self.release(old)
        except BaseException:
            self.release(ids)
            raise
        return ids

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

    def read_via_host(self, ids: Ints, out: Any) -> None:
        """:meth:`read_into` for an array of another library: decode on the CPU, and copy that to the device."""
        if self.device == "cpu":
            raise DTypeError(f"out is a numpy array, for a store on the CPU, got {type(out).__name__}")
        backend(self.device).fill(self.device, out, len(ids), self.layout, partial(self.read_into, ids))

    def resolve(self, ids: Ints) -> tuple[Store, Ints]:
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

    @says_memory_error
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

    def __getstate__(self) -> dict[str, object]:
        """All but locks, with the rows that wait."""
        for write_buffer in list(self.write_buffers):
            write_buffer.flush()
        left_out = ("_lock", "_exchange", "write_buffers", "readings")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    @abstractmethod
    def stats(self) -> StoreStats:
        """What the store holds now."""
