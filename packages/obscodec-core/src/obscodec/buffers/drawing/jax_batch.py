"""JaxBatch: batches as arrays of JAX, and the choice of a library for them."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from obscodec.buffers.drawing.torch_batch import TorchBatch
from obscodec.errors import MissingPackage
from obscodec.installing import install_command
from obscodec.layout import is_common
from obscodec.stores import new_batch

_WIDE_NBYTES = 8  # of numbers that JAX makes narrower, unless it is told to keep them


class JaxBatch:
    """Makes arrays of JAX of the arrays of a batch, on its default device: on the CPU over their memory if it can."""

    new_array = staticmethod(new_batch)

    def __init__(self) -> None:
        try:
            self._jax = import_module("jax")
        except ModuleNotFoundError:
            raise MissingPackage(f"arrays of JAX need JAX: {install_command('jax')}") from None
        self._on_cpu = self._jax.default_backend() == "cpu"

    def tensor(self, array: Any) -> Any:
        """An array of numpy, or of a GPU, as one of JAX. Its memory is that of ``array`` where DLPack allows it."""
        if isinstance(array, self._jax.Array):
            return array
        dtype = array.dtype
        if isinstance(array, np.ndarray) and not (self._on_cpu and is_common(dtype) and dtype.itemsize < _WIDE_NBYTES):
            return self._jax.numpy.asarray(array)
        return self._jax.dlpack.from_dlpack(array)

    def batch(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """All arrays of a batch."""
        return {name: self.tensor(array) for name, array in arrays.items()}


def batches_to(to: object) -> JaxBatch | TorchBatch | None:
    """What makes batches for the argument ``to`` of ``RingBuffer.sample``; None for arrays as they are."""
    if to is None:
        return None
    return JaxBatch() if isinstance(to, str) and to == "jax" else TorchBatch(to)
