"""``delta-rle`` on a device."""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from obscodec import ShapeError

from obscodec_cupy.codecs.codec import MOST_BLOCKS, MOST_THREADS, CudaCodec, n_threads
from obscodec_cupy.codecs.delta_decode import DeltaDecode
from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Kernel
from obscodec_cupy.device.segments import Located

MEASURE: Final = Kernel("delta_encode.cu", "delta_measure")
PLACE: Final = Kernel("delta_encode.cu", "delta_place")
WRITE: Final = Kernel("delta_encode.cu", "delta_write")
KERNELS: Final = (MEASURE, PLACE, WRITE)


@dataclass(frozen=True)
class CudaDeltaRle(CudaCodec):
    """Delta and run-length coding along the first axis, byte by byte. See ``docs/formats/delta-rle.md``.

    Building one waits until its reference frames, which are its dictionary, are on the device.
    """

    _references: DeviceArray = field(init=False, repr=False, compare=False)
    _decoder: DeltaDecode = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_decoder", DeltaDecode(self.on, self.n_frames, self.frame_nbytes))
        known = np.frombuffer(bytes(self.frame_nbytes) + self.dictionary, np.uint8)
        references = known.reshape(1 + len(self.dictionary) // max(1, self.frame_nbytes), self.frame_nbytes)
        object.__setattr__(self, "_references", self.on.upload(references))
        self.on.synchronize()  # whichever stream is current at a call then

    @property
    def n_frames(self) -> int:
        """Frames of an item: its first axis; one for a scalar, none for an item without bytes."""
        return self.layout.nbytes // self.frame_nbytes if self.frame_nbytes else 0

    @property
    def frame_nbytes(self) -> int:
        """Bytes of a frame; none if the item has none, however long its other axes are."""
        return math.prod(self.layout.shape[1:]) * self.layout.dtype.itemsize if self.layout.nbytes else 0

    def _encode(self, items: DeviceArray, buffer: DeviceArray, offsets: DeviceArray, lengths: DeviceArray) -> None:
        n, n_frames, nbytes = len(items), np.uint32(self.n_frames), np.uint32(self.frame_nbytes)
        n_patches = n * self.n_frames
        if n_patches > MOST_BLOCKS:
            raise ShapeError(f"a batch on a device has at most {MOST_BLOCKS:,} frames, got {n_patches:,}: split it")
        sizes = self.on.empty((n_patches, 3), np.uint32)
        heads = self.on.empty((n, 2), np.uint32)
        frames, references, patches, blocks = map(self.address, (items, self._references, sizes, heads))
        threads = n_threads(self.frame_nbytes)
        measured = frames, nbytes, n_frames, references, np.uint32(len(self._references)), patches, blocks
        self.on.launch(MEASURE, n_patches, threads, *measured)
        self.on.launch(PLACE, n, MOST_THREADS, n_frames, patches, blocks, self.address(lengths))
        self._place(lengths, offsets)
        placed = references, patches, blocks, self.address(offsets), self.address(buffer)
        self.on.launch(WRITE, max(n, n_patches), threads, frames, nbytes, n_frames, *placed)
        self.on.keep(self._references)  # which may have come from another stream

    def _decode(self, streams: Located, items: DeviceArray, failure: np.uint64) -> None:
        n = len(items)
        n_scratch = self._decoder.scratch_nbytes(n)
        scratch = self.on.empty((n_scratch,), np.uint8) if n_scratch else None
        self._decoder.launch(streams, n, self._references, items, failure, scratch)
        self.on.keep(self._references)  # which may have come from another stream
