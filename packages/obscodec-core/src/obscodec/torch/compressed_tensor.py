"""CompressedTensor: a tensor whose items are in a compressed store, for the leaves of a tensordict."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, cached_property, reduce
from operator import getitem
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

import obscodec
from obscodec.arguments import check_kind
from obscodec.arrays import BorrowedArray, DeferredRead, DrawnArray, PartArray, n_axes, strided_view, strides_of
from obscodec.layout import as_array
from obscodec.runtime import holding
from obscodec.stores import BATCH_MEMORY, BatchMemory, Store
from obscodec.torch.indexing import steps_of

# While this is True, an index array of a compressed tensor selects one that is decoded later.
DRAWING: ContextVar[bool] = ContextVar("DRAWING", default=False)
# The batch of which a compressed tensor is being indexed, if the GPU decodes it: a DeviceBatch.
DEVICE_BATCH: ContextVar[Any] = ContextVar("DEVICE_BATCH", default=None)

K = TypeVar("K", bound=Hashable)
Device = torch.device | str
PINNED_MEMORY = BatchMemory(
    lambda nbytes: torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True).numpy()
)
_NO_GEOMETRY = (torch.ops.aten._conj.default, torch.ops.aten._neg_view.default)  # views whose numbers are others
_aten = torch.ops.aten
_REPLACING = (_aten.copy_.default, _aten.fill_.Scalar, _aten.fill_.Tensor, _aten.zero_.default)  # read nothing of self
_DTYPES_OF_NUMPY = {torch.from_numpy(np.empty(0, kind)).dtype for kind in "?bhilBefdFD"}  # others need DLPack
_torch_dtype = cache(lambda dtype: getattr(torch, dtype.name))  # dtype.name takes 2.5 µs


class CompressedTensor(torch.Tensor):
    """A tensor ``[*batch, *shape]`` whose items are compressed, each under one id.

    A view with whole items is a view of the ids: it decodes nothing, and writes through. A view of parts of items is a
    decoded copy, and read-only. An index array decodes the items that it selects, and ``torch.stack`` those of all rows
    that it gets, together. ``copy_``, ``fill_`` and ``zero_`` decode nothing. Every other operation decodes the whole
    tensor; an operation in place then stores its result. A compressed tensor has no memory to share. The first argument
    is the array that it reads and writes; if that has a write buffer, rows are best stored one by one, as in
    ``x[k].copy_(row)`` or ``x[k] = row``. ``device`` is that of decoded tensors.

    Example:
        >>> import torch
        >>> from obscodec import AutoStore, Layout, TensorArray
        >>> from obscodec.arrays import WriteBuffer
        >>> from obscodec.torch import CompressedTensor
        >>> rows = WriteBuffer(AutoStore(Layout((3, 64, 64), "uint8")), n_envs=1)
        >>> obs, next_obs = (CompressedTensor(TensorArray.zeros((1000,), rows.store, rows)) for _ in range(2))
        >>> obs[5].copy_(torch.full((3, 64, 64), 7, dtype=torch.uint8)).shape
        torch.Size([3, 64, 64])
        >>> obs[torch.tensor([5, 6])].float().mean((1, 2, 3))
        tensor([7., 0.])
    """

    array: Any
    n_leading: int  # number of the axes before those of the items
    row_of: tuple[Any, int] | None  # the array of which this is a row, whose write buffer takes what replaces it

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    __deepcopy__ = None  # type: ignore[assignment]  # torch.Tensor's would decode; without one, copy calls __reduce_ex__

    @staticmethod
    def __new__(cls, array: obscodec.TensorArray | PartArray, device: Device = "cpu") -> CompressedTensor:
        """See the class."""
        check_kind(
            "array", array, (obscodec.TensorArray, PartArray), "a TensorArray, such as TensorArray.zeros((9,), store)"
        )
        return cls._of(array, array.shape, strides_of(array), _torch_dtype(array.dtype), torch.device(device))

    @classmethod
    def _of(
        cls, array: Any, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> CompressedTensor:
        """A tensor of an array that has this geometry and dtype."""
        made = cls._make_wrapper_subclass(cls, shape, strides=strides, dtype=dtype, device=device)
        made.array, made.n_leading, made.row_of = array, len(shape) - len(array.layout.shape), None
        return made

    @cached_property
    def _of_row(self) -> tuple[Any, ...]:
        """Shape, strides, dtype and device of a row: see :meth:`_of`."""
        return self.shape[1:], self.stride()[1:], self.dtype, self.device

    def drawn(self, index: Any) -> CompressedTensor:
        """The items that ``index`` selects, as they are now."""
        array, is_part = self.array, isinstance(self.array, PartArray)
        return CompressedTensor(PartArray(array[index]) if is_part else DrawnArray(array, index), self.device)

    def new_array(self, store: Store, n: int) -> Any:
        """``[n, *shape]`` to decode into, where the store decodes; pinned, if the CPU decodes for a GPU."""
        if store.device != "cpu":
            return torch.empty((n, *store.layout.shape), dtype=_torch_dtype(store.layout.dtype), device=self.device)
        return (PINNED_MEMORY if self.is_cuda else BATCH_MEMORY).array(n, store.layout)

    def decoded(self) -> torch.Tensor:
        """A plain tensor with the same numbers."""
        array = self.array
        if not self.n_leading and self.is_cpu and isinstance(array, obscodec.TensorArray):
            with array.store.guard():  # an item: preparing a batch would take longer than decoding it
                return as_tensor(array.store.read(np.array(array.ids).reshape(1)).reshape(array.layout.shape))
        return decode({"": self.drawn(...)})[""]

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """A plain array with the same numbers."""
        return self.decoded().numpy(force=force)

    def tolist(self) -> Any:
        """The numbers."""
        return self.decoded().tolist()

    def _no_memory(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a compressed tensor has no memory to share, or to write to one by one: take its clone()")

    share_memory_ = apply_ = map_ = map2_ = __dlpack__ = _no_memory  # torch would crash in these

    def __getitem__(self, index: Any) -> torch.Tensor:
        batch = DEVICE_BATCH.get()
        if batch is not None and (room := batch.room_for(self.array, index)) is not None:
            return cast("torch.Tensor", room)
        if type(index) is int and self.n_leading and not self.requires_grad:  # past torch, which is slower
            row = self._of(self.array.row(index), *self._of_row)
            row.row_of = self.array, index
            return row
        *steps, at = steps_of(as_index(index), self.n_leading, self.ndim)
        if steps:
            return reduce(getitem, (*steps, at), self)  # type: ignore[arg-type]
        if any(np.ndim(part) for part in at) and sum(map(n_axes, at)) <= self.n_leading:
            drawn = self.drawn(at)
            return drawn if DRAWING.get() else decode({"": drawn})[""]
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if type(index) is int and self.n_leading:
            row = value if isinstance(value, torch.Tensor) else torch.as_tensor(value, dtype=self.dtype)
            if row.ndim >= self.ndim:  # torch ignores axes of length 1 in front
                row = row.squeeze(tuple(range(row.ndim - self.ndim + 1)))
            self[index].copy_(row)
            return
        *views, at = steps_of(as_index(index), self.n_leading, self.ndim, writing=True)
        if views:
            self[views[0]][at] = value
        else:
            self.array[at] = stored_array(torch.as_tensor(value, dtype=self.dtype))[...]

    def copy_(self, src: Any, non_blocking: bool = False) -> CompressedTensor:
        """Replace all items, as torch does it; past its dispatcher, since buffers call this for every step."""
        if isinstance(self.array, PartArray) or not isinstance(src, torch.Tensor):
            return cast("CompressedTensor", super().copy_(src, non_blocking))  # which raises
        return self._replaced(src)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func in _REPLACING and isinstance(args[0], CompressedTensor) and not isinstance(args[0].array, PartArray):
            return args[0]._replaced(args[1] if len(args) > 1 else 0)
        is_view = func.is_view and func not in _NO_GEOMETRY and isinstance(args[0], CompressedTensor)
        return (args[0]._views if is_view else _decoding)(func, args, kwargs or {})

    def _replaced(self, value: Any) -> CompressedTensor:
        """This tensor, after all of its items were replaced."""
        if isinstance(value, CompressedTensor) and (value.dtype, value.shape) != (self.dtype, self.shape):
            value = value.decoded()
        if not isinstance(value, torch.Tensor) or value.dtype != self.dtype or value.shape != self.shape:
            value = torch.as_tensor(value, dtype=self.dtype).broadcast_to(self.shape)
        array, index = self.row_of or (self.array, ...)
        array[index] = stored_array(value)[...]
        return self

    def _views(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The views that ``func`` returns: of the ids, or of decoded items if ``func`` does not keep items whole."""
        same = torch.empty_strided(self.shape, self.stride(), dtype=self.dtype, device="meta")
        views = func(same, *args[1:], **kwargs)
        arrays = tree_map(self._view_of_ids, views)
        if any(array is None for array in tree_leaves(arrays)):
            arrays = tree_map(PartArray, func(self.decoded().cpu(), *args[1:], **kwargs))
        return tree_map(lambda array: CompressedTensor(array, self.device), arrays)

    def _view_of_ids(self, view: torch.Tensor) -> Any:
        """The array with the geometry of ``view``; None if the items in it are not whole, or have another dtype."""
        if view.dtype != self.dtype:
            return None
        return strided_view(self.array, tuple(view.shape), view.stride(), int(view.storage_offset()))

    def __reduce_ex__(self, protocol: Any) -> Any:
        stored = type(self.array) is obscodec.TensorArray
        return (CompressedTensor, (self.array, self.device)) if stored else self.decoded().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"CompressedTensor({self.array!r})" if self.n_leading else repr(self.decoded())


def stored_array(tensor: torch.Tensor) -> Any:
    """The compressed array of a :class:`CompressedTensor`; another tensor as a numpy array, not copied on the CPU."""
    if isinstance(tensor, CompressedTensor):
        return tensor.array
    of_numpy = tensor.dtype in _DTYPES_OF_NUMPY
    return tensor.numpy(force=True) if of_numpy else as_array(tensor.detach().cpu())


def drawn_together(tensors: Mapping[K, CompressedTensor]) -> dict[K, CompressedTensor]:
    """Compressed tensors as they are at one moment: this takes the lock ``changing`` of each store.

    To avoid a deadlock, the caller holds no such lock, unless all of the tensors are drawn already, which needs none.
    """
    arrays = [x.array for x in tensors.values() if not isinstance(x.array, (BorrowedArray, PartArray))]
    return holding(
        {array.store.changing for array in arrays}, lambda: {key: x.drawn(...) for key, x in tensors.items()}
    )


def decode(drawn: Mapping[K, CompressedTensor]) -> dict[K, torch.Tensor]:
    """The decoded tensors of leaves that were drawn from one storage; the leaves of each store are decoded together."""
    if not drawn:
        return {}
    new_array = next(iter(drawn.values())).new_array
    read = DeferredRead(lambda: {key: x.array[...] for key, x in drawn.items()}, new_array).result()
    return {key: as_tensor(x).to(drawn[key].device) for key, x in read.items()}


def as_tensor(array: np.ndarray | torch.Tensor) -> torch.Tensor:
    """An array of any dtype of torch as a tensor; a copy only if it is not contiguous and numpy lacks the dtype."""
    if isinstance(array, torch.Tensor):
        return array
    if array.dtype.isbuiltin == 1:  # a dtype of numpy; this takes a sixth of the time of the general way
        return torch.from_numpy(array)
    return torch.from_numpy(np.ravel(array).view(np.uint8)).view(_torch_dtype(array.dtype)).view(array.shape)


def _decoding(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of ``func`` for decoded tensors; the tensors that it changes are stored again."""
    tensors = {id(x): x for x in tree_leaves((args, kwargs)) if isinstance(x, CompressedTensor)}
    drawn, known = drawn_together(tensors), dict[int, torch.Tensor]()
    for device in {x.device for x in drawn.values()}:  # all rows of a batch, as torch.stack gets them, together
        known |= decode({key: x for key, x in drawn.items() if x.device == device})
    plain = tree_map_only(CompressedTensor, lambda x: known[id(x)], (args, kwargs))
    result, arguments = func(*plain[0], **plain[1]), func._schema.arguments
    given = dict(zip([argument.name for argument in arguments], args, strict=False)) | kwargs
    changed = [given.get(a.name) for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    for x in tree_leaves(changed):
        if isinstance(x, CompressedTensor):
            x[...] = known[id(x)]
            result = x if result is known[id(x)] else result
    return result


def as_index(index: Any) -> tuple[Any, ...]:
    """An index of torch with numpy arrays in the places of its tensors; torch takes an array of bytes for a mask."""
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [part.cpu().numpy() if isinstance(part, torch.Tensor) else part for part in parts]
    return tuple(x.astype(bool) if np.ndim(x) and getattr(x, "dtype", None) == np.uint8 else x for x in arrays)
