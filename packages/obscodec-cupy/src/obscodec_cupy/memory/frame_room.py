"""Where a thread block keeps the frame that it works on: in its shared memory, or in a scratch if it is too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from obscodec import ShapeError

from obscodec_cupy.device.device import Device

MAX_FRAME_NBYTES: Final = 1 << 30
_STATIC_NBYTES: Final = 40 << 10  # more shared memory than the kernels take besides the frame
_SCRATCH_BLOCKS: Final = 1024  # thread blocks that work at a time if frames are in a scratch


@dataclass(frozen=True, slots=True)
class FrameScratch:
    """Room for the frame of each thread block.

    Attributes:
        frame_nbytes: bytes of a frame.
        shared: whether that is in shared memory.
    """

    frame_nbytes: int
    shared: bool

    @classmethod
    def on(cls, device: Device, frame_nbytes: int) -> FrameScratch:
        """For frames of ``frame_nbytes`` on a device.

        Raises:
            ShapeError: the kernels read no frames that large.
        """
        if frame_nbytes > MAX_FRAME_NBYTES:
            raise ShapeError(
                f"frames of at most {MAX_FRAME_NBYTES} bytes are decoded on {device.name}, got {frame_nbytes}"
            )
        return cls(frame_nbytes, _rounded(frame_nbytes) + _STATIC_NBYTES <= device.shared_nbytes)

    @property
    def shared_nbytes(self) -> int:
        """Dynamic shared memory of a launch."""
        return _rounded(self.frame_nbytes) if self.shared else 0

    def n_blocks(self, n: int) -> int:
        """How many thread blocks to launch for ``n`` pieces of work."""
        return n if self.shared else min(n, _SCRATCH_BLOCKS)

    def scratch_nbytes(self, n: int) -> int:
        """Bytes of device memory that a launch for ``n`` pieces of work takes, aligned to 16; 0 for none."""
        return 0 if self.shared else self.n_blocks(n) * _rounded(self.frame_nbytes)


def _rounded(nbytes: int) -> int:
    return -(-nbytes // 16) * 16
