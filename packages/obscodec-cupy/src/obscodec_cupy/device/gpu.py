"""The Device of NVIDIA GPUs, through CuPy."""

import math
import sys
import weakref
from collections.abc import Hashable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
from obscodec import DTypeError, HeapFull, SpecError

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import RECORDING, Device, Kernel, Mark, Order, Scalar
from obscodec_cupy.device.events import EventOrder
from obscodec_cupy.device.sources import OPTIONS, source

_CUDA_DEVICES = {2, 13}  # kDLCUDA, kDLCUDAManaged of DLPack
_OTHER_DEVICES = {1: "in host memory", 3: "in pinned host memory"}


class Gpu(Device):
    """One NVIDIA GPU.

    Args:
        number: as CUDA counts the devices that it sees.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.name = f"cuda:{number}"
        self._number = number
        self._device = cupy.cuda.Device(number)
        self._recorded: list[object] = []  # what graphs use
        self._unused: list[Any] = []  # pinned memory that nobody holds any more
        self._functions: dict[Kernel, Any] = {}
        self._shared: dict[Kernel, int] = {}
        self._streams: dict[int, AbstractContextManager[object]] = {}  # of torch, by their handles
        attribute = cupy.cuda.runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin
        self.shared_nbytes = int(cupy.cuda.runtime.deviceGetAttribute(attribute, number))

    def keep(self, thing: object) -> None:
        """See ``Device.keep``; what a graph is recorded of is held for good, as nobody knows when it was last used."""
        with self._device:
            if cupy.cuda.get_current_stream().is_capturing():
                self._recorded.append(thing)
            else:
                super().keep(thing)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """See ``Device.empty``. The memory is that of CuPy's current allocator."""
        try:
            with self._device:
                array: DeviceArray = cupy.ndarray(shape, dtype)
        except MemoryError as error:
            nbytes = math.prod(shape) * np.dtype(dtype).itemsize
            free, total = self._device.mem_info
            raise HeapFull(
                f"{nbytes:,} more bytes do not fit on {self.name}, where {free:,} of {total:,} bytes are free; "
                "store less there, or free some"
            ) from error
        return array

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """See ``Device.zeros``."""
        array = self.empty(shape, dtype)
        memory: Any = array
        if array.nbytes:
            with self._device:
                memory.data.memset_async(0, array.nbytes)
        return array

    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """See ``Device.pinned``.

        A finalizer only notes that memory is unused: to free it would end the recording of a graph. The next call uses
        it again, or frees it.
        """
        unused, self._unused = self._unused, []
        found = next((memory for memory in unused if nbytes <= memory.size <= nbytes + nbytes // 4), None)
        del unused
        runtime = cupy.cuda.runtime
        try:
            with self._device:
                memory = found or cupy.cuda.PinnedMemory(nbytes, runtime.hostAllocPortable | runtime.hostAllocMapped)
        except runtime.CUDARuntimeError as error:
            raise HeapFull(f"the host can't pin {nbytes:,} more bytes: {error}") from error
        pinned = np.frombuffer(cupy.cuda.PinnedMemoryPointer(memory, 0), np.uint8, nbytes)
        weakref.finalize(pinned, self._unused_is, memory).atexit = False
        return pinned

    def _unused_is(self, memory: Any) -> None:
        self._unused.append(memory)

    def staging(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """See ``Device.staging``; CuPy's pool, which rounds up to a power of two and never frees."""
        runtime = cupy.cuda.runtime
        try:
            with self._device:
                if cupy.cuda.get_current_stream().is_capturing():
                    raise SpecError(RECORDING)
                return np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)
        except runtime.CUDARuntimeError as error:
            raise HeapFull(f"the host can't pin {nbytes:,} bytes to copy them to the device: {error}") from error

    def write_from(self, staged: npt.NDArray[np.uint8], out: DeviceArray) -> None:
        """See ``Device.write_from``."""
        target: Any = out
        with self._device:
            target.data.copy_from_host_async(staged.ctypes.data, len(staged), cupy.cuda.get_current_stream())

    def download(self, array: DeviceArray) -> npt.NDArray[np.generic]:
        """See ``Device.download``."""
        with self._device:
            host: npt.NDArray[np.generic] = cupy.asnumpy(array)
        return host

    def address(self, array: DeviceArray) -> int:
        """See ``Device.address``."""
        on_device: Any = array
        return int(on_device.data.ptr)

    def view(self, x: Any) -> DeviceArray:
        """See ``Device.view``."""
        try:
            kind, number = x.__dlpack_device__()
        except (AttributeError, BufferError, ValueError) as error:
            raise DTypeError(f"expected an array on {self.name}, got {type(x).__name__}") from error
        if int(kind) not in _CUDA_DEVICES or number != self._number:
            other = _OTHER_DEVICES.get(int(kind), f"of DLPack device type {int(kind)}")
            where = f"on cuda:{number}" if int(kind) in _CUDA_DEVICES else other
            raise DTypeError(f"expected an array on {self.name}, got one {where}; copy it there first")
        view: DeviceArray = x
        try:
            with self._device:
                if not isinstance(x, cupy.ndarray):
                    view = cupy.from_dlpack(x)
        except (BufferError, NotImplementedError, TypeError, ValueError, RuntimeError) as error:
            raise DTypeError(f"{type(x).__name__} can't be read by DLPack: {error}") from error
        return view

    def key(self, x: Any) -> Hashable:
        """See ``Device.key``."""
        if isinstance(x, cupy.ndarray):
            return x.data.ptr, x.dtype, x.shape, x.strides, x.device.id
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(x, torch.Tensor):
            return x.data_ptr(), x.dtype, x.shape, x.stride(), x.device, x.requires_grad
        return None

    def on_stream_of(self, *arrays: Any) -> AbstractContextManager[object]:
        """See ``Device.on_stream_of``; torch is asked at each call, as its current stream may change at any time."""
        torch: Any = sys.modules.get("torch")
        if torch is not None:
            for array in arrays:
                if isinstance(array, torch.Tensor) and array.is_cuda:
                    stream = torch.cuda.current_stream(self._number)
                    known = self._streams.get(stream.cuda_stream)
                    return known or self._streams.setdefault(stream.cuda_stream, _OnStream(self._device, stream))
        here: AbstractContextManager[object] = self._device
        return here

    def order(self) -> Order:
        """See ``Device.order``."""
        return EventOrder(self._number)

    def mark(self) -> Mark:
        """See ``Device.mark``."""
        with self._device:
            mark: Mark = cupy.cuda.Event(disable_timing=True)
            mark.record(cupy.cuda.get_current_stream())  # type: ignore[attr-defined]
        return mark

    def launch(self, kernel: Kernel, n_blocks: int, n_threads: int, *arguments: Scalar, shared_nbytes: int = 0) -> None:
        """See ``Device.launch``; a kernel is compiled when it is first launched."""
        if n_blocks == 0:
            return
        with self._device:
            function = self._functions.get(kernel) or self._functions.setdefault(kernel, _function(kernel))
            if shared_nbytes > self._shared.get(kernel, 0):  # without asking, 48 KiB less what the kernel has besides
                function.max_dynamic_shared_size_bytes = shared_nbytes
                self._shared[kernel] = shared_nbytes
            function((n_blocks,), (n_threads,), arguments, shared_mem=shared_nbytes)

    def synchronize(self) -> None:
        """See ``Device.synchronize``."""
        with self._device:
            cupy.cuda.get_current_stream().synchronize()


class _OnStream(AbstractContextManager[object]):
    """Makes a device and a stream of torch current."""

    def __init__(self, device: Any, stream: Any) -> None:
        self._device, self._torch_stream = device, stream
        with device:
            self._stream = cupy.cuda.Stream.from_external(self)

    def __cuda_stream__(self) -> tuple[int, int]:  # which streams of older versions of torch do not have
        return 0, int(self._torch_stream.cuda_stream)

    def __enter__(self) -> None:
        self._device.__enter__()
        self._stream.__enter__()

    def __exit__(self, *error: object) -> None:
        self._stream.__exit__(*error)
        self._device.__exit__(*error)


def _function(kernel: Kernel) -> Any:
    return _module(kernel.source, kernel.defines).get_function(kernel.name)


@cache
def _module(name: str, defines: tuple[tuple[str, int], ...]) -> Any:
    """The kernels of one file; CuPy compiles them for each device, and keeps what it compiled on disk."""
    return cupy.RawModule(code=source(name, defines), options=OPTIONS)
