"""Gather: the tensors of a batch, decoded and converted on the device in one launch. See ``kernels/gather.cu``."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from obscodec import FrameStack, Layout

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device, Kernel
from obscodec_cupy.device.frame_room import FrameScratch
from obscodec_cupy.frames.gather_form import THREADS, GatherForm


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
        codec: of the blocks: ``"delta-rle"``; or ``"raw"``; or ``"rle"``, for blocks of one frame.
        dtype: ``"float16"``, ``"bfloat16"`` or ``"float32"``, what bytes are converted to; None for no conversion.
        scale: what they are multiplied with: each result is ``float32(x) * float32(scale)``, rounded to nearest even.
        shifted_axes: the axes of ``layout`` that are rows and columns, to shift each tensor by; None for no shift.

    Raises:
        DTypeError: a conversion of what is not uint8, or to another dtype.
        ShapeError: a stack is deeper than 16, a frame larger than 1 GiB or empty, or the axes to shift along are not
            such ones.
    """

    def __init__(
        self,
        device: Device,
        layout: Layout,
        block_frames: int,
        *,
        frame_stack: FrameStack | None = None,
        codec: str = "delta-rle",
        dtype: str | None = None,
        scale: float = 1.0,
        shifted_axes: tuple[int, int] | None = None,
    ) -> None:
        self.device = device
        self._form = GatherForm.of(
            layout, block_frames, frame_stack, codec=codec, dtype=dtype, shifted_axes=shifted_axes
        )
        self._room = FrameScratch.on(device, self._form.frame_nbytes)
        self._values = None
        if dtype is not None:
            self._values = device.upload(_converted(dtype, scale))
            device.synchronize()  # whichever stream is current at a launch then

    def scratch_nbytes(self, n: int) -> int:
        """Bytes of device memory that a launch works in for ``n`` samples; 0 unless frames are very large."""
        return self._room.scratch_nbytes(n)

    def prepared(
        self,
        header: DeviceArray,
        n: int,
        sources: Sequence[Source],
        places: DeviceArray | None = None,
        scratch: DeviceArray | None = None,
    ) -> Callable[[], None]:
        """What queues the reading of ``n`` tensors for each source: ``i`` is the id at ``places[i]``, or at ``i``.

        It neither allocates nor waits, and can be called again, as long as somebody holds the arrays. What is wrong
        with a stream or an id shows in the word of failures that the header names; what could not be read is zeros.

        Args:
            header: ``u64[16]``, see ``kernels/tables.cuh``.
            n: how many samples.
            sources: one or two.
            places: ``i64[n]``, indices of ``ids`` of every source; None for 0 to n - 1.
            scratch: ``u8[scratch_nbytes(n)]``, None if that is 0; no other launch may work in it meanwhile.
        """
        arguments: list[DeviceArray | np.generic | None] = [header, places, np.uint32(len(sources))]
        for source in (sources[0], sources[-1]):
            arguments += [source.ids, np.int64(source.ids.size), source.out, source.shifts]
        scalars = self.device.scalars(*arguments, self._values, scratch)
        made = kernel(self._form, self._room, [self.device.address(source.out) for source in sources])
        return partial(self.device.launch, made, n, THREADS, *scalars, shared_nbytes=self._room.shared_nbytes)


def _converted(dtype: str, scale: float) -> npt.NDArray[np.generic]:
    """What each byte becomes."""
    with np.errstate(all="ignore"):
        exact = np.arange(256, dtype=np.float32) * np.float32(scale)
        if dtype != "bfloat16":
            return exact.astype(dtype)
    bits = exact.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def kernel(form: GatherForm, room: FrameScratch, outs: Sequence[int] = ()) -> Kernel:
    """What reads tensors of a form, to the addresses ``outs``."""
    defines = {**form.defines, "FRAME_IN_SHARED": int(room.shared), **form.units(outs)}
    return Kernel("gather.cu", "gather", tuple(defines.items()))
