"""The backend ``"cuda"`` of obscodec."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from obscodec import Layout
from obscodec import codec as cpu_codec
from obscodec.devices import Backend, FrameForm, FrameReader
from obscodec.heap import HeapMemory

from obscodec_cupy.codecs.codec import CudaCodec
from obscodec_cupy.device import opened
from obscodec_cupy.device.array import checked
from obscodec_cupy.device.device import Device
from obscodec_cupy.memory.filling import HostToDevice

_FILLINGS: WeakKeyDictionary[Device, HostToDevice] = WeakKeyDictionary()


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

    def heap_memory(self, device: str, heap: str) -> HeapMemory[Any]:
        """See ``Backend.heap_memory``."""
        from obscodec_cupy.memory.heap_memory import heap_memory

        return heap_memory(device, heap)

    def fill(
        self, device: str, out: Any, n: int, layout: Layout, decode: Callable[[npt.NDArray[np.generic]], None]
    ) -> None:
        """See ``Backend.fill``."""
        there = opened.device(device)
        with there.on_stream_of(out):
            checked("out", there.view(out), (n, *layout.shape), layout.dtype.name)
        _FILLINGS.setdefault(there, HostToDevice()).fill(there, out, decode)

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
        there = opened.device(device)
        with there.on_stream_of(x):
            return there.download(there.view(x))
