"""Where a thread block keeps the frame that it works on: in its shared memory, or in a scratch if it is too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from obscodec import ShapeError

from obscodec_cupy.device.device import Device

MAX_FRAME_NBYTES: Final = 1 << 30
STATIC_NBYTES: Final = 35 << 10  # more shared memory than the kernels take besides the frame


@dataclass(frozen=True, slots=True)
class FrameScratch:
    """Room for the frame of each thread block: ``frame_nbytes`` of it, in shared memory or not."""

    frame_nbytes: int
    shared: bool

    @classmethod
    def on(cls, device: Device, frame_nbytes: int) -> FrameScratch:
        """For frames of ``frame_nbytes`` on a device; raises ShapeError if the kernels read no frames that large."""
        if frame_nbytes > MAX_FRAME_NBYTES:
            raise ShapeError(
                f"frames of at most {MAX_FRAME_NBYTES} bytes are decoded on {device.name}, got {frame_nbytes}"
            )
        return cls(frame_nbytes, frame_nbytes + 15 + STATIC_NBYTES <= device.shared_nbytes)

    @property
    def shared_nbytes(self) -> int:
        """Dynamic shared memory of a launch."""
        return self._rounded if self.shared else 0

    def scratch_nbytes(self, n: int) -> int:
        """Bytes of device memory, aligned to 16, that a launch of ``n`` thread blocks works in; 0 for none."""
        return 0 if self.shared else n * self._rounded

    @property
    def _rounded(self) -> int:
        return -(-self.frame_nbytes // 16) * 16
