"""TensorCoder: encodes and decodes the tensors of a store on a device, each tensor on its own."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any

from obscodec.heap import Places, Streams


class TensorCoder(ABC):
    """Codes tensors in the memory of a device, for one store, which holds the lock of its heap meanwhile.

    ``tensors`` and ``out`` are arrays ``[n, *shape]`` of any library in the memory of the device. Both methods raise
    DTypeError for another dtype or other memory, ShapeError for another shape, and HeapFull if the device has not
    enough memory to work in.
    """

    @abstractmethod
    def encoded(self, tensors: Any) -> AbstractContextManager[Streams]:
        """The streams of tensors. Waits until the device knows the length of each.

        The caller puts the streams into the heap inside this context, which makes the stream of the tensors the current
        one.
        """

    @abstractmethod
    def decode(self, places: Places, out: Any) -> None:
        """Decode streams into ``out``, which must be contiguous, in the order of the current stream, without waiting.

        Where an address is 0, the tensor is zeros.

        Raises:
            CorruptStream: an earlier call found a damaged stream; the tensors that it wrote are of no use.
        """
