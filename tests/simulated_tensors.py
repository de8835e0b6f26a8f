"""Tensors of torch on the simulated GPU: torch takes them for tensors of CUDA, and they refuse those of the CPU.

torch has no streams and no gradients for them.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import pytest
import torch
from cuda_on_cpu.array import SimulatedArray
from cuda_on_cpu.device import SimulatedDevice
from obscodec import DTypeError
from torch.utils._pytree import tree_leaves, tree_map

CUDA = torch.device("cuda:0")
_ATEN = torch.ops.aten
_CROSS = {_ATEN.copy_.default, _ATEN._foreach_copy_.default}  # from one device to another
_INDEX = {_ATEN.index.Tensor, _ATEN.index_put.default, _ATEN.index_put_.default, _ATEN._index_put_impl_.default}
_TAKE_NUMBERS = {*_INDEX, _ATEN.fill_.Tensor, _ATEN.masked_fill.Tensor, _ATEN.masked_fill_.Tensor}
_FACTORIES = (
    *("empty", "zeros", "ones", "full", "empty_strided", "empty_like", "zeros_like", "ones_like", "full_like"),
    *("tensor", "as_tensor", "asarray", "arange", "linspace", "eye", "rand", "randn", "randint", "randperm"),
)


class SimulatedTensor(torch.Tensor):
    """A tensor that is on ``cuda:0``.

    Args:
        memory: a tensor of the CPU with the same numbers, which share its memory.
    """

    memory: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, memory: torch.Tensor) -> "SimulatedTensor":
        where = {"strides": memory.stride(), "storage_offset": int(memory.storage_offset())}
        made = cls._make_wrapper_subclass(cls, memory.shape, **where, dtype=memory.dtype, device=CUDA)
        made.memory = memory
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if any(kind is not cls for kind in types):
            return NotImplemented  # a CompressedTensor decodes first
        kwargs = kwargs or {}
        _refuse_mixtures(func, args, kwargs)
        known = {id(_memory(x)): x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        plain_args, plain = tree_map(_memory, (args, kwargs))
        on_cpu = plain.get("device") is not None and torch.device(plain["device"]).type == "cpu"
        if "device" in plain:
            plain["device"] = "cpu"

        def there(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            return known[id(x)] if id(x) in known else x if on_cpu else SimulatedTensor(x)

        return tree_map(there, func(*plain_args, **plain))

    def __getitem__(self, index: Any) -> torch.Tensor:
        return super().__getitem__(_as_tensors(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_as_tensors(index), value)

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")
        return self.memory.clone().numpy()

    def tolist(self) -> Any:
        return self.memory.tolist()

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("a tensor of the simulated GPU is read by its device")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return SimulatedTensor, (self.memory,)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"SimulatedTensor({self.memory!r})"


def _memory(x: Any) -> Any:
    return x.memory if isinstance(x, SimulatedTensor) else x


def _as_tensors(index: Any) -> Any:
    """An index with a tensor in the place of each sequence, of which torch would make one on the GPU by itself."""
    parts = index if isinstance(index, tuple) else (index,)
    return tuple(torch.as_tensor(x) if isinstance(x, list | range | np.ndarray) else x for x in parts)


def _refuse_mixtures(func: Any, args: Any, kwargs: Any) -> None:
    """Refuse what CUDA refuses: tensors of the CPU, but for single numbers where it takes these, and indices."""
    if func in _CROSS:
        return
    asked = args, kwargs
    if func in _INDEX:
        if not isinstance(args[0], SimulatedTensor) and any(isinstance(x, SimulatedTensor) for x in args[1]):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        asked = (args[0], *args[2:]), kwargs
    changes_cpu = func._schema.is_mutable and not isinstance(args[0], SimulatedTensor)
    takes_numbers = not changes_cpu and (torch.Tag.pointwise in func.tags or func in _TAKE_NUMBERS)
    for x in tree_leaves(asked):
        if isinstance(x, torch.Tensor) and not isinstance(x, SimulatedTensor) and not (takes_numbers and x.ndim == 0):
            raise RuntimeError(
                f"{func}: expected all tensors to be on the same device, but found at least two, cuda:0 and cpu"
            )


class DeviceOfTensors(SimulatedDevice):
    """A simulated GPU that has the tensors of torch that are on it, and refuses those of the CPU."""

    def view(self, x: Any) -> SimulatedArray:
        if isinstance(x, torch.Tensor) and not isinstance(x, SimulatedTensor):
            raise DTypeError(f"expected an array on {self.name}, got one in host memory; copy it there first")
        return super().view(_memory(x))


def simulate_tensors(patch: pytest.MonkeyPatch) -> None:
    """Have torch make tensors of the simulated GPU where it is asked for tensors of CUDA, in all threads."""
    torch._C._ensureCUDADeviceGuardSet()  # type: ignore[attr-defined]  # where there is no driver: no device is current
    patch.setattr(torch.cuda, "is_available", lambda: True)
    patch.setattr(torch.cuda, "current_device", lambda: 0)
    patch.setattr(torch.cuda, "current_stream", lambda device=None: None)
    patch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)
    patch.setattr(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor)
    patch.setattr(torch.Tensor, "to", _to(torch.Tensor.to))
    for name in _FACTORIES:
        patch.setattr(torch, name, _factory(getattr(torch, name)))


def _is_cuda(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def _factory(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(function)
    def made(*args: Any, device: Any = None, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        if args and isinstance(args[0], SimulatedArray):  # a copy, since no tensor can hold the memory of an array
            args = SimulatedTensor(torch.from_dlpack(args[0]).clone()), *args[1:]
        if args and isinstance(args[0], SimulatedTensor) and not function.__name__.endswith("_like"):
            return args[0].to(CUDA if device is None else device, dtype=kwargs.get("dtype"))
        if _is_cuda(device):
            return function(*args, **kwargs).to(CUDA)
        return function(*args, **kwargs) if device is None else function(*args, device=device, **kwargs)

    return made


def _to(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(function)
    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        other = args[0] if args else kwargs.get("device", kwargs.get("other"))
        device = other.device if isinstance(other, torch.Tensor) else other
        if not isinstance(device, str | int | torch.device) or not _is_cuda(device):
            return function(tensor, *args, **kwargs)
        dtype = other.dtype if isinstance(other, torch.Tensor) else kwargs.get("dtype", next(iter(args[1:]), None))
        if tensor.device.type == "cuda":
            return function(tensor, dtype or tensor.dtype, copy=kwargs.get("copy", False))
        return SimulatedTensor(function(tensor.detach(), dtype or tensor.dtype, copy=True))

    return to
