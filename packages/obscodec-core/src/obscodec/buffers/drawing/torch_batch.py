"""TorchBatch: batches as tensors of PyTorch, on any of its devices."""

from importlib import import_module
from typing import Any

import numpy as np

from obscodec.buffers.field import Array
from obscodec.errors import BackendUnavailable, MissingPackage
from obscodec.installing import install_command
from obscodec.layout import is_common
from obscodec.stores import Store, new_batch


class TorchBatch:
    """Makes the arrays of a batch, and tensors of them, on a device of PyTorch, or of its name.

    For a CUDA device, tensors are decoded into page-locked memory, and copied in the background, on the current stream.
    """

    def __init__(self, device: object) -> None:
        try:
            self._torch = torch = import_module("torch")
        except ModuleNotFoundError:
            raise MissingPackage(f"tensors need PyTorch: {install_command('torch')}") from None
        try:
            self.device = torch.device(device)
            torch.empty(0, device=self.device)
        except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
            raise BackendUnavailable(f"PyTorch can't use the device {device!r}: {error}") from error

    def new_array(self, store: Store, n: int) -> Any:
        """An array ``[n, *shape]`` to decode tensors of a store into."""
        if store.device != "cpu" or self.device.type != "cuda":
            return new_batch(store, n)
        pinned = self._torch.empty((n, store.layout.nbytes), dtype=self._torch.uint8, pin_memory=True)
        return store.layout.tensors(pinned.numpy())

    def tensor(self, array: Any) -> Any:
        """A numpy array, or an array in the memory of a GPU, as a tensor on the device; without a copy on the CPU."""
        torch = self._torch
        if isinstance(array, torch.Tensor):
            return array
        if not isinstance(array, np.ndarray):
            return torch.as_tensor(array, device=self.device)
        tensor = self._on_cpu(array)
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def _on_cpu(self, array: Array) -> Any:
        if array.dtype.kind in "mM" or is_common(array.dtype):
            return self._torch.from_numpy(array)  # which refuses times
        same = getattr(self._torch, array.dtype.name)
        return self._torch.from_numpy(array.view(f"i{array.dtype.itemsize}")).view(same)
