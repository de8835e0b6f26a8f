"""TorchBatch: batches as tensors of PyTorch, on any of its devices."""

import reprlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import accumulate
from typing import Any

import numpy as np

from obscodec.buffers.field import Array
from obscodec.errors import BackendUnavailable, SpecError
from obscodec.installing import optional
from obscodec.layout import is_common
from obscodec.stores import Store, new_batch

_INSTALL = "install one with CUDA as https://pytorch.org/get-started/locally says"
_SMALL_NBYTES = 1 << 16  # of an array that is copied to a GPU with others
_ALIGNMENT = 16  # of what is copied to a GPU together


class TorchBatch:
    """Makes the arrays of a batch, and tensors of them, on a device of PyTorch, or of its name.

    For a CUDA device, tensors are decoded into page-locked memory, and copied in the background, on the current stream.
    """

    def __init__(self, device: object) -> None:
        self._torch = torch = optional("torch", "tensors need")
        try:
            self.device = torch.device(device)
        except (RuntimeError, TypeError):
            remedy = "leave it out for arrays of numpy" if "numpy" in repr(device) else "pass 'cpu' or 'cuda'"
            raise SpecError(f"{reprlib.repr(device)} is no device of PyTorch: {remedy}") from None
        try:
            here = torch.empty(0, device=self.device).device
            is_current = here.type == "cuda" and here.index == torch.cuda.current_device()
            self._names = {str(here), "cuda"} if is_current else {str(here)}  # of it, for stores
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            for_cpu = self.device.type == "cuda" and not torch.backends.cuda.is_built()
            remedy = f". This PyTorch is for the CPU only: {_INSTALL}, or name the device 'cpu'" if for_cpu else ""
            raise BackendUnavailable(f"PyTorch can't use the device {str(device)!r}: {error}{remedy}") from error

    def new_array(self, store: Store, n: int) -> Any:
        """An array ``[n, *shape]`` to decode tensors of a store into."""
        torch, layout = self._torch, store.layout
        if self.device.type != "cuda" or store.device not in {"cpu", *self._names}:
            return new_batch(store, n)
        if store.device != "cpu":
            return torch.empty((n, *layout.shape), dtype=_dtype_of(layout.dtype), device=self.device)
        return layout.tensors(torch.empty((n, layout.nbytes), dtype=torch.uint8, device="cpu", pin_memory=True).numpy())

    def tensor(self, array: Any) -> Any:
        """What :meth:`new_array` made, or another array, as a tensor on the device; without a copy on the CPU."""
        if isinstance(array, self._torch.Tensor):
            return array
        if not isinstance(array, np.ndarray):
            return self._torch.as_tensor(array, device=self.device)
        tensor = self._on_cpu(array)
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def tensors(self, arrays: Sequence[Array]) -> list[Any]:
        """Arrays of numpy as tensors on the device; for a GPU in one piece of memory, which one copy brings there."""
        if self.device.type != "cuda":
            return [self._on_cpu(array).to(self.device) for array in arrays]
        dtypes = [_dtype_of(array.dtype) for array in arrays]
        *begins, end = accumulate([-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays], initial=0)
        pinned = self._torch.empty(end, dtype=self._torch.uint8, device="cpu", pin_memory=True)
        host = pinned.numpy()
        for array, begin in zip(arrays, begins, strict=True):
            host[begin : begin + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        there, parts = pinned.to(self.device, non_blocking=True), []
        for array, dtype, begin in zip(arrays, dtypes, begins, strict=True):
            part = there[begin : begin + array.nbytes].view(dtype).view(array.shape)
            parts.append(part.data)  # a change of one is none of the others for autograd
        return parts

    def batch(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """All arrays of a batch as tensors on the device, small ones by :meth:`tensors`."""
        small = [name for name, x in arrays.items() if isinstance(x, np.ndarray) and x.nbytes < _SMALL_NBYTES]
        tensors = dict(zip(small, self.tensors([arrays[name] for name in small]) if small else [], strict=True))
        return {name: tensors[name] if name in tensors else self.tensor(x) for name, x in arrays.items()}

    def _on_cpu(self, array: Array) -> Any:
        if array.dtype.kind in "mM" or is_common(array.dtype):
            return self._torch.from_numpy(array)  # which refuses times
        return self._torch.from_numpy(array.view(f"i{array.dtype.itemsize}")).view(_dtype_of(array.dtype))


@cache
def _dtype_of(dtype: np.dtype[Any]) -> Any:
    """The dtype of PyTorch of the same name; TypeError or AttributeError if it has none."""
    torch = import_module("torch")
    if dtype.kind in "mM" or is_common(dtype):
        return torch.from_numpy(np.empty(0, dtype)).dtype
    return getattr(torch, dtype.name)
