"""GatherForm: what the kernel that gathers has to know when it is compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from obscodec import DTypeError, FrameStack, Layout, ShapeError

from obscodec_cupy.codecs.codec import element_nbytes

THREADS: Final = 128
MAX_DEPTH: Final = 16
MAX_ITEM_NBYTES: Final = 16

_CODECS: Final = {"delta-rle": 0, "raw": 1, "rle": 2}  # see kernels/gather.cu
_CONVERTED_NBYTES: Final = {"float16": 2, "bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class GatherForm:
    """The form of the tensors of a store, and of what is written of them.

    Attributes:
        frame_nbytes: bytes of a frame.
        item_nbytes: bytes of an element, and ``out_nbytes`` of what is written of it.
        defines: the macros of ``kernels/gather.cu`` that follow from the form alone.
    """

    frame_nbytes: int
    item_nbytes: int
    out_nbytes: int
    defines: dict[str, int]

    @classmethod
    def of(
        cls,
        layout: Layout,
        block_frames: int,
        frame_stack: FrameStack | None = None,
        *,
        codec: str = "delta-rle",
        dtype: str | None = None,
        shifted_axes: tuple[int, int] | None = None,
    ) -> GatherForm:
        """See ``Gather``."""
        depth, frame = (frame_stack.depth, frame_stack.frame_layout(layout)) if frame_stack else (1, layout)
        item_nbytes = layout.dtype.itemsize
        if not (depth <= MAX_DEPTH and frame.nbytes):
            raise ShapeError(
                f"stacks of at most {MAX_DEPTH} frames, not empty, are read on a device, "
                f"got {depth} of {frame.nbytes} bytes"
            )
        if dtype is not None and (dtype not in _CONVERTED_NBYTES or layout.dtype != np.uint8):
            raise DTypeError(f"uint8 is converted to {', '.join(_CONVERTED_NBYTES)}, got {layout.dtype} to {dtype}")
        defines = {
            "THREADS": THREADS,
            "FRAME_NBYTES": frame.nbytes,
            "BLOCK_FRAMES": block_frames,
            "DEPTH": depth,
            "CODEC": _CODECS[codec],
            "ELEMENT_NBYTES": element_nbytes(layout),
            "PIXELS": math.prod(frame.shape[1:]) if frame_stack and frame_stack.axis == -1 else 1,
        }
        if shifted_axes is not None:
            defines |= _rows_and_columns(layout, frame, shifted_axes, frame_stack)
        if item_nbytes > MAX_ITEM_NBYTES and (defines["PIXELS"] > 1 or shifted_axes is not None):
            raise DTypeError(
                f"elements of at most {MAX_ITEM_NBYTES} bytes are put in another order on a device, got {layout.dtype}"
            )
        return cls(frame.nbytes, item_nbytes, _CONVERTED_NBYTES.get(dtype or "", item_nbytes), defines)

    def units(self, outs: Sequence[int]) -> dict[str, int]:
        """The macros for outputs at the addresses ``outs``: what is moved, and how much is written at once."""
        item_nbytes, out_nbytes, unit_items = self.item_nbytes, self.out_nbytes, 1
        if self.defines["PIXELS"] == 1:
            shifted = "HEIGHT" in self.defines
            unit_nbytes = math.gcd(self.frame_nbytes // item_nbytes * out_nbytes, *outs, 8 if shifted else 16)
            if item_nbytes == out_nbytes and not shifted:
                item_nbytes = out_nbytes = unit_nbytes
            unit_items = max(1, unit_nbytes // out_nbytes)
        return {"ITEM_NBYTES": item_nbytes, "OUT_NBYTES": out_nbytes, "UNIT_ITEMS": unit_items}


def _rows_and_columns(
    layout: Layout, frame: Layout, axes: tuple[int, int], frame_stack: FrameStack | None
) -> dict[str, int]:
    """A frame as planes of rows of columns of pixels."""
    n_axes = len(layout.shape)
    first, second = (axis % n_axes if -n_axes <= axis < n_axes else n_axes for axis in axes)
    stacked = None if frame_stack is None else range(n_axes)[frame_stack.axis]
    if second != first + 1 or second >= n_axes or stacked in (first, second):
        raise ShapeError(
            "rows and columns are two axes that follow each other, along which no frames are stacked, "
            f"got {axes} of shape {layout.shape}"
        )
    if frame_stack is not None and frame_stack.axis == -1:
        first += 1  # the channels of a frame come first
    height, width, *rest = frame.shape[first:]
    return {"HEIGHT": height, "WIDTH": width, "PIXEL_ITEMS": math.prod(rest)}
