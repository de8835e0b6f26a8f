"""FrameReader: decodes the tensors of a store on a device."""

from abc import ABC, abstractmethod
from typing import Any

from obscodec.segments import Ints


class FrameReader(ABC):
    """Decodes the tensors of one FrameStore on a device, from a copy of the log that it keeps there.

    Safe to use from several threads. Work is queued on the current stream of the library of an array; the work of one
    call begins when that of the call before is done, on whichever streams the two are.
    """

    @abstractmethod
    def read(self, ids: Ints, out: Any) -> None:
        """Decode tensors.

        Args:
            ids: ``i64[n]`` on the host.
            out: ``[n, *shape]`` in the memory of the device, an array of any library; contiguous.

        Raises:
            SlotError: an id is of no tensor.
            DTypeError: ``out`` has another dtype, is read-only, or is in other memory.
            ShapeError: ``out`` has another shape.
            HeapFull: the device has not enough memory for the copy.
            CorruptStream: an earlier call found a damaged block; the tensors that it wrote are of no use.
        """
