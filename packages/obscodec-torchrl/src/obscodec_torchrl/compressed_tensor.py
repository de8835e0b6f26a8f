"""CompressedTensor: a tensor whose items are in a compressed store, for the leaves of a tensordict."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np
import obscodec
import torch
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

# Whether an index array into a compressed tensor gives one that is decoded later.
DRAWING: ContextVar[bool] = ContextVar("DRAWING", default=False)

_torch_dtype = cache(lambda dtype: getattr(torch, dtype.name))  # numpy takes long to tell a name


class CompressedTensor(torch.Tensor):
    """A tensor ``[*batch, *shape]`` whose items are compressed, each under one id.

    What gives a view of a tensor gives a view of the ids as long as items stay whole: it decodes nothing, and writes
    through. An index array decodes what it selects. Every other operation decodes this tensor; one that works in place
    stores the result.

    Args:
        array: the items.
        device: where decoded tensors are put.
    """

    array: obscodec.TensorArray

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    __deepcopy__ = None  # type: ignore[assignment]  # so that copy goes by __reduce_ex__; that of torch.Tensor would decode

    @staticmethod
    def __new__(cls, array: obscodec.TensorArray, device: torch.device | str = "cpu") -> CompressedTensor:
        """See the class."""
        strides, dtype = obscodec.strides_of(array), _torch_dtype(array.dtype)
        made = cls._make_wrapper_subclass(cls, array.shape, strides=strides, dtype=dtype, device=torch.device(device))
        made.array = array
        return made

    def drawn(self, index: Any) -> CompressedTensor:
        """The items that ``index`` selects, as they are now."""
        return CompressedTensor(obscodec.DrawnArray(self.array, index), self.device)

    @property
    def is_drawn(self) -> bool:
        """Whether this is what :meth:`drawn` gave, or a view of it."""
        return isinstance(self.array, obscodec.DrawnArray)

    def decoded(self) -> torch.Tensor:
        """The tensor, uncompressed; a copy."""
        return as_tensor(obscodec.DrawnArray(self.array, ...)[...]).to(self.device)

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The array, uncompressed; a copy."""
        return self.decoded().numpy(force=force)

    def tolist(self) -> Any:
        """The numbers."""
        return self.decoded().tolist()

    def __getitem__(self, index: Any) -> torch.Tensor:
        at = _as_index(index)
        if any(np.ndim(part) for part in at) and self.array.selects_items(at):
            return self.drawn(at) if DRAWING.get() else self.drawn(at).decoded()
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        at, new = _as_index(index), getattr(value, "array", None)
        if not isinstance(new, obscodec.NewArray) or not new.move(self.array, at):
            self.array[at] = stored_array(torch.as_tensor(value, dtype=self.dtype))[...]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        self, kwargs = args[0], kwargs or {}
        views = self._views(func, args[1:], kwargs) if isinstance(self, CompressedTensor) and func.is_view else None
        return _decoding(func, args, kwargs) if views is None else views

    def _views(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function that gives views does with the ids, None if it does not keep items whole."""

        def of_items(view: torch.Tensor) -> CompressedTensor | None:
            array = obscodec.strided_view(self.array, view.shape, view.stride(), int(view.storage_offset()))
            return None if array is None else CompressedTensor(array, self.device)

        same = torch.empty_strided(self.shape, self.stride(), device="meta")
        views = tree_map(of_items, func(same, *args, **kwargs))
        return None if any(view is None for view in tree_leaves(views)) else views

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.is_drawn:
            return self.decoded().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]
        return CompressedTensor, (self.array, self.device)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        if not self.array.ids.ndim:
            return repr(self.decoded())
        return f"CompressedTensor(shape={tuple(self.shape)}, dtype={self.dtype}, store={self.array.store!r})"


def stored_array(tensor: torch.Tensor) -> obscodec.TensorArray | np.ndarray:
    """A tensor as an array, compressed if it is that; no copy if it is on the CPU."""
    return tensor.array if isinstance(tensor, CompressedTensor) else obscodec.as_array(tensor.detach().cpu())


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """An array of any dtype that torch has as a tensor; no copy if it is contiguous."""
    flat = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return flat.view(_torch_dtype(array.dtype)).reshape(array.shape)


def _decoding(func: Any, args: Any, kwargs: Any) -> Any:
    """``func`` of the decoded tensors; those that it changes are stored again."""
    drawn = {id(x): x.drawn(...) for x in tree_leaves((args, kwargs)) if isinstance(x, CompressedTensor)}
    known = {key: x.decoded() for key, x in drawn.items()}  # all as they were at one time
    plain = tree_map_only(CompressedTensor, lambda x: known[id(x)], (args, kwargs))
    result, arguments = func(*plain[0], **plain[1]), func._schema.arguments
    given = dict(zip([argument.name for argument in arguments], args, strict=False)) | kwargs
    changed = [given.get(a.name) for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    for x in tree_leaves(changed):
        if isinstance(x, CompressedTensor):
            x[...] = known[id(x)]
            result = x if result is known[id(x)] else result
    return result


def _as_index(index: Any) -> tuple[Any, ...]:
    """An index of a tensor as that of an array."""
    parts = index if isinstance(index, tuple) else (index,)
    return tuple(part.cpu().numpy() if isinstance(part, torch.Tensor) else part for part in parts)
