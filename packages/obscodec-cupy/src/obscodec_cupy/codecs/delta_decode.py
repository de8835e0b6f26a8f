"""DeltaDecode: streams of ``delta-rle`` as items, in one launch. See ``kernels/delta_decode.cu``."""

from typing import Final

import numpy as np

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device, Kernel
from obscodec_cupy.device.segments import Located
from obscodec_cupy.memory.frame_room import FrameScratch

THREADS: Final = 128


class DeltaDecode:
    """Decodes items of ``n_frames`` frames of ``frame_nbytes`` bytes; raises ShapeError if these are over 1 GiB."""

    def __init__(self, device: Device, n_frames: int, frame_nbytes: int) -> None:
        self.device = device
        self.n_frames = n_frames
        self._room = FrameScratch.on(device, frame_nbytes)

    def scratch_nbytes(self, n: int) -> int:
        """Bytes of device memory that :meth:`launch` works in for ``n`` items; 0 unless frames are very large."""
        return self._room.scratch_nbytes(n)

    def launch(
        self,
        streams: Located,
        n: int,
        references: DeviceArray,
        out: DeviceArray,
        failure: np.uint64,
        scratch: DeviceArray | None = None,
    ) -> None:
        """Queue the decoding of ``n`` streams. Nothing is allocated and nothing is waited for.

        Args:
            streams: where they are.
            n: how many.
            references: ``u8[n_references, frame_nbytes]``, the first one zeros; aligned to 16 bytes.
            out: of ``n`` items, contiguous; filled. Of a damaged stream's item, only some.
            failure: the address of a word that was 0, see ``report`` in ``kernels/basics.cuh``; of items.
            scratch: ``u8[scratch_nbytes(n)]``, None if that is 0.
        """
        address = self.device.address
        known = np.uint64(address(references)), np.uint32(len(references)), np.uint64(address(out))
        room = np.uint64(0 if scratch is None else address(scratch))
        kernel = _kernel(self.n_frames, self._room)
        shared_nbytes = self._room.shared_nbytes
        self.device.launch(kernel, n, THREADS, *streams, *known, failure, room, shared_nbytes=shared_nbytes)


def _kernel(n_frames: int, room: FrameScratch) -> Kernel:
    defines = {
        "THREADS": THREADS,
        "N_FRAMES": n_frames,
        "FRAME_NBYTES": room.frame_nbytes,
        "FRAME_IN_SHARED": int(room.shared),
    }
    return Kernel("delta_decode.cu", "delta_decode", tuple(defines.items()))


# Such as tests compile for every architecture.
_ROOMS: Final = (16, FrameScratch(7056, True)), (7, FrameScratch(999, False)), (0, FrameScratch(0, True))
KERNELS: Final = tuple(_kernel(n_frames, room) for n_frames, room in _ROOMS)
