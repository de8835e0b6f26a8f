"""The backend ``"cuda"`` of obscodec."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from obscodec import FrameStack, Layout, LayoutError, TensorArray
from obscodec import codec as cpu_codec
from obscodec.devices import Backend, FrameReader
from obscodec.frames import WatchedLog
from obscodec.heap import Allocate

from obscodec_cupy.codecs.codec import CudaCodec
from obscodec_cupy.device import opened
from obscodec_cupy.device.array import checked
from obscodec_cupy.frames.batch_reader import BatchReader
from obscodec_cupy.frames.frame_reader import CudaFrameReader
from obscodec_cupy.frames.gather import form_of

_FRAMES: Final = re.compile(r"raw|delta-rle(\|lz4(:-?\d+)?)?")  # the codecs of frames that kernels/gather.cu decodes


class CudaBackend(Backend):
    """NVIDIA GPUs, through CuPy."""

    def codec(self, spec: str, layout: Layout, device: str) -> Any:
        """See ``Backend.codec``; the codecs are ``rle`` and ``delta-rle``."""
        return CudaCodec(cpu_codec(spec, layout), opened.device(device))

    def empty(self, device: str, n: int, layout: Layout) -> Any:
        """See ``Backend.empty``."""
        return opened.device(device).empty((n, *layout.shape), layout.dtype)

    def check(self, device: str, *arrays: object) -> None:
        """See ``Backend.check``."""
        there = opened.device(device)
        for array in arrays:
            there.view(array)

    def pinned(self, device: str) -> Allocate:
        """See ``Backend.pinned``."""
        return lambda nbytes: opened.device(device).pinned(nbytes)

    def fill(
        self, device: str, out: Any, n: int, layout: Layout, decode: Callable[[npt.NDArray[np.generic]], None]
    ) -> None:
        """See ``Backend.fill``."""
        there = opened.device(device)
        with there.on_stream_of(out):
            target = checked("out", there.writable_view("out", out), (n, *layout.shape), layout.dtype.name)
            if target.nbytes:
                staged = there.staging(target.nbytes)
                decode(staged.view(layout.dtype).reshape(target.shape))
                there.write_from(staged, target)

    def decodes(self, spec: str, block_frames: int) -> bool:
        """See ``Backend.decodes``."""
        return bool(_FRAMES.fullmatch(spec)) or (spec == "rle" and block_frames == 1)

    def frame_reader(
        self, device: str, heap: str, layout: Layout, frame_stack: FrameStack | None, log: WatchedLog
    ) -> FrameReader | None:
        """See ``Backend.frame_reader``."""
        try:
            form_of(layout, log.block_frames, frame_stack, log.spec)
        except LayoutError:
            return None
        return CudaFrameReader(opened.device(device), layout, frame_stack, log, pinned=heap == "pinned")

    def batch_reader(self, arrays: Sequence[TensorArray]) -> BatchReader:
        """See ``Backend.batch_reader``."""
        return BatchReader(arrays)

    def download(self, device: str, x: Any) -> npt.NDArray[np.generic]:
        """See ``Backend.download``."""
        there = opened.device(device)
        with there.on_stream_of(x):
            return there.download(there.view(x))
