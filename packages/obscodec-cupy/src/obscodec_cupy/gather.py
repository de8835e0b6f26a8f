"""Gather: the tensors of a batch, decoded and converted on the device in one launch. See ``kernels/gather.cu``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from obscodec import DTypeError, FrameStack, Layout, ShapeError

from obscodec_cupy.array import DeviceArray
from obscodec_cupy.device import Device, Kernel

THREADS: Final = 256
STATIC_SHARED_NBYTES: Final = 40 << 10  # more than gather.cu takes besides the frame
MAX_DEPTH: Final = 16
MAX_FRAME_NBYTES: Final = 1 << 28
_SCRATCH_FRAMES: Final = 1024  # thread blocks that work at a time if frames lie in global memory

# What is written: the bytes as they are, or bytes as floats.
_CONVERSIONS: Final = {"float16": 1, "bfloat16": 2, "float32": 3}
_OUT_NBYTES: Final = {1: 2, 2: 2, 3: 4}


class Source(NamedTuple):
    """One field of a batch, such as its observations.

    Attributes:
        ids: ``i32[m]``, ids of the store, on the device.
        out: ``[n, *shape]``, on the device, contiguous; where its tensors go.
        shifts: ``i32[n, 2]``, for each sample how many rows and columns further each pixel is taken from, the border
            repeated (the random shift of DrQ, https://arxiv.org/abs/2004.13649); None without ``shifted_axes``.
    """

    ids: DeviceArray
    out: DeviceArray
    shifts: DeviceArray | None = None


class Gather:
    """Reads tensors of one store of frames, or of stacks of frames, for one or two fields in one launch.

    Args:
        device: where the mirrors of the store are.
        layout: of one tensor of the store: a stack, or a frame if ``frame_stack`` is None.
        block_frames: frames of a block.
        frame_stack: how tensors are made of frames.
        plain_blocks: blocks hold their frames as they are, not as patches.
        dtype: ``"float16"``, ``"bfloat16"`` or ``"float32"``, what bytes are converted to; None for no conversion.
        scale: what they are multiplied with: each result is ``float32(x) * float32(scale)``, rounded to nearest even.
        shifted_axes: the axes of ``layout`` that are rows and columns, to shift each tensor by; None for no shift.

    Raises:
        DTypeError: a conversion of what is not bytes, or to another dtype.
        ShapeError: a stack is deeper than 16, a frame larger than 256 MiB, or the axes to shift along do not follow
            each other.
    """

    def __init__(
        self,
        device: Device,
        layout: Layout,
        block_frames: int,
        *,
        frame_stack: FrameStack | None = None,
        plain_blocks: bool = False,
        dtype: str | None = None,
        scale: float = 1.0,
        shifted_axes: tuple[int, int] | None = None,
    ) -> None:
        self.device = device
        self.layout = layout
        self.depth = 1 if frame_stack is None else frame_stack.depth
        frame = layout if frame_stack is None else frame_stack.frame_layout(layout)
        if not (1 <= self.depth <= MAX_DEPTH and 0 < frame.nbytes <= MAX_FRAME_NBYTES):
            raise ShapeError(
                f"the device reads stacks of 1..{MAX_DEPTH} frames of 1..{MAX_FRAME_NBYTES} bytes, "
                f"got {self.depth} of {frame.nbytes}"
            )
        self.scale = np.float32(scale)
        self._item_nbytes = _converted_nbytes(layout, dtype)
        self._frame_nbytes = frame.nbytes
        self.in_shared = _room(frame.nbytes) + STATIC_SHARED_NBYTES <= device.shared_nbytes
        self._n_elements = math.prod(frame.shape)
        self._interleaved = frame_stack is not None and frame_stack.axis == -1 and frame.shape[1:] != ()
        self._defines = {
            "THREADS": THREADS,
            "FRAME_NBYTES": frame.nbytes,
            "BLOCK_FRAMES": block_frames,
            "DEPTH": self.depth,
            "ITEM_NBYTES": layout.dtype.itemsize,
            "OUT": 0 if dtype is None else _CONVERSIONS[dtype],
            "FRAME_IN_SHARED": int(self.in_shared),
            "PLAIN_BLOCKS": int(plain_blocks),
        }
        if self._interleaved:
            self._defines["CHANNELS"] = frame.shape[0]
        if shifted_axes is not None:
            self._defines |= _rows_and_columns(layout, frame, shifted_axes, frame_stack)

    def scratch_nbytes(self, n: int) -> int:
        """Bytes of device memory that :meth:`launch` works in for ``n`` samples; 0 unless frames are very large."""
        return 0 if self.in_shared else min(n, _SCRATCH_FRAMES) * _room(self._frame_nbytes)

    def launch(
        self,
        header: DeviceArray,
        n: int,
        sources: Sequence[Source],
        places: DeviceArray | None = None,
        scratch: DeviceArray | None = None,
    ) -> None:
        """Queue the reading of ``n`` tensors for each source; sample ``i`` is the id at ``places[i]``, or at ``i``.

        Nothing is allocated and nothing is waited for. What is wrong with a stream or an id shows in the verdict of
        the header; the tensors of the samples that it concerns are zeros where they could not be read.

        Args:
            header: ``u64[16]``, see ``kernels/gather.cu``.
            n: how many samples.
            sources: one or two.
            places: ``i64[n]``, indices of ``ids`` of every source; None for 0 to n - 1.
            scratch: ``u8[scratch_nbytes(n)]``, None if that is 0; no other launch may work in it meanwhile.
        """
        address = self.device.address
        arguments: list[np.generic] = [
            np.uint64(address(header)),
            np.uint64(0 if places is None else address(places)),
            np.int64(n),
            np.uint32(len(sources)),
        ]
        for source in (sources[0], sources[-1]):
            arguments += [
                np.uint64(address(source.ids)),
                np.int64(source.ids.size),
                np.uint64(address(source.out)),
                np.uint64(0 if source.shifts is None else address(source.shifts)),
            ]
        arguments += [self.scale, np.uint64(0 if scratch is None else address(scratch))]
        self.device.launch(
            self._kernel([address(source.out) for source in sources]),
            n if self.in_shared else min(n, _SCRATCH_FRAMES),
            THREADS,
            *arguments,
            shared_nbytes=_room(self._frame_nbytes) if self.in_shared else 0,
        )

    def _kernel(self, outs: list[int]) -> Kernel:
        """The kernel that writes as many bytes at a time as the frame and the places that it goes to allow."""
        unit = self._item_nbytes
        if not self._interleaved:
            unit = math.gcd(self._n_elements * self._item_nbytes, *outs, 16)
        return Kernel("gather.cu", "gather", (*self._defines.items(), ("UNIT_NBYTES", unit)))


def _converted_nbytes(layout: Layout, dtype: str | None) -> int:
    """Bytes of an element of what is written."""
    if dtype is None:
        return layout.dtype.itemsize
    if dtype not in _CONVERSIONS or layout.dtype != np.uint8:
        raise DTypeError(f"uint8 is converted to {', '.join(_CONVERSIONS)}, got {layout.dtype} to {dtype}")
    return _OUT_NBYTES[_CONVERSIONS[dtype]]


def _rows_and_columns(
    layout: Layout, frame: Layout, axes: tuple[int, int], frame_stack: FrameStack | None
) -> dict[str, int]:
    """A frame as planes of rows of columns of pixels."""
    first, second = (range(len(layout.shape))[axis] for axis in axes)
    if second != first + 1:
        raise ShapeError(f"rows and columns are two axes that follow each other, got {axes} of shape {layout.shape}")
    if frame_stack is not None and frame_stack.axis == -1:
        first += 1  # the channels of a frame come first
    return {
        "HEIGHT": frame.shape[first],
        "WIDTH": frame.shape[first + 1],
        "PIXEL_ITEMS": math.prod(frame.shape[first + 2 :]),
    }


def _room(frame_nbytes: int) -> int:
    """Bytes that a frame takes while it is worked on."""
    return -(-frame_nbytes // 16) * 16
