"""DeviceSegments: many streams in one buffer in the memory of a device."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from obscodec import CorruptStream
from obscodec.segments import Segments

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device


class Located(NamedTuple):
    """Where a kernel finds streams, as its arguments.

    Attributes:
        base: the address that the offsets count from; 0 if these are addresses.
        nbytes: how many bytes from there on may be read.
        offsets: the address of ``i64[n]``, the first byte of each stream.
        lengths: the address of ``i64[n]``, its bytes.
    """

    base: np.uint64
    nbytes: np.uint64
    offsets: np.uint64
    lengths: np.uint64


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSegments:
    """``n`` streams: stream ``i`` is ``buffer[offsets[i] : offsets[i] + lengths[i]]``.

    All three arrays lie on the device, so that nothing waits for an encoder to say how long its streams are. They may
    be of any library with DLPack.

    Attributes:
        buffer: ``u8[:]``.
        offsets: ``i64[n]``, the first byte of each stream.
        lengths: ``i64[n]``, its bytes.
        device: where they are.
    """

    buffer: DeviceArray
    offsets: DeviceArray
    lengths: DeviceArray
    device: Device

    @classmethod
    def upload(cls, device: Device, segments: Segments) -> Self:
        """A copy of streams of the host, queued on the current stream.

        Raises:
            CorruptStream: a stream lies outside of its buffer.
            HeapFull: the device has not enough free memory.
        """
        nbytes = np.array([buffer.nbytes for buffer in segments.buffers], np.int64)[segments.which]
        offsets, lengths = segments.offsets, segments.lengths
        if ((offsets < 0) | (lengths < 0) | (offsets > nbytes - lengths)).any():
            raise CorruptStream("a stream lies outside of its buffer")
        buffer = np.empty(segments.nbytes, np.uint8)
        segments.pack(buffer)
        packed = Segments.packed(buffer, lengths)
        return cls(device.upload(buffer), device.upload(packed.offsets), device.upload(packed.lengths), device)

    def download(self) -> Segments:
        """A copy on the host; waits for the current stream."""
        offsets = self.device.download(self.device.view(self.offsets)).astype(np.int64)
        lengths = self.device.download(self.device.view(self.lengths)).astype(np.int64)
        end = int((offsets + lengths).max(initial=0))  # the rest of the buffer has no streams
        buffer = self.device.download(self.device.view(self.buffer)[:end]).view(np.uint8)
        return Segments((buffer,), np.zeros(len(lengths), np.int64), offsets, lengths)

    def __len__(self) -> int:
        return len(self.lengths)
