"""TensorCoder: what encodes and decodes the tensors of a store on a device, each on its own."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any

from obscodec.heap import Places, Streams


class TensorCoder(ABC):
    """Codes tensors in the memory of a device, for the heap of one store, which holds the lock of that heap."""

    @abstractmethod
    def encoded(self, tensors: Any) -> AbstractContextManager[Streams]:
        """The streams of tensors, to put into the heap within this context, in which their stream is the current one.

        Waits until the device has found out how long they are.

        Args:
            tensors: ``[n, *shape]`` in the memory of the device, an array of any library.

        Raises:
            DTypeError: they have another dtype, or are in other memory.
            ShapeError: they have another shape.
            HeapFull: the device has not enough memory to work in.
        """

    @abstractmethod
    def decode(self, places: Places, out: Any) -> None:
        """Decode streams, in the order of the current stream. Nothing waits for that.

        Args:
            places: of ``n`` streams; where an address is 0, the tensor is that of zeros.
            out: ``[n, *shape]`` in the memory of the device, an array of any library; contiguous.

        Raises:
            DTypeError: ``out`` has another dtype, or is in other memory.
            ShapeError: it has another shape.
            CorruptStream: an earlier call came upon a damaged stream; what it wrote is of no use.
            HeapFull: the device has not enough memory to work in.
        """
