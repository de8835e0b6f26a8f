"""The Device of NVIDIA GPUs, through CuPy."""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
from obscodec import DTypeError, HeapFull, ShapeError

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device, Kernel, Mark, Order, Scalar
from obscodec_cupy.device.events import EventMark, EventOrder
from obscodec_cupy.device.sources import OPTIONS, source
from obscodec_cupy.device.uploads import copy_through_pinned

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
        self._functions: dict[Kernel, Any] = {}
        self._shared: dict[Kernel, int] = {}
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
                array: DeviceArray = cupy.empty(shape, dtype)
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
        """See ``Device.pinned``."""
        if nbytes == 0:
            return np.zeros(0, np.uint8)
        runtime = cupy.cuda.runtime
        with self._device:
            try:
                memory = cupy.cuda.PinnedMemory(nbytes, runtime.hostAllocPortable | runtime.hostAllocMapped)
            except runtime.CUDARuntimeError as error:
                raise HeapFull(f"the host can't pin {nbytes:,} more bytes: {error}") from error
        pinned = np.frombuffer(cupy.cuda.PinnedMemoryPointer(memory, 0), np.uint8, nbytes)
        pinned.fill(0)
        return pinned

    def upload(self, host: npt.NDArray[np.generic]) -> DeviceArray:
        """See ``Device.upload``."""
        array = self.empty(host.shape, host.dtype)
        self.write(host, array)
        return array

    def write(self, host: npt.NDArray[np.generic], out: DeviceArray) -> None:
        """See ``Device.write``."""
        target: Any = out
        _require_same_bytes(host, target)
        with self._device:
            copy_through_pinned(np.ascontiguousarray(host).reshape(-1).view(np.uint8), target.data, self.keep)

    def write_from(self, pinned: npt.NDArray[np.generic], out: DeviceArray) -> None:
        """See ``Device.write_from``."""
        target: Any = out
        _require_same_bytes(pinned, target)
        with self._device:
            target.data.copy_from_host_async(pinned.ctypes.data, pinned.nbytes, cupy.cuda.get_current_stream())

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

    @contextmanager
    def on_stream_of(self, *arrays: Any) -> Iterator[None]:
        """See ``Device.on_stream_of``; torch is asked at each call, as its current stream may change at any time."""
        torch: Any = sys.modules.get("torch")
        if torch is None or not any(isinstance(array, torch.Tensor) and array.is_cuda for array in arrays):
            yield
            return
        with self._device:
            stream = torch.cuda.current_stream(self._number)
            if stream.cuda_stream == cupy.cuda.get_current_stream().ptr:
                yield
                return
            with cupy.cuda.Stream.from_external(_TorchStream(stream)):
                yield

    def order(self) -> Order:
        """See ``Device.order``."""
        return EventOrder(self._number)

    def mark(self) -> Mark:
        """See ``Device.mark``."""
        with self._device:
            return EventMark()

    def launch(self, kernel: Kernel, n_blocks: int, n_threads: int, *arguments: Scalar, shared_nbytes: int = 0) -> None:
        """See ``Device.launch``; a kernel is compiled when it is first launched."""
        if n_blocks == 0:
            return
        with self._device:
            function = self._function(kernel, shared_nbytes)
            function((n_blocks,), (n_threads,), arguments, shared_mem=shared_nbytes)

    def _function(self, kernel: Kernel, shared_nbytes: int) -> Any:
        function = self._functions.get(kernel)
        if function is None:
            function = _module(kernel.source, kernel.defines).get_function(kernel.name)
            self._functions[kernel] = function
        if shared_nbytes > self._shared.get(kernel, 0):  # without asking, 48 KiB less what the kernel has besides
            function.max_dynamic_shared_size_bytes = shared_nbytes
            self._shared[kernel] = shared_nbytes
        return function

    def synchronize(self) -> None:
        """See ``Device.synchronize``."""
        with self._device:
            cupy.cuda.get_current_stream().synchronize()


class _TorchStream:
    """A stream of torch with the protocol that CuPy asks for, which older versions of torch do not have."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self._stream.cuda_stream)


def _require_same_bytes(host: npt.NDArray[np.generic], out: Any) -> None:
    if host.nbytes != out.nbytes or not out.flags.c_contiguous:
        raise ShapeError(f"{host.nbytes:,} bytes can't be written to {out.nbytes:,}, or to an array with gaps")


@cache
def _module(name: str, defines: tuple[tuple[str, int], ...]) -> Any:
    """The kernels of one file; CuPy compiles them for each device, and keeps what it compiled on disk."""
    return cupy.RawModule(code=source(name, defines), options=OPTIONS)
