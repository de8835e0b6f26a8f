"""GatherForm: what the kernel that gathers has to know when it is compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from obscodec import DTypeError, FrameStack, Layout, ShapeError

from obscodec_cupy.codecs.codec import element_nbytes

MAX_DEPTH: Final = 16
MAX_ITEM_NBYTES: Final = 16

# What bytes are converted to: the number of the conversion in convert.cuh, and the bytes of an element.
_CONVERSIONS: Final = {"float16": (1, 2), "bfloat16": (2, 2), "float32": (3, 4)}


@dataclass(frozen=True)
class GatherForm:
    """The form of the tensors of a store, and of what is written of them.

    Attributes:
        frame_nbytes: bytes of a frame.
        defines: the macros of ``kernels/gather.cu`` that follow from it.
        out_item_nbytes: bytes of an element of what is written.
        in_order: whether the elements of a frame are written one behind the other.
    """

    frame_nbytes: int
    defines: dict[str, int]
    out_item_nbytes: int
    in_order: bool

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
        depth = 1 if frame_stack is None else frame_stack.depth
        frame = layout if frame_stack is None else frame_stack.frame_layout(layout)
        item_nbytes = layout.dtype.itemsize
        if not (depth <= MAX_DEPTH and frame.nbytes):
            raise ShapeError(
                f"stacks of at most {MAX_DEPTH} frames, not empty, are read on a device, "
                f"got {depth} of {frame.nbytes} bytes"
            )
        conversion, out_item_nbytes = _conversion(layout, dtype)
        defines = {
            "FRAME_NBYTES": frame.nbytes,
            "BLOCK_FRAMES": block_frames,
            "DEPTH": depth,
            "ITEM_NBYTES": item_nbytes,
            "OUT": conversion,
            "PLAIN_BLOCKS": int(codec != "delta-rle"),
        }
        if codec == "rle":
            defines["ELEMENT_NBYTES"] = element_nbytes(layout)
        in_order = frame_stack is None or frame_stack.axis == 0 or frame.nbytes == frame.shape[0] * item_nbytes
        if not in_order:
            defines["CHANNELS"] = frame.shape[0]
        if shifted_axes is not None:
            defines |= _rows_and_columns(layout, frame, shifted_axes, frame_stack)
        if (not in_order or shifted_axes is not None) and item_nbytes > MAX_ITEM_NBYTES:
            raise DTypeError(
                f"elements of at most {MAX_ITEM_NBYTES} bytes are put in another order on a device, got {layout.dtype}"
            )
        return cls(frame.nbytes, defines, out_item_nbytes, in_order)

    def unit(self, outs: Sequence[int]) -> int:
        """How many bytes can be written at a time from the addresses ``outs`` on: a power of two, up to 16."""
        if not self.in_order:
            return self.out_item_nbytes
        frame_nbytes = self.frame_nbytes // self.defines["ITEM_NBYTES"] * self.out_item_nbytes
        return math.gcd(frame_nbytes, *outs, 16)


def _conversion(layout: Layout, dtype: str | None) -> tuple[int, int]:
    """The number of the conversion, and the bytes of an element of what is written."""
    if dtype is None:
        return 0, layout.dtype.itemsize
    if dtype not in _CONVERSIONS or layout.dtype != np.uint8:
        raise DTypeError(f"uint8 is converted to {', '.join(_CONVERSIONS)}, got {layout.dtype} to {dtype}")
    return _CONVERSIONS[dtype]


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
