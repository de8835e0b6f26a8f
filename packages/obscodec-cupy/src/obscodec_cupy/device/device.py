"""Device: a GPU, with all that this package needs of CuPy. Tests put a simulated GPU in its place."""

from __future__ import annotations

import importlib
import math
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from obscodec import BackendUnavailable, DTypeError, HeapFull, ShapeError, SpecError
from obscodec.runtime import PicklableLock

from obscodec_cupy.device.array import DeviceArray, require_writable
from obscodec_cupy.device.sources import OPTIONS, source

FORKED: Final = (
    "a forked process can't use {} as the process before it does: start it with 'spawn', and pickle the store"
)
RECORDING: Final = (
    "a graph can't record a copy from the host: sync or upload before the recording, and before each replay"
)
_PIECE_NBYTES: Final = 32 << 20  # of a copy from the host, so that little memory is pinned for a large one
_CUDA_DEVICES: Final = {2, 13}  # kDLCUDA, kDLCUDAManaged of DLPack
_OTHER_DEVICES: Final = {1: "in host memory", 3: "in pinned host memory"}


class Kernel(NamedTuple):
    """A kernel of one of the ``.cu`` files, compiled for one geometry."""

    source: str  # the file in obscodec_cupy/kernels, such as "rle.cu"
    name: str  # the function in it, declared extern "C" __global__
    defines: tuple[tuple[str, int], ...] = ()  # what its macros stand for, (("WIDTH", 4),)


class Device:
    """One GPU. All work is queued on the current stream: that of CuPy, or that of torch in :meth:`on_stream_of`.

    A mark, in what follows, is a CUDA event: the moment when all is done that a stream was given so far. Its ``number``
    is that of CUDA, its ``name`` such as ``"cuda:0"``. A thread block has at most ``shared_nbytes`` of shared memory,
    static and dynamic.
    """

    def __init__(self, number: int) -> None:
        self._cupy: Any = importlib.import_module("cupy")  # not before it is known that it can be imported
        self._number = number
        self._on = partial(self._cupy.cuda.Device, number)  # a new one for each use, as it has a state
        runtime = self._cupy.cuda.runtime
        most_shared = runtime.deviceGetAttribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, number)
        self._begin(f"cuda:{number}", int(most_shared))

    def _begin(self, name: str, shared_nbytes: int) -> None:
        self.name, self.shared_nbytes = name, shared_nbytes
        self._process = os.getpid()
        self._kept: deque[tuple[Any, object]] = deque()
        self._keeping = PicklableLock()  # the garbage collector runs in here
        self._recorded: list[object] = []  # what graphs use; in a forked process, what is of the process before it
        self._unused: deque[Any] = deque()  # pinned memory that nobody holds any more
        self._functions: dict[tuple[Kernel, int], Any] = {}
        self._streams: dict[int, Any] = {}  # those of torch as CuPy's, by their handles

    def require_process(self) -> None:
        """Before the device is touched: raise BackendUnavailable if this process was forked after it was opened."""
        if os.getpid() != self._process:
            raise BackendUnavailable(FORKED.format(self.name))

    def mark(self) -> Any:
        """The moment when all is done that is queued on the current stream now; None if that is captured in a graph."""
        with self._on():
            stream = self._cupy.cuda.get_current_stream()
            if stream.is_capturing():
                return None
            event = self._cupy.cuda.Event(disable_timing=True)
            event.record(stream)
        return event

    def keep(self, thing: object) -> None:
        """Hold something until all is done that is queued on the current stream now.

        What a graph is recorded of is held for good, as nobody knows when it was last used.
        """
        if (mark := self.mark()) is None:
            self._recorded.append(thing)
            return
        with self._keeping:
            self._kept.append((mark, thing))
            while self._kept and self._kept[0][0].done:
                self._kept.popleft()

    def park_with(self, owner: object, things: object, order: Order) -> None:
        """When ``owner`` is gone, hold things until all is done that was queued in ``order``.

        The owner may be in a cycle. The garbage collector then destroys all that the owner alone holds, and a later
        question to an event among it ends the process. So ``things`` and ``order`` are held here from now on; they must
        not hold the owner.

        It does not touch the device when the owner goes, since a graph may be recorded: a later :meth:`keep` frees what
        is done. When Python exits, nothing is parked: the driver frees what a process has.
        """
        weakref.finalize(owner, self._park, things, order).atexit = False

    def _park(self, things: object, order: Order) -> None:
        if os.getpid() != self._process:  # to free them here would call CUDA, which a forked process can't use
            self._recorded.append((things, order))
        elif done := order.done():
            with self._keeping:
                self._kept.append((done, things))

    def order(self) -> Order:
        """An order for one thing that several streams may work on."""
        return Order(self._cupy, self._on)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Memory of CuPy's allocator with unknown content; it goes back when nobody holds it, in stream order.

        This and what follows raise HeapFull if the device has not enough memory, or the host not enough to be pinned.
        """
        try:
            with self._on():
                return self._cupy.ndarray(shape, dtype)
        except MemoryError as error:
            nbytes = math.prod(shape) * np.dtype(dtype).itemsize
            free, total = self._on().mem_info
            raise HeapFull(
                f"{nbytes:,} more bytes do not fit on {self.name}, where {free:,} of {total:,} bytes are free; "
                "store less there, or free some"
            ) from error

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Like :meth:`empty`, filled with zeros on the current stream."""
        array = self.empty(shape, dtype)
        if array.nbytes:
            with self._on():
                array.data.memset_async(0, array.nbytes)
        return array

    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """``u8[nbytes]`` in host memory that kernels can read and write at the same address, with unknown content.

        A finalizer only notes that memory is unused: to free it would end the recording of a graph. The next call uses
        it again, or frees it.
        """
        found = None
        while found is None and self._unused:
            memory = self._unused.popleft()
            found = memory if nbytes <= memory.size <= nbytes + nbytes // 4 else None
        cuda = self._cupy.cuda
        try:
            with self._on():
                flags = cuda.runtime.hostAllocPortable | cuda.runtime.hostAllocMapped
                memory = found or cuda.PinnedMemory(nbytes, flags)
        except cuda.runtime.CUDARuntimeError as error:
            raise HeapFull(f"the host can't pin {nbytes:,} more bytes: {error}") from error
        pinned = np.frombuffer(cuda.PinnedMemoryPointer(memory, 0), np.uint8, nbytes)
        weakref.finalize(pinned, lambda: self._unused.append(memory)).atexit = False
        return pinned

    def staging(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """:meth:`pinned` for a short time, from CuPy's pool, for :meth:`write_from`.

        Raises:
            SpecError: the current stream is captured into a graph, which would copy it again at each replay.
            HeapFull: the host has not enough memory that can be pinned.
        """
        cuda = self._cupy.cuda
        try:
            with self._on():
                if cuda.get_current_stream().is_capturing():
                    raise SpecError(RECORDING)
                return np.frombuffer(cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)
        except cuda.runtime.CUDARuntimeError as error:
            raise HeapFull(f"the host can't pin {nbytes:,} bytes to copy them to the device: {error}") from error

    def write_from(self, staged: npt.NDArray[np.uint8], out: DeviceArray) -> None:
        """Queue a copy of :meth:`staging` into as many bytes; it is held until that is done."""
        with self._on():
            out.data.copy_from_host_async(staged.ctypes.data, len(staged), self._cupy.cuda.get_current_stream())
        self.keep(staged)

    def write(self, host: npt.NDArray[np.generic], out: DeviceArray) -> None:
        """Queue a copy into a contiguous array of the same bytes; the host array may change as soon as this returns.

        If it raises HeapFull, the first bytes may be copied.
        """
        data = np.ascontiguousarray(host).reshape(-1).view(np.uint8)
        if len(data) != out.nbytes or not out.flags.c_contiguous:
            raise ShapeError(f"{len(data):,} bytes can't be written to {out.nbytes:,}, or to an array with gaps")
        for begin in range(0, len(data), _PIECE_NBYTES):
            piece = data[begin : begin + _PIECE_NBYTES]
            staged = self.staging(len(piece))
            staged[:] = piece
            self.write_from(staged, out.reshape((-1,)).view(np.uint8)[begin : begin + len(piece)])

    def upload(self, host: npt.NDArray[np.generic]) -> DeviceArray:
        """A copy on the device, queued as by :meth:`write`."""
        array = self.empty(host.shape, host.dtype)
        self.write(host, array)
        return array

    def download(self, array: DeviceArray) -> npt.NDArray[np.generic]:
        """A copy on the host; waits for the current stream."""
        with self._on():
            host: npt.NDArray[np.generic] = self._cupy.asnumpy(array)
        return host

    def address(self, array: DeviceArray) -> int:
        """Where an array begins."""
        return int(array.data.ptr)

    def scalars(self, *arguments: DeviceArray | np.generic | None) -> list[np.generic]:
        """Arguments of a kernel, with the addresses of arrays in their places, and 0 for None."""
        return [x if isinstance(x, np.generic) else np.uint64(0 if x is None else self.address(x)) for x in arguments]

    def view(self, x: Any) -> DeviceArray:
        """An array of any framework with DLPack on this device, without a copy; DTypeError for what is none."""
        try:
            kind, number = x.__dlpack_device__()
        except (AttributeError, BufferError, ValueError) as error:
            raise DTypeError(f"expected an array on {self.name}, got {type(x).__name__}") from error
        if int(kind) not in _CUDA_DEVICES or number != self._number:
            other = _OTHER_DEVICES.get(int(kind), f"of DLPack device type {int(kind)}")
            where = f"on cuda:{number}" if int(kind) in _CUDA_DEVICES else other
            raise DTypeError(f"expected an array on {self.name}, got one {where}; copy it there first")
        try:
            with self._on():
                return x if isinstance(x, self._cupy.ndarray) else self._cupy.from_dlpack(x)
        except (BufferError, NotImplementedError, TypeError, ValueError, RuntimeError) as error:
            raise DTypeError(f"{type(x).__name__} can't be read by DLPack: {error}") from error

    def writable_view(self, what: str, x: Any) -> DeviceArray:
        """:meth:`view` of an array that is written to, which ``what`` names; DTypeError also if it is read-only."""
        view = self.view(x)
        require_writable(what, x)
        return view

    def new_for(self, places: Any, shape: tuple[int, ...], dtype: str) -> tuple[Any, Callable[[], Any]]:
        """A new array to write to, and what makes of it one of the library of ``places``, once the writing is queued.

        Of another library than torch, ``bfloat16`` is ``uint16``.
        """
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(places, torch.Tensor):
            made = torch.empty(shape, dtype=getattr(torch, dtype), device=places.device)
            return (made.view(torch.uint16) if dtype == "bfloat16" else made), lambda: made
        array = self.empty(shape, "uint16" if dtype == "bfloat16" else dtype)
        if isinstance(places, type(array)):
            return array, lambda: array
        return array, lambda: places.__array_namespace__().from_dlpack(array)

    def key(self, x: Any) -> Hashable:
        """What :meth:`view` depends on of an array of CuPy or torch: its address, shape and so on; None for others."""
        if isinstance(x, self._cupy.ndarray):
            return x.data.ptr, x.dtype, x.shape, x.strides, x.device.id
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(x, torch.Tensor):
            return x.data_ptr(), x.dtype, x.shape, x.stride(), x.device, x.requires_grad
        return None

    def on_stream_of(self, *arrays: Any) -> AbstractContextManager[object]:
        """Make the current stream of torch that of all work, if one of ``arrays`` is a tensor of torch.

        Torch is asked at each call, as its current stream may change at any time.
        """
        torch: Any = sys.modules.get("torch")
        if torch is not None:
            for array in arrays:
                if isinstance(array, torch.Tensor) and array.is_cuda:
                    stream = torch.cuda.current_stream(self._number)
                    return _OnStream(self._on(), self._known_stream(stream))
        here: AbstractContextManager[object] = self._on()
        return here

    def _known_stream(self, stream: Any) -> Any:
        """A stream of torch as a stream of CuPy."""
        known = self._streams.get(stream.cuda_stream)
        if known is None:
            with self._on():
                known = self._cupy.cuda.Stream.from_external(_TorchStream(stream))
            self._streams[stream.cuda_stream] = known
        return known

    def launch(
        self, kernel: Kernel, n_blocks: int, n_threads: int, *arguments: np.generic, shared_nbytes: int = 0
    ) -> None:
        """Queue a kernel, which is compiled before its first launch; ``n_blocks`` of 0 is none.

        Arguments are numpy scalars, addresses ``np.uint64``.
        """
        if n_blocks:
            with self._on():
                function = self._functions.get((kernel, shared_nbytes))
                if function is None:
                    function = _module(kernel.source, kernel.defines).get_function(kernel.name)
                    if shared_nbytes:  # without asking, 48 KiB less what the kernel has besides
                        function.max_dynamic_shared_size_bytes = shared_nbytes
                    self._functions[kernel, shared_nbytes] = function
                function((n_blocks,), (n_threads,), arguments, shared_mem=shared_nbytes)

    def synchronize(self) -> None:
        """Wait for the current stream."""
        with self._on():
            self._cupy.cuda.get_current_stream().synchronize()


class Order:
    """The order of what is done to one thing: work of one stream at a time, each after what the others did before.

    Nothing is waited for on the stream that was here last, nor while a stream is captured into a graph: there, an event
    of before would be an error, and ``torch.cuda.graph`` has waited for the whole device.

    Can be entered again while it is. Not safe to use from several threads: hold the lock of that thing.
    """

    def __init__(self, cupy: Any, device: Any) -> None:
        self._cupy, self._on = cupy, device
        self._event: Any = None  # made at first use, as making it needs the device
        self._last: Any = None  # the stream, which lives as long as it is kept here

    def __enter__(self) -> None:
        with self._on():
            stream = self._cupy.cuda.get_current_stream()
            if self._last is not None and self._last != stream and not stream.is_capturing():
                stream.wait_event(self._event)

    def __exit__(self, *error: object) -> None:
        with self._on():
            stream = self._cupy.cuda.get_current_stream()
            if stream.is_capturing():
                return
            self._event = self._event or self._cupy.cuda.Event(disable_timing=True)
            self._event.record(stream)
            self._last = stream

    def done(self) -> Any:
        """A mark when all is done that was queued in here, None if there was nothing. Does not touch the device."""
        return self._event


class _OnStream(AbstractContextManager[object]):
    """Makes a device and a stream of it current; for one use."""

    def __init__(self, device: Any, stream: Any) -> None:
        self._device, self._stream = device, stream

    def __enter__(self) -> None:
        self._device.__enter__()
        self._stream.__enter__()

    def __exit__(self, *error: object) -> None:
        self._stream.__exit__(*error)
        self._device.__exit__(*error)


class _TorchStream:
    """A stream of torch with the protocol that CuPy asks for, which older versions of torch do not have."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self._stream.cuda_stream)


@cache
def _module(name: str, defines: tuple[tuple[str, int], ...]) -> Any:
    """The kernels of one file; CuPy compiles them for each device, and keeps what it compiled on disk."""
    return importlib.import_module("cupy").RawModule(code=source(name, defines), options=OPTIONS)
