"""ConvertedBatch: batches of what a function makes of arrays, such as arrays of JAX; which batches a call returns."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from obscodec.arguments import kind_of
from obscodec.buffers.drawing.torch_batch import TorchBatch
from obscodec.errors import DTypeError, SpecError
from obscodec.installing import optional
from obscodec.layout import is_common
from obscodec.stores import new_batch

_WIDE_NBYTES = 8  # of numbers that JAX makes narrower, unless it is told to keep them


class ConvertedBatch:
    """Calls a function with each array of a batch."""

    new_array = staticmethod(new_batch)

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert

    def batch(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """All arrays of a batch."""
        return {name: self._convert(array) for name, array in arrays.items()}


def batches_to(to: object, convert: object = None) -> ConvertedBatch | TorchBatch:
    """What makes batches for these arguments of ``RingBuffer.sample``."""
    if to is convert is None:
        return ConvertedBatch(lambda array: array)
    if convert is None:
        return ConvertedBatch(_converter_to_jax()) if isinstance(to, str) and to == "jax" else TorchBatch(to)
    if not callable(convert):
        raise DTypeError(f"convert must be a function, such as torch.from_numpy, got {kind_of(convert)}")
    if to is not None:
        raise SpecError("to returns tensors of PyTorch or arrays of JAX, convert whatever you like: pass one of them")
    return ConvertedBatch(convert)


def _converter_to_jax() -> Callable[[Any], Any]:
    """What makes arrays of JAX on its default device, with the memory of arrays that are there if DLPack allows it."""
    jax = optional("jax", "arrays of JAX need")
    on_cpu = jax.default_backend() == "cpu"

    def convert(array: Any) -> Any:
        dtype = array.dtype
        if isinstance(array, np.ndarray) and not (on_cpu and is_common(dtype) and dtype.itemsize < _WIDE_NBYTES):
            return jax.numpy.asarray(array)
        return array if isinstance(array, jax.Array) else jax.dlpack.from_dlpack(array)

    return convert
