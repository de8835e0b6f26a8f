"""The backend ``"cuda"`` of obscodec."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from obscodec import Backend, Codec, FrameForm, FrameReader, HeapMemory, Layout, TensorCoder
from obscodec import codec as cpu_codec

from obscodec_cupy.codecs.by_stage import on_device
from obscodec_cupy.device.array import checked
from obscodec_cupy.device.device import Device
from obscodec_cupy.device.probing import device_number
from obscodec_cupy.memory.filling import Filling


def device(name: str) -> Device:
    """The device ``"cuda:1"`` and so on, the same one at every call; ``"cuda"`` is the current one of CUDA.

    Raises:
        SpecError: no such name.
        BackendUnavailable: it can't be used; the text names what is missing.
    """
    return _opened(device_number(name))


def _named(name: str) -> Device:
    """:func:`device`, where another thing has this name."""
    return device(name)


@cache
def _opened(number: int) -> Device:
    from obscodec_cupy.device.gpu import Gpu  # not before it is known that CuPy can be imported

    return Gpu(number)


_FILLINGS: WeakKeyDictionary[Device, Filling] = WeakKeyDictionary()


class CudaBackend(Backend):
    """NVIDIA GPUs, through CuPy."""

    def codec(self, spec: str, layout: Layout, device: str) -> Any:
        """See ``Backend.codec``; the codecs are ``rle`` and ``delta-rle``."""
        return on_device(cpu_codec(spec, layout), _named(device))

    def empty(self, device: str, n: int, layout: Layout) -> Any:
        """See ``Backend.empty``."""
        return _named(device).empty((n, *layout.shape), layout.dtype)

    def check(self, device: str, *arrays: object) -> None:
        """See ``Backend.check``."""
        there = _named(device)
        for array in arrays:
            there.view(array)

    def heap_memory(self, device: str, heap: str) -> HeapMemory[Any]:
        """See ``Backend.heap_memory``."""
        from obscodec_cupy.memory.heap_memory import heap_memory

        return heap_memory(device, heap)

    def fill(
        self, device: str, out: Any, n: int, layout: Layout, decode: Callable[[npt.NDArray[np.generic]], None]
    ) -> None:
        """See ``Backend.fill``."""
        there = _named(device)
        with there.on_stream_of(out):
            checked("out", there.view(out), (n, *layout.shape), layout.dtype.name)
        _FILLINGS.setdefault(there, Filling()).fill(there, out, decode)

    def decodes(self, spec: str, block_frames: int) -> bool:
        """See ``Backend.decodes``."""
        return spec in ("delta-rle", "raw") or (spec == "rle" and block_frames == 1)

    def frame_reader(
        self, device: str, form: FrameForm, memory: HeapMemory[Any], lock: AbstractContextManager[object]
    ) -> FrameReader:
        """See ``Backend.frame_reader``."""
        from obscodec_cupy.frames.frame_reader import CudaFrameReader
        from obscodec_cupy.memory.heap_memory import CudaHeapMemory

        assert isinstance(memory, CudaHeapMemory)
        return CudaFrameReader(form, memory, lock)

    def download(self, device: str, x: Any) -> npt.NDArray[np.generic]:
        """See ``Backend.download``."""
        there = _named(device)
        with there.on_stream_of(x):
            return there.download(there.view(x))

    def tensor_coder(self, codec: Codec, memory: HeapMemory[Any]) -> TensorCoder:
        """See ``Backend.tensor_coder``."""
        from obscodec_cupy.codecs.tensor_coder import tensor_coder

        return tensor_coder(codec, memory)
