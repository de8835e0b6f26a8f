"""``rle`` on a device."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from obscodec import Layout

from obscodec_cupy.codecs.codec import MOST_THREADS, CudaCodec, n_threads
from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Kernel
from obscodec_cupy.device.segments import Located

_NAMES: Final = ("rle_measure", "rle_write", "rle_decode")
_BY_WIDTH: Final = {
    width: tuple(Kernel("rle.cu", name, (("WIDTH", width),)) for name in _NAMES) for width in (1, 2, 4, 8)
}
KERNELS: Final = tuple(kernel for kernels in _BY_WIDTH.values() for kernel in kernels)


def element_nbytes(layout: Layout) -> int:
    """Bytes of what is repeated: the largest power of two that divides those of the dtype, at most 8."""
    itemsize = layout.dtype.itemsize
    return min(itemsize & -itemsize, 8)


@dataclass(frozen=True)
class CudaRle(CudaCodec):
    """Run-length coding of whole elements, of 1, 2, 4 or 8 bytes. See ``docs/formats/rle.md``."""

    @property
    def width(self) -> int:
        """Bytes of an element, see :func:`element_nbytes`."""
        return element_nbytes(self.layout)

    def _encode(self, items: DeviceArray, buffer: DeviceArray, offsets: DeviceArray, lengths: DeviceArray) -> None:
        n, nbytes = len(items), self.layout.nbytes
        run_counts = self.on.empty((n,), np.uint32)
        found = self.address(items), np.uint32(nbytes), self.address(run_counts)
        measure, write, _ = _BY_WIDTH[self.width]
        self.on.launch(measure, n, n_threads(nbytes), *found, self.address(lengths))
        self._place(lengths, offsets)
        placed = self.address(offsets), self.address(lengths), self.address(buffer)
        self.on.launch(write, n, n_threads(nbytes), *found, *placed)

    def _decode(self, streams: Located, items: DeviceArray, failure: np.uint64) -> None:
        size = np.uint32(self.layout.nbytes // self.width)
        decode = _BY_WIDTH[self.width][2]
        self.on.launch(decode, len(items), MOST_THREADS, *streams, self.address(items), size, failure)
