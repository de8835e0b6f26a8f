"""Gather: the tensors of a batch, decoded and converted on the device in one launch. See ``kernels/gather.cu``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from obscodec import DTypeError, FrameStack, Layout, ShapeError
from obscodec import codec as cpu_codec

from obscodec_cupy.codecs.codec import STATIC_NBYTES, element_nbytes, frame_scratch
from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device, Kernel

THREADS: Final = 256  # of a block
MORE_THREADS: Final = 512  # where few samples do not fill the device
PARTS: Final = 2  # thread blocks of a sample, unless many samples fill the device anyway
_FEW, _MANY = 64, 1024  # samples
MAX_DEPTH: Final = 16
MAX_ITEM_NBYTES: Final = 16

_CODECS: Final = {"delta-rle": 0, "raw": 1, "rle": 2}  # see kernels/gather.cu
_JUMP_FRAMES: Final = 5  # of shared memory, see kernels/jump.cuh
_MOST_JUMP_NBYTES: Final = 16384  # of a frame
_MOST_JUMP_PLACES: Final = 32  # of a block
_MOST_SCRATCH_NBYTES: Final = 1 << 29  # for one launch; there are several if samples need more
_CONVERTED_NBYTES: Final = {"float16": 2, "bfloat16": 2, "float32": 4}


class Source(NamedTuple):
    """One field of a batch, such as its observations."""

    ids: DeviceArray  # i32[m], ids of the store
    out: DeviceArray  # [n, *shape], contiguous; where its tensors go
    shifts: DeviceArray | None = None  # i32[n, 2], see BatchReader.read; None without shifted_axes


class Gather:
    """Reads tensors of one store of frames, or of stacks of frames, for one or two fields in one launch.

    See :func:`form_of` for the arguments and errors, and ``BatchReader`` for ``scale``. Frames larger than 1 GiB raise
    ShapeError, too.
    """

    def __init__(
        self,
        device: Device,
        layout: Layout,
        block_frames: int,
        *,
        dtype: str | None = None,
        scale: float = 1.0,
        **options: Any,
    ) -> None:
        self.device = device
        self._form = form_of(layout, block_frames, dtype=dtype, **options)
        self._shared_nbytes, scratch_nbytes = frame_scratch(device, self._form["FRAME_NBYTES"])
        self._frame_in_shared = scratch_nbytes == 0
        room = _JUMP_FRAMES * self._shared_nbytes
        self._jumps = (
            self._frame_in_shared
            and self._form["CODEC"] != _CODECS["rle"]
            and block_frames <= _MOST_JUMP_PLACES
            and self._form["FRAME_NBYTES"] <= _MOST_JUMP_NBYTES
            and room + STATIC_NBYTES <= device.shared_nbytes
        )
        if self._jumps:
            self._shared_nbytes = room
        self._scratch_nbytes = scratch_nbytes + -(-self._form["LZ4_NBYTES"] // 16) * 16  # of a thread block
        self._most_samples = max(1, _MOST_SCRATCH_NBYTES // max(1, self._scratch_nbytes))  # of a launch
        self._values = None
        if dtype is not None:
            self._values = device.upload(_converted(dtype, scale))
            device.synchronize()  # whichever stream is current at a launch then

    def _kernel(self, n: int, outs: Sequence[int]) -> tuple[Kernel, int, int]:
        """The kernel for ``n`` samples and outputs at these addresses, its threads, and thread blocks of a sample."""
        parts = 1 if self._scratch_nbytes or n >= _MANY else PARTS
        threads = MORE_THREADS if self._jumps and n < _FEW else THREADS
        options = {"in_shared": self._frame_in_shared, "jumps": self._jumps}
        return kernel_of(self._form, outs, parts=parts, threads=threads, **options), threads, parts

    def scratch_nbytes(self, n: int) -> int:
        """Bytes of device memory that launches for ``n`` samples work in: for very large frames, and for LZ4."""
        return min(n, self._most_samples) * self._scratch_nbytes

    def prepared(
        self,
        header: DeviceArray,  # u64[16], see kernels/tables.cuh
        n: int,
        sources: Sequence[Source],  # one or two
        places: DeviceArray | None = None,  # i64[n], indices of the ids of every source; None for 0 to n - 1
        scratch: DeviceArray | None = None,  # u8[scratch_nbytes(n)], None if that is 0; of one launch at a time
    ) -> Callable[[], None]:
        """What queues the reading of ``n`` tensors for each source.

        It neither allocates nor waits, and can be called again, as long as somebody holds the arrays. What is wrong
        with a stream or an id shows in the word of failures that the header names; what could not be read is zeros.
        """
        arguments: list[DeviceArray | np.generic | None] = [places, np.uint32(len(sources))]
        for source in (sources[0], sources[-1]):
            arguments += [source.ids, np.int64(source.ids.size), source.out, source.shifts]
        header_there, *scalars = self.device.scalars(header, *arguments, self._values, scratch)
        outs = [self.device.address(source.out) for source in sources]
        kernel, threads, parts = self._kernel(n, outs)

        def launch() -> None:
            for first in range(0, n, self._most_samples):
                n_samples = min(n - first, self._most_samples)
                arguments = header_there, np.int64(first), *scalars
                self.device.launch(kernel, n_samples * parts, threads, *arguments, shared_nbytes=self._shared_nbytes)

        return launch


def _converted(dtype: str, scale: float) -> npt.NDArray[np.generic]:
    """What each byte becomes."""
    with np.errstate(all="ignore"):
        exact = np.arange(256, dtype=np.float32) * np.float32(scale)
        if dtype != "bfloat16":
            return exact.astype(dtype)
    bits = exact.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def form_of(
    layout: Layout,
    block_frames: int,
    frame_stack: FrameStack | None = None,
    codec: str = "delta-rle",
    dtype: str | None = None,
    shifted_axes: tuple[int, int] | None = None,
) -> dict[str, int]:
    """The form of the tensors of a store, and of what is written of them: macros of ``kernels/gather.cu``.

    ``layout`` is of one tensor: a stack, or a frame if ``frame_stack`` is None. ``codec`` is of the blocks:
    ``"delta-rle"``, alone or before ``lz4``; ``"raw"``; or ``"rle"`` if they are of one frame. See ``BatchReader`` for
    the other arguments.

    Raises:
        DTypeError: a conversion of what is not uint8, or to another dtype.
        ShapeError: a stack is deeper than 16, a frame empty, or ``shifted_axes`` are not rows and columns.
    """
    depth, frame = (frame_stack.depth, frame_stack.frame_layout(layout)) if frame_stack else (1, layout)
    item_nbytes = layout.dtype.itemsize
    if not (depth <= MAX_DEPTH and frame.nbytes):
        raise ShapeError(
            f"stacks of at most {MAX_DEPTH} frames, not empty, are read on a device, got {depth} of {frame.nbytes} "
            "bytes"
        )
    if dtype is not None and (dtype not in _CONVERTED_NBYTES or layout.dtype != np.uint8):
        raise DTypeError(f"uint8 is converted to {', '.join(_CONVERTED_NBYTES)}, got {layout.dtype} to {dtype}")
    spec, _, tail = codec.partition("|")
    blocks = Layout((block_frames, *frame.shape), frame.dtype)
    defines = {
        "FRAME_NBYTES": frame.nbytes,
        "BLOCK_FRAMES": block_frames,
        "DEPTH": depth,
        "CODEC": _CODECS[spec],
        "LZ4_NBYTES": cpu_codec(spec, blocks).read_bound() if tail else 0,
        "ELEMENT_NBYTES": element_nbytes(layout),
        "ITEM_NBYTES": item_nbytes,
        "OUT_NBYTES": _CONVERTED_NBYTES.get(dtype or "", item_nbytes),
        "PIXELS": math.prod(frame.shape[1:]) if frame_stack and frame_stack.axis == -1 else 1,
    }
    if shifted_axes is not None:
        defines |= _rows_and_columns(layout, frame, shifted_axes, frame_stack)
    if item_nbytes > MAX_ITEM_NBYTES and (defines["PIXELS"] > 1 or shifted_axes is not None):
        raise DTypeError(
            f"elements of at most {MAX_ITEM_NBYTES} bytes are put in another order on a device, got {layout.dtype}"
        )
    return defines


def kernel_of(
    form: dict[str, int],
    outs: Sequence[int],
    *,
    in_shared: bool,
    jumps: bool = False,
    threads: int = THREADS,
    parts: int = 1,
) -> Kernel:
    """The kernel that writes as much at once as outputs at the addresses ``outs`` allow.

    It has the frame that it works on in shared memory, or in a scratch; it ``jumps`` to wanted frames if there is room
    for five of them.
    """
    defines = {"THREADS": threads, "PARTS": parts, **form, "FRAME_IN_SHARED": int(in_shared), "JUMPS": int(jumps)}
    defines["UNIT_ITEMS"] = 1
    if defines["PIXELS"] == 1:
        item_nbytes, out_nbytes, shifted = defines["ITEM_NBYTES"], defines["OUT_NBYTES"], "HEIGHT" in defines
        n_items = defines["FRAME_NBYTES"] // item_nbytes
        unit_nbytes = math.gcd(n_items * out_nbytes, *outs, 8 if shifted else 16)
        if item_nbytes == out_nbytes and not shifted:
            defines["ITEM_NBYTES"] = defines["OUT_NBYTES"] = unit_nbytes
        else:
            defines["UNIT_ITEMS"] = max(1, unit_nbytes // out_nbytes)
    return Kernel("gather.cu", "gather", tuple(defines.items()))


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
