"""Kernels to compile for every architecture: all of the package, in forms that differ much."""

import numpy as np
from obscodec import FrameStack, Layout
from obscodec_cupy.codecs.codec import MEASURE, OFFSETS, PLACE, RLE_DECODE, WRITE, delta_decode
from obscodec_cupy.device.writes import SCATTER
from obscodec_cupy.frames.gather import MORE_THREADS, THREADS, form_of, kernel_of

_IMAGE, _COLOURS, _HUGE = (Layout(shape, np.uint8) for shape in [(4, 84, 84), (64, 64, 12), (480, 640, 3)])
_FORMS = (
    *(form_of(_IMAGE, 16, FrameStack(4), dtype=dtype) for dtype in (None, "float16", "float32")),
    form_of(_IMAGE, 16, FrameStack(4), shifted_axes=(1, 2)),
    form_of(_COLOURS, 16, FrameStack(4, -1), dtype="float16", shifted_axes=(0, 1)),
    form_of(_IMAGE, 16, FrameStack(4), codec="delta-rle|lz4"),
    form_of(_COLOURS, 16, FrameStack(4, -1), codec="delta-rle|lz4:9", dtype="float16", shifted_axes=(0, 1)),
    form_of(_IMAGE, 16, FrameStack(4), codec="raw"),
    form_of(_COLOURS, 1, FrameStack(4, -1), codec="rle", dtype="float16", shifted_axes=(0, 1)),
    form_of(_HUGE, 16, dtype="float32"),
    form_of(_HUGE, 16, codec="delta-rle|lz4"),
)
GATHERS = [
    kernel_of(
        form,
        [],
        in_shared=(nbytes := form["FRAME_NBYTES"]) < 1 << 16,
        jumps=nbytes <= 1 << 14 and form["CODEC"] != 2,
        threads=threads,
        parts=2,
    )
    for form in _FORMS
    for threads in (THREADS, MORE_THREADS)
]
_ROOMS = (16, 7056, True), (7, 999, False), (0, 0, True)
DECODERS = [*RLE_DECODE.values(), *(delta_decode(n, nbytes, in_shared=shared) for n, nbytes, shared in _ROOMS)]
ENCODERS = [made for kernels in (MEASURE, PLACE, OFFSETS, WRITE) for made in kernels.values()]
KERNELS = [*GATHERS, *DECODERS, *ENCODERS, SCATTER]
