"""Kernels to compile for every architecture: all of the package, in forms that differ much."""

from typing import Any

import numpy as np
from cuda_on_cpu.device import SimulatedDevice
from obscodec import FrameStack, Layout
from obscodec_cupy.codecs.codec import MEASURE, OFFSETS, PLACE, RLE_DECODE, WRITE, delta_decode
from obscodec_cupy.device.writes import SCATTER
from obscodec_cupy.frames.gather import Gather

_IMAGE, _COLOURS, _HUGE = (Layout(shape, np.uint8) for shape in [(4, 84, 84), (64, 64, 12), (480, 640, 3)])
_READ: list[tuple[Layout, int, dict[str, Any]]] = [
    *((_IMAGE, 16, {"frame_stack": FrameStack(4), "dtype": dtype}) for dtype in (None, "float16", "float32")),
    (_IMAGE, 16, {"frame_stack": FrameStack(4), "shifted_axes": (1, 2)}),
    (_COLOURS, 16, {"frame_stack": FrameStack(4, -1), "dtype": "float16", "shifted_axes": (0, 1)}),
    (_IMAGE, 16, {"frame_stack": FrameStack(4), "codec": "delta-rle|lz4"}),
    (
        _COLOURS,
        16,
        {"frame_stack": FrameStack(4, -1), "codec": "delta-rle|lz4:9", "dtype": "float16", "shifted_axes": (0, 1)},
    ),
    (_IMAGE, 16, {"frame_stack": FrameStack(4), "codec": "raw"}),
    (_COLOURS, 1, {"frame_stack": FrameStack(4, -1), "codec": "rle", "dtype": "float16", "shifted_axes": (0, 1)}),
    (_HUGE, 16, {"dtype": "float32"}),
    (_HUGE, 16, {"codec": "delta-rle|lz4"}),
]
# Bytes of shared memory of a thread block, as the oldest cards have them and newer ones; and samples of a batch.
_CARDS = {64 << 10: (256,), 99 << 10: (32, 256, 1024)}
GATHERS = [
    *dict.fromkeys(
        Gather(card, layout, block_frames, **options)._kernel(n, [])[0]
        for nbytes, samples in _CARDS.items()
        for card in [SimulatedDevice(shared_nbytes=nbytes)]
        for layout, block_frames, options in _READ
        for n in samples
    )
]
_ROOMS = (16, 7056, True), (7, 999, False), (0, 0, True)
DECODERS = [*RLE_DECODE.values(), *(delta_decode(n, nbytes, in_shared=shared) for n, nbytes, shared in _ROOMS)]
ENCODERS = [made for kernels in (MEASURE, PLACE, OFFSETS, WRITE) for made in kernels.values()]
KERNELS = [*GATHERS, *DECODERS, *ENCODERS, SCATTER]
