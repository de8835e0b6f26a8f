"""TensorArray: an integer array of ids over a store, which behaves like the ndarray of the tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast
from weakref import ref

import numpy as np
import numpy.typing as npt

from obscodec.arguments import check_kind, kind_of
from obscodec.arrays.deferred_read import OPEN_READ, Selection
from obscodec.arrays.dirty_rows import DirtyRows, note
from obscodec.arrays.indexing import Index, Part, last_writes, split_index
from obscodec.arrays.write_buffer import WriteBuffer
from obscodec.devices import from_device
from obscodec.errors import CorruptStream, DTypeError, ShapeError
from obscodec.fixed import Fixed
from obscodec.layout import Layout, as_dtype, as_numbers
from obscodec.runtime import says_memory_error
from obscodec.segments import Ints
from obscodec.state import State, array_of, number_of, part_of, versioned
from obscodec.stores import Place, Store, store_of

MAX_DECODED_NBYTES = 1 << 26  # of np.asarray(array): a rollout of 8 environments and 256 steps of Atari fits


class TensorArray:
    """An array of shape ``[*ids.shape, *layout.shape]`` whose items are compressed.

    Reading decodes the selected items into a new numpy array. Assigning encodes. ``reshape``, ``swapaxes`` and
    ``transpose`` move the axes before the items; they return views that write through. Items that were never assigned
    are zeros, as in ``numpy.zeros``. ``numpy.asarray`` decodes an array of up to 64 MiB, and refuses a larger one, so
    that nobody decodes a whole buffer by accident.

    Args:
        ids: an integer array of ids in ``store``. This array owns one reference to each, as long as it or a view of it
            is there: no other array may be made of them.
        store: the store of the tensors.
        write_buffer: where assigned steps wait, so that some are stored together; for an array
            ``[n_steps, n_envs, *shape]``, or ``[n, *shape]`` in which environments take turns, that is filled step by
            step. None to store each step at once.

    Raises:
        DTypeError: an argument has another type, or the ids are not int32 or int64.
        ShapeError: the write buffer is for another store, or for another number of environments.

    Example:
        >>> import numpy as np, obscodec
        >>> store = obscodec.FrameStore(obscodec.Layout((84, 84), np.uint8))
        >>> frames = TensorArray.zeros((100, 2), store)
        >>> frames.shape
        (100, 2, 84, 84)
        >>> frames[3] = np.ones((2, 84, 84), np.uint8)
        >>> frames[[2, 3], 1].mean(axis=(1, 2))
        array([0., 1.])
    """

    store: Fixed[Store] = Fixed("make another array, and assign the items of this one to it")

    def __init__(
        self, ids: npt.NDArray[np.signedinteger], store: Store, write_buffer: WriteBuffer | None = None
    ) -> None:
        if not isinstance(ids, np.ndarray) or ids.dtype not in (np.int32, np.int64):
            found = ids.dtype if isinstance(ids, np.ndarray) else kind_of(ids)
            raise DTypeError(f"ids are int32 or int64, got {found}")
        check_kind("store", store, Store, "a Store, such as FrameStore(layout)")
        if write_buffer is not None:
            check_kind("write_buffer", write_buffer, WriteBuffer, "a WriteBuffer, such as WriteBuffer(store, n_envs)")
            if not (ids.flags.writeable and ids.flags.c_contiguous):  # kernels write them by their address
                raise DTypeError("a write buffer writes ids, and these are read-only, or not contiguous: pass a copy")
            n_envs, other = write_buffer.n_envs, write_buffer.store is not store
            if other or (ids.shape[1:] or (n_envs,)) != (n_envs,) or not ids.ndim:
                raise ShapeError(
                    f"a write buffer is for one store and ids [n_steps, {n_envs}] or [n], got ids of shape {ids.shape}"
                    + (" and another store" if other else "")
                )
        self._ids = ids
        self.store = store
        self._write_buffer = write_buffer
        self._base: TensorArray | None = None  # of a view, the array that owns the ids
        self._watches: list[ref[DirtyRows]] = []  # of this array and its views
        self._own()

    @classmethod
    def zeros(cls, shape: tuple[int, ...], store: Store, write_buffer: WriteBuffer | None = None) -> Self:
        """An array of zeros, ``[*shape, *store.layout.shape]``, which takes no memory until it is written.

        Raises:
            ShapeError: ``shape`` is no tuple of whole numbers, 0 or more.
            DTypeError: ``store`` is no store.
        """
        of_ids = Layout((shape,) if isinstance(shape, (int, np.integer)) else shape, np.int32)  # checks the shape
        return cls(np.zeros(of_ids.shape, np.int32), store, write_buffer)

    @property
    def ids(self) -> npt.NDArray[np.signedinteger]:
        """The id of each tensor in the store."""
        if self._write_buffer is not None and self._write_buffer.waiting:
            self._write_buffer.flush()
        return self._ids

    @property
    def write_buffer(self) -> WriteBuffer | None:
        """Where assigned steps go; None if each is stored by itself."""
        return self._write_buffer if self._base is None else None

    @property
    def layout(self) -> Layout:
        """Shape and dtype of one item."""
        return self.store.layout

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the uncompressed array."""
        return self._ids.shape + self.layout.shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The dtype of the uncompressed array."""
        return self.layout.dtype

    @property
    def ndim(self) -> int:
        """The number of axes of the uncompressed array."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the uncompressed array; ``store.stats()`` tells how many bytes the store takes."""
        return self._ids.size * self.layout.nbytes

    @property
    def id_nbytes(self) -> int:
        """Bytes of the id of one item."""
        return self._ids.itemsize

    def reshape(self, *shape: int | tuple[int, ...]) -> TensorArray:
        """A view with other axes before the items.

        Where ``ndarray.reshape`` would copy, as after ``swapaxes``, the result can only be read, and is valid until
        somebody assigns to the original.

        Raises:
            ShapeError: the last axes are not the axes of an item, or the shape has more or fewer items.
        """
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        n_item_axes = len(self.layout.shape)
        leading, items = wanted[: len(wanted) - n_item_axes], wanted[len(wanted) - n_item_axes :]
        if items != self.layout.shape:
            raise ShapeError(f"the last axes must stay those of an item, {self.layout.shape}, got {wanted}")
        try:
            ids = self.ids.reshape(leading)  # type: ignore[arg-type]
        except ValueError:
            raise ShapeError(f"{self._ids.size} items of shape {self.layout.shape} don't fit shape {wanted}") from None
        if ids.size and not np.may_share_memory(ids, self.ids):
            ids.flags.writeable = False
        return self._view(ids)

    def row(self, index: int) -> TensorArray:
        """A view of a row, as ``array[index]`` of numpy is one; IndexError if there is no such row."""
        return self._view(self._ids[index, ...])

    def swapaxes(self, axis1: int, axis2: int) -> TensorArray:
        """A view with two axes exchanged.

        Raises:
            ShapeError: an axis belongs to the items.
        """
        return self._view(self.ids.swapaxes(self._leading_axis(axis1), self._leading_axis(axis2)))

    def transpose(self, *axes: int) -> TensorArray:
        """A view with its axes in the order ``axes``.

        Raises:
            ShapeError: an axis of the items would move.
        """
        n = self._ids.ndim
        if axes[n:] != tuple(range(n, self.ndim)):
            raise ShapeError(f"the axes of the items, {tuple(range(n, self.ndim))}, must stay last, got {axes}")
        return self._view(self.ids.transpose(axes[:n]))

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: Index) -> npt.NDArray[np.generic]:
        leading, of_items = split_index(index, self._ids.ndim, self.ndim)
        guard = self.store.guard()  # before the ids are copied: another thread may replace them
        ids = np.array(self.ids[leading])
        if not of_items and (at_once := OPEN_READ.get()) is not None and self.store not in at_once:
            return cast("npt.NDArray[np.generic]", Selection(self.store, ids, guard))
        with guard:
            return self._decoded(ids, of_items)

    @says_memory_error
    def _decoded(self, ids: npt.NDArray[np.signedinteger], of_items: tuple[Part, ...]) -> npt.NDArray[np.generic]:
        """Decode the tensors ``ids``, ``[*chosen]``, and index each with ``of_items``."""
        tensors = self.store.read(ids.reshape(-1)).reshape(ids.shape + self.layout.shape)
        if not of_items:
            return tensors
        return tensors[(slice(None),) * ids.ndim + of_items]

    def __setitem__(self, index: Index, value: npt.ArrayLike) -> None:
        if type(value) is not np.ndarray:
            value = from_device(self.store.device, value)
        write_buffer = self._write_buffer
        if write_buffer is not None and type(index) is int and 0 <= index < len(self._ids) and self._base is None:
            row = value[None] if type(value) is np.ndarray and self._ids.ndim == 1 else value
            if type(row) is not np.ndarray or not write_buffer.put(self._ids, index, row):
                row = self._cast(value, (*(self._ids.shape[1:] or (1,)), *self.layout.shape))
                if not write_buffer.put(self._ids, index, row):  # environments take turns
                    self[index : index + 1] = row
        elif write_buffer is None or self._base is not None or not write_buffer.put_some(self._ids, index, value):
            self._assign(index, value)

    @says_memory_error
    def _assign(self, index: Index, value: npt.ArrayLike) -> None:
        """Store a value without a write buffer."""
        if not self._ids.flags.writeable:
            raise ValueError("this array can only be read: reshape could not make a view, assign to the original")
        leading, of_items = split_index(index, self._ids.ndim, self.ndim)
        with self.store.changing:
            self.store.settle()
            old = np.array(self.ids[leading], np.int64)
            shape = old.shape + self.layout.shape
            if of_items:  # decode the items, assign to a part of each, encode them
                tensors = self.store.read(old.reshape(-1)).reshape(shape)
                part = (slice(None),) * old.ndim + of_items
                tensors[part] = self._cast(value, tensors[part].shape)
            else:
                tensors = self._cast(value, shape)
            tensors, sequences = tensors.reshape(-1, *self.layout.shape), self._sequences(leading).reshape(-1)
            place, stay = self._place(leading, old.shape)
            if stay is not None:
                tensors, sequences = tensors[stay], sequences[stay]
            self.store.exchange([place], tensors, np.arange(len(tensors)), sequences)

    def assign_ids(self, index: Index, ids: Ints) -> None:
        """Put tensors of the store into the selected items, and release the tensors that were there.

        Args:
            index: of the axes before the items. If it names an item twice, the last id stays.
            ids: contiguous ``i64[...]``, as many as the index selects. This array takes their references over: the
                call sets all of them to 0.
        """
        flat = ids.reshape(-1)
        with self.store.changing:
            places, stay = places_together([self], index)
            if stay is not None:
                flat[:] = flat[np.argsort(~stay, kind="stable")]  # first the ids that stay; the caller owns all of them
                kept = np.count_nonzero(stay)
                self.store.settle(flat[kept:])
                flat = flat[:kept]
            self.store.put_ids(places, flat)

    def watch(self) -> DirtyRows:
        """The rows of :attr:`ids` that change from now on, collected as long as somebody holds the result.

        Raises:
            ShapeError: this array is a view of another one.
        """
        if self._base is not None:
            raise ShapeError("this array is a view, made by reshape, swapaxes or transpose: watch the original")
        watch = DirtyRows(len(self._ids))
        self._watches.append(ref(watch))
        if self._write_buffer is not None:
            self._write_buffer.watch(self._ids, self._watches)
        return watch

    def clear(self, index: Index = ...) -> None:
        """Set the items that an index of the axes before them selects, or all, to zero, and release their tensors."""
        self.assign_ids(index, np.zeros(np.size(self._ids[index]), np.int64))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[np.generic]:
        if self.nbytes > MAX_DECODED_NBYTES:
            raise TypeError(
                f"decoding this whole TensorArray takes {self.nbytes:,} bytes, and numpy.asarray stops at "
                f"{MAX_DECODED_NBYTES:,}: index it, as in array[:100], or array[:] for all"
            )
        if copy is False:
            raise ValueError("a TensorArray can't be read without a copy: it is decoded")
        with self.store.guard():
            decoded = self._decoded(np.array(self.ids), ())
        return decoded if dtype is None else decoded.astype(dtype, copy=False)

    def arguments(self) -> State:
        """The arguments of :meth:`from_arguments` for an equal array of zeros; a view has those of an array."""
        buffer = self.write_buffer
        waiting = None if buffer is None else {"n_envs": buffer.n_envs, "min_rows": buffer.min_rows}
        ids = {"shape": [*self._ids.shape], "bits": 8 * self._ids.itemsize}
        store = {"kind": type(self.store).__name__, "arguments": self.store.arguments()}
        return {"store": store, "ids": ids, "write_buffer": waiting}

    @classmethod
    def from_arguments(cls, arguments: State) -> Self:
        """An array of zeros, with a store of its own."""
        store, of_ids = store_of(**part_of(arguments, "store", dict)), part_of(arguments, "ids", dict)
        if store is None:
            raise CorruptStream(f"an array has a store of no known kind: {arguments['store']['kind']!r}")
        ids = np.zeros(part_of(of_ids, "shape", list), {32: np.int32, 64: np.int64}[number_of(of_ids, "bits", 32, 64)])
        waiting = arguments.get("write_buffer")
        return cls(ids, store, None if waiting is None else WriteBuffer(store, **waiting))

    @says_memory_error
    def state(self) -> State:
        """The ids, and the tensors of the whole store: see ``obscodec.state``."""
        store = self.store.state()
        return {"ids": self.ids.copy(), "store": store}

    def restore(self, state: State) -> None:
        """Fill this array, which is made of zeros, with the :meth:`state` of an array of its shape."""
        ids = array_of(state, "ids", self._ids.dtype, self._ids.shape)
        self.store.restore(part_of(state, "store", dict))
        self._ids[...] = ids

    def forget_damaged(self) -> Ints:
        """Set the items whose streams were lost or damaged to zero; ``i64[n, ids.ndim]``, where these items were."""
        ids = np.unique(self.ids)
        damaged = np.concatenate([ids[:0], *(self._damaged(ids[k : k + 256]) for k in range(0, len(ids), 256))])
        lost = np.argwhere(np.isin(self.ids, damaged))
        if len(lost):
            self.clear(tuple(lost.T))
        return lost

    def _damaged(self, ids: Ints) -> Ints:
        """Those of some ids whose tensors can't be decoded."""
        try:
            self.store.read(ids)
        except CorruptStream:
            half = len(ids) // 2
            return np.concatenate([self._damaged(ids[:half]), self._damaged(ids[half:])]) if half else ids
        return ids[:0]

    def __copy__(self) -> TensorArray:
        """A view: there is one reference to each id."""
        return self._view(self._ids)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """A copy of a view is a view of a copy; where ids lie apart, one that can only be read."""
        ids, base = self.ids, self._base
        if base is None or not (base._ids.flags.c_contiguous and np.may_share_memory(ids, base._ids)):
            return versioned(super().__reduce_ex__(protocol))
        offset = ids.__array_interface__["data"][0] - base._ids.__array_interface__["data"][0]
        return versioned((_view_of, (base, ids.shape, ids.strides, offset)))

    def __getstate__(self) -> dict[str, object]:
        return {"_ids": self.ids, "store": self.store, "_write_buffer": self._write_buffer, "_base": self._base}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _watches=[])
        if self._base is None:
            self._own()
        elif self._ids.size:
            self._ids.flags.writeable = False

    def __repr__(self) -> str:
        return f"TensorArray(shape={self.shape}, dtype={self.dtype}, store={self.store!r})"

    def _place(self, leading: tuple[Part, ...], shape: tuple[int, ...]) -> tuple[Place, npt.NDArray[np.bool_] | None]:
        """The place that an index selects, and ``bool[n]``: which ids stay in it, if the index names an item twice."""
        self._note(leading)
        last = last_writes(leading, self._ids.shape, shape)
        if last is None or (stay := last == np.arange(len(last))).all():
            return Place(self._ids, leading), None
        at = np.arange(self._ids.size).reshape(self._ids.shape)[leading].reshape(-1)[stay]
        return Place(self._ids, np.unravel_index(at, self._ids.shape)), stay

    def _note(self, leading: tuple[Part, ...]) -> None:
        """Tell the watches of this array that the selected rows are about to change."""
        if self._watches:
            note(self._watches, leading if self._base is None else ())

    def _sequences(self, leading: tuple[Part, ...]) -> Ints:
        """The sequence of each selected item: in an array ``[step, environment]``, the environment."""
        shape, buffer = self._ids.shape, self._write_buffer
        first, n_envs = (0, 1) if buffer is None else (buffer.first, buffer.n_envs)
        if n_envs == 1 or len(shape) != 1:
            along_last = first + (np.arange(shape[-1]) if len(shape) > 1 else 0)
            return np.asarray(np.broadcast_to(along_last, shape)[leading])
        part = leading[0] if len(leading) == 1 else None
        places = range(shape[0])[part] if isinstance(part, slice) else np.arange(shape[0])[leading]
        return first + np.asarray(places, np.int64) % n_envs

    def _view(self, ids: npt.NDArray[np.signedinteger]) -> TensorArray:
        """The same items with other axes before them. The view flushes the write buffer, but assigns without it."""
        view = self.__new__(type(self))
        vars(view).update(vars(self), _ids=ids, _base=self if self._base is None else self._base)
        return view

    def _own(self) -> None:
        """From now on, the references to the ids are this array's."""
        self.store.own(self, self._ids)

    def _cast(self, value: npt.ArrayLike, shape: tuple[int, ...]) -> npt.NDArray[np.generic]:
        """``value`` as an assignment to an ndarray would store it, except that no number changes silently."""
        array = as_dtype(as_numbers(value), self.dtype)
        if array.shape == shape:
            return array
        surplus = max(0, array.ndim - len(shape)) if shape else 0
        if array.shape[:surplus] == (1,) * surplus:
            array = array.reshape(array.shape[surplus:])
        try:
            return np.broadcast_to(array, shape)
        except ValueError:
            raise ShapeError(f"an array of shape {array.shape} can't be assigned to shape {shape}") from None

    def _leading_axis(self, axis: int) -> int:
        check_kind("axis", axis, (int, np.integer), "a whole number")
        leading = axis + self.ndim if axis < 0 else axis
        if not 0 <= leading < self._ids.ndim:
            raise ShapeError(
                f"axis {axis} is not one of the {self._ids.ndim} axes before the items of shape {self.shape}"
            )
        return leading


def _view_of(base: TensorArray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> TensorArray:
    """A view with so many ids along each axis, so many bytes apart, the first so many bytes behind that of ``base``."""
    ids = base._ids
    return base._view(np.ndarray(shape, ids.dtype, ids, offset, strides))


def places_together(arrays: Sequence[TensorArray], index: Index) -> tuple[list[Place], npt.NDArray[np.bool_] | None]:
    """The places, about to change, that an index selects in arrays of one store and one shape.

    Args:
        arrays: the arrays; the caller holds ``changing`` of their store until the places have changed.
        index: of the axes before the items of each array.

    Returns:
        A place for each array, and ``bool[n]``: which of the items that the index selects are the last ones of their
        places; None if the index names no item twice. Only these have a place.

    Raises:
        IndexError: the index is out of range.
    """
    first = arrays[0]
    leading, _ = split_index(index, first._ids.ndim, first.ndim)
    place, stay = first._place(leading, first.ids[leading].shape)
    for array in arrays[1:]:
        array._note(leading)
    return [Place(array.ids, place.index) for array in arrays], stay
