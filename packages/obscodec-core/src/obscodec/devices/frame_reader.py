"""FrameReader: decodes the frames of a store on a device."""

from abc import ABC, abstractmethod
from typing import Any

from obscodec.layout import FrameStack
from obscodec.segments import Ints


class FrameReader(ABC):
    """Decodes the frames of one FrameLog on a device, from a copy of the log that it keeps there.

    Safe to use from several threads. Work is queued on the current stream of the library of an array; the work of one
    call begins when that of the call before is done, on whichever streams the two are.
    """

    @abstractmethod
    def takes(self, stack: FrameStack) -> bool:
        """Whether :meth:`read` reads such stacks."""

    @abstractmethod
    def read(self, ids: Ints, out: Any, *, frames: Ints, stack: FrameStack | None = None) -> None:
        """Decode frames, or stacks of frames.

        Args:
            ids: ``i64[n]`` on the host, of frames or stacks.
            out: ``[n, *shape]`` in the memory of the device, an array of any library; contiguous.
            frames: ``i64[m]`` on the host, the ids of all frames that are needed.
            stack: how observations are made of frames, None to read frames.

        Raises:
            SlotError: an id is of no frame.
            DTypeError: ``out`` has another dtype, is read-only, or is in other memory.
            ShapeError: ``out`` has another shape.
            HeapFull: the device has not enough memory for the copy.
            CorruptStream: an earlier call found a damaged block; the frames that it wrote are of no use.
        """
