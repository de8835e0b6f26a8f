"""DeviceSegments: many streams in one buffer in the memory of a device."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from obscodec import CorruptStream
from obscodec.segments import Segments

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSegments:
    """``n`` streams: stream ``i`` is ``buffer[offsets[i] : offsets[i] + lengths[i]]``.

    All three arrays lie on the device, so that nothing waits for an encoder to say how long its streams are. They may
    be of any library with DLPack.
    """

    buffer: DeviceArray  # u8[:]
    offsets: DeviceArray  # i64[n], the first byte of each stream
    lengths: DeviceArray  # i64[n], its bytes
    device: Device
    written: Any = None  # a mark when they are there, if another stream than the current one may write them

    @classmethod
    def upload(cls, device: Device, segments: Segments) -> Self:
        """A copy of streams of the host, queued on the current stream.

        Raises:
            CorruptStream: a stream lies outside of its buffer.
            HeapFull: the device has not enough free memory.
        """
        if not segments.inside().all():
            raise CorruptStream("a stream lies outside of its buffer")
        buffer = np.empty(segments.nbytes, np.uint8)
        segments.pack(buffer)
        packed = Segments.packed(buffer, segments.lengths)
        return cls(device.upload(buffer), device.upload(packed.offsets), device.upload(packed.lengths), device)

    def download(self) -> Segments:
        """A copy on the host; waits until they are written, and for the current stream."""
        if self.written is not None:
            self.written.synchronize()
        views = map(self.device.view, (self.offsets, self.lengths))
        offsets, lengths = (self.device.download(view).astype(np.int64) for view in views)
        end = int((offsets + lengths).max(initial=0))  # the rest of the buffer has no streams
        buffer = self.device.download(self.device.view(self.buffer)[:end]).view(np.uint8)
        return Segments((buffer,), np.zeros(len(lengths), np.int64), offsets, lengths)

    def __len__(self) -> int:
        return len(self.lengths)
