"""The simulated GPU as a Device."""

import ctypes
import math
import sys
import threading
import weakref
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from obscodec import DTypeError, HeapFull, SpecError
from obscodec_cupy.device.device import RECORDING, Device, Kernel

from cuda_on_cpu.array import Allocation, SimulatedArray
from cuda_on_cpu.build import KernelFailed, Size, compiled
from cuda_on_cpu.regions import Regions
from cuda_on_cpu.streams import SimulatedMark, SimulatedOrder, Stream, Streams

POISON = 0xA5
ALIGNMENT = 256  # of what CUDA allocates
DTYPES = "?bhilqBHILQefdFDE"  # of CuPy's arrays, bfloat16 among them


def _poison(memory: npt.NDArray[np.generic]) -> None:
    memory.reshape(-1).view(np.uint8)[:] = POISON


def _aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + nbytes]


class SimulatedDevice(Device):
    """A GPU whose memory is the host's and whose kernels g++ compiled.

    Args:
        seed: draws the order of threads, thread blocks and streams; 0 is the plain one.
        eager: work is done as soon as it is queued, for tensors of torch that are on the CPU.
        capacity: bytes of device memory.
        shared_nbytes: bytes of shared memory of a thread block, static and dynamic.

    Attributes:
        free: bytes of it that nobody holds.
    """

    made: ClassVar[weakref.WeakSet["SimulatedDevice"]] = weakref.WeakSet()  # those that are there

    def __init__(
        self,
        name: str = "cuda:0",
        seed: int = 0,
        *,
        eager: bool = False,
        capacity: int = 1 << 40,
        shared_nbytes: int = 99 << 10,
    ) -> None:
        self._begin(name, shared_nbytes)
        self.seed = seed
        self.free = capacity
        self.regions = Regions()
        self.n_launches = 0
        self.streams = Streams(seed, eager=eager)
        self.recording = False
        self._pool: deque[npt.NDArray[np.uint8]] = deque(maxlen=64)
        self._viewed: deque[SimulatedArray] = deque(maxlen=64)  # what is read again without another view
        self.made.add(self)

    def end(self) -> None:
        """Forget what waits, and what is kept for later: it keeps arrays, whose finalizers keep the device for ever."""
        for stream in self.streams.every:
            stream.clear()
        self._viewed.clear()
        self._pool.clear()

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> SimulatedArray:
        if np.dtype(dtype).char not in DTYPES:
            raise ValueError(f"Unsupported dtype {np.dtype(dtype)}")  # as CuPy says it
        memory = _aligned(math.prod(shape) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
        if memory.nbytes > self.free:
            raise HeapFull(f"{self.name} has {self.free:,} bytes free, {memory.nbytes:,} are asked for")
        self.free -= memory.nbytes
        owner = Allocation()
        if memory.nbytes:
            self.regions.add(memory.ctypes.data, memory.nbytes)
        _poison(memory)
        self.streams.queue(lambda: _poison(memory))  # who had it before on this stream may be at work still
        weakref.finalize(owner, self._free, memory, self.streams.current).atexit = False
        return SimulatedArray(memory, owner)

    def _free(self, memory: npt.NDArray[np.generic], stream: Stream) -> None:
        # The stream on which it was allocated uses it again: what that was given before may still work on it, others
        # find it poisoned or gone, now or later.
        self.free += memory.nbytes

        def forget() -> None:
            _poison(memory)
            if memory.nbytes:
                self.regions.remove(memory.ctypes.data)

        self.streams.queue(forget, stream)

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> SimulatedArray:
        array = self.empty(shape, dtype)
        self.streams.queue(lambda: array.memory.fill(0))
        return array

    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        raw = _aligned(nbytes)
        _poison(raw)
        memory = np.frombuffer(raw.data, np.uint8)  # whose views hold it, and not what is below
        self._lend(raw, memory)
        return memory

    def _lend(self, memory: npt.NDArray[np.generic], holder: object) -> None:
        """Let kernels touch memory until nobody has ``holder``, and all work is done that was queued by then."""
        begin, end = np.lib.array_utils.byte_bounds(memory)
        self.regions.lend(begin, end)

        def take_back() -> None:
            left = [memory] * len(self.streams.every)

            def pass_by() -> None:
                left.pop()
                if not left:
                    self.regions.take_back(begin, end)

            for stream in self.streams.every:
                self.streams.queue(pass_by, stream)

        weakref.finalize(holder, take_back).atexit = False

    def staging(self, nbytes: int) -> npt.NDArray[np.uint8]:
        if self.recording:
            raise SpecError(RECORDING)
        raw = _aligned(nbytes)
        staged = np.frombuffer(raw.data, np.uint8)
        weakref.finalize(staged, self._give_back, raw).atexit = False
        return staged

    def _give_back(self, staging: npt.NDArray[np.uint8]) -> None:
        _poison(staging)  # the pool gives it to somebody else
        self._pool.append(staging)

    def write_from(self, staged: npt.NDArray[np.uint8], out: SimulatedArray) -> None:
        if staged.nbytes != out.nbytes or not out.memory.flags.c_contiguous:
            raise AssertionError(f"{staged.nbytes} bytes are written to {out.nbytes}, or to an array with gaps")
        at, nbytes = staged.ctypes.data, staged.nbytes  # as a GPU knows it: whoever has the memory then
        target = out.memory.reshape(-1).view(np.uint8)
        self.streams.queue(lambda: ctypes.memmove(target.ctypes.data, at, nbytes))
        self.keep(staged)

    def download(self, array: SimulatedArray) -> npt.NDArray[np.generic]:
        self.synchronize()
        return array.memory.copy()

    def address(self, array: SimulatedArray) -> int:
        return array.memory.ctypes.data

    def view(self, x: Any) -> SimulatedArray:
        if isinstance(x, SimulatedArray):
            return x
        if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack__"):
            raise DTypeError(f"expected an array on {self.name}, got {type(x).__name__}")
        try:
            memory, owner = np.from_dlpack(x), Allocation()
        except (BufferError, ValueError, RuntimeError) as error:
            raise DTypeError(f"expected an array on {self.name}, got {type(x).__name__}: {error}") from error
        self._lend(memory, owner)
        return SimulatedArray(memory, owner)

    def key(self, x: Any) -> Hashable:
        if not isinstance(x, SimulatedArray):
            self._viewed.append(self.view(x))
        memory = self.view(x).memory
        return memory.ctypes.data, memory.dtype, memory.shape, memory.strides

    def on_stream_of(self, *arrays: Any) -> AbstractContextManager[object]:
        torch = sys.modules.get("torch")
        if torch is not None and any(isinstance(array, torch.Tensor) for array in arrays):
            assert self.streams.eager, "tensors of torch on the CPU have no stream, so the device must be eager"
        return threading.RLock()  # any context: this device has no stream of torch

    @contextmanager
    def on_stream(self, stream: Stream) -> Iterator[None]:
        """Make a stream current, as ``with stream`` of CuPy does."""
        before, self.streams.current = self.streams.current, stream
        try:
            yield
        finally:
            self.streams.current = before

    def order(self) -> SimulatedOrder:
        return SimulatedOrder(self.streams)

    def mark(self) -> SimulatedMark | None:
        return None if self.recording else SimulatedMark(self.streams.current)

    def launch(
        self, kernel: Kernel, n_blocks: int, n_threads: int, *arguments: np.generic, shared_nbytes: int = 0
    ) -> None:
        if n_blocks == 0:
            return
        made = compiled(kernel)
        made.check(arguments)
        if not (0 < n_threads <= 1024 and shared_nbytes <= self.shared_nbytes):
            raise KernelFailed(f"{kernel.name} with {n_threads} threads and {shared_nbytes} bytes of shared memory")
        size = Size(n_blocks, n_threads, shared_nbytes)
        self.n_launches += 1
        seed = self.seed and self.seed * 1000003 + self.n_launches
        self.streams.queue(lambda: made.launch(size, arguments, seed, self.regions))

    def synchronize(self) -> None:
        self.streams.synchronize()
