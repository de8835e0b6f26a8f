"""DeviceSegments: many streams in one buffer in the memory of a device."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from obscodec import CorruptStream
from obscodec.segments import Segments

from obscodec_cupy.device.array import DeviceArray, checked
from obscodec_cupy.device.device import Device


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
        if not segments.inside().all():
            raise CorruptStream("a stream lies outside of its buffer")
        buffer = np.empty(segments.nbytes, np.uint8)
        segments.pack(buffer)
        packed = Segments.packed(buffer, segments.lengths)
        return cls(device.upload(buffer), device.upload(packed.offsets), device.upload(packed.lengths), device)

    def download(self) -> Segments:
        """A copy on the host; waits for the current stream."""
        views = map(self.device.view, (self.offsets, self.lengths))
        offsets, lengths = (self.device.download(view).astype(np.int64) for view in views)
        end = int((offsets + lengths).max(initial=0))  # the rest of the buffer has no streams
        buffer = self.device.download(self.device.view(self.buffer)[:end]).view(np.uint8)
        return Segments((buffer,), np.zeros(len(lengths), np.int64), offsets, lengths)

    def viewed(self, device: Device) -> Self:
        """These streams as views on a device, fit for kernels.

        Raises:
            DTypeError: an array is not on this device, or has another dtype.
            ShapeError: an array is not contiguous, or there are not as many offsets as lengths.
        """
        buffer, offsets, lengths = device.view(self.buffer), device.view(self.offsets), device.view(self.lengths)
        checked("buffer", buffer, (buffer.size,), "uint8")
        checked("offsets", offsets, (lengths.size,), "int64")
        checked("lengths", lengths, (lengths.size,), "int64")
        return type(self)(buffer, offsets, lengths, device)

    def __len__(self) -> int:
        return len(self.lengths)
