"""Device: all that this package needs of a GPU. Nothing else of it touches CuPy, so tests put a simulated one here."""

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from obscodec import BackendUnavailable, ShapeError

from obscodec_cupy.device.array import DeviceArray, require_writable

Scalar = np.generic
RECORDING = "a graph can't record a copy from the host: sync or upload before the recording, and before each replay"
FORKED = "a forked process can't use {} as the process before it does: start it with 'spawn', and pickle the store"
_PIECE_NBYTES = 32 << 20  # of a copy from the host, so that little memory is pinned for a large one


class Kernel(NamedTuple):
    """A kernel of one of the ``.cu`` files, compiled for one geometry.

    Attributes:
        source: the file in ``obscodec_cupy/kernels``, such as ``"rle.cu"``.
        name: the function in it, declared ``extern "C" __global__``.
        defines: what its macros stand for, ``(("WIDTH", 4),)``.
    """

    source: str
    name: str
    defines: tuple[tuple[str, int], ...] = ()


class Mark(Protocol):
    """The moment when all is done that a stream was given so far, such as a CUDA event."""

    @property
    def done(self) -> bool:
        """Whether that is so now; does not wait."""

    def synchronize(self) -> None:
        """Wait until it is."""


class Order(ABC):
    """The order of what is done to one thing, whichever streams do it. Can be entered again while it is.

    Not safe to use from several threads: hold the lock of that thing.
    """

    @abstractmethod
    def __enter__(self) -> None:
        """Have the current stream wait for what other streams did in here before."""

    @abstractmethod
    def __exit__(self, *error: object) -> None:
        """Remember what the current stream did."""

    @abstractmethod
    def done(self) -> Mark | None:
        """The moment when all is done that was queued in here, None if there was nothing. Does not touch the device."""


class Device(ABC):
    """One GPU. All work is queued on the current stream: that of CuPy, or that of torch in :meth:`on_stream_of`.

    Attributes:
        name: such as ``"cuda:0"``.
        shared_nbytes: the most shared memory of a thread block, static and dynamic.
    """

    name: str
    shared_nbytes: int

    def __init__(self) -> None:
        self._process = os.getpid()
        self._kept: deque[tuple[Mark, object]] = deque()
        self._keeping = threading.RLock()  # the garbage collector runs in here

    def require_process(self) -> None:
        """Make sure that this process opened the device; to be called before the device is touched.

        Raises:
            BackendUnavailable: this process was forked from the one that opened the device.
        """
        if os.getpid() != self._process:
            raise BackendUnavailable(FORKED.format(self.name))

    def keep(self, thing: object) -> None:
        """Hold something until all is done that is queued on the current stream now."""
        mark = self.mark()
        with self._keeping:
            self._kept.append((mark, thing))
            while self._kept and self._kept[0][0].done:
                self._kept.popleft()

    def park(self, thing: object, until: Mark) -> None:
        """Hold something until a moment has passed, and :meth:`keep` is called then.

        For finalizers: it does not touch the device, since a graph may be recorded.
        """
        with self._keeping:
            self._kept.append((until, thing))

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Memory of the device with unknown content; it goes back when nobody holds the array, in stream order.

        Raises:
            HeapFull: the device has not enough free memory.
        """

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Like :meth:`empty`, filled with zeros on the current stream."""

    @abstractmethod
    def pinned(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """``u8[nbytes]`` in host memory that kernels can read and write at the same address, with unknown content.

        Raises:
            HeapFull: the host has not enough memory that can be pinned.
        """

    @abstractmethod
    def staging(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """:meth:`pinned` for a short time, from a pool; :meth:`keep` it until what it is copied by is done.

        Raises:
            SpecError: the current stream is captured into a graph, which would copy it again at each replay.
            HeapFull: the host has not enough memory that can be pinned.
        """

    @abstractmethod
    def write_from(self, staged: npt.NDArray[np.uint8], out: DeviceArray) -> None:
        """Queue a copy of pinned memory, which must stay as it is until that is done, into as many bytes."""

    def write(self, host: npt.NDArray[np.generic], out: DeviceArray) -> None:
        """Queue a copy into a contiguous array of the same bytes; the host array may change as soon as this returns.

        Raises:
            HeapFull: the host has not enough memory that can be pinned; the first bytes may be copied then.
        """
        source = np.ascontiguousarray(host).reshape(-1).view(np.uint8)
        if len(source) != out.nbytes or not out.flags.c_contiguous:
            raise ShapeError(f"{len(source):,} bytes can't be written to {out.nbytes:,}, or to an array with gaps")
        for begin in range(0, len(source), _PIECE_NBYTES):
            piece = source[begin : begin + _PIECE_NBYTES]
            staged = self.staging(len(piece))
            staged[:] = piece
            self.write_from(staged, out.reshape((-1,)).view(np.uint8)[begin : begin + len(piece)])
            self.keep(staged)

    def upload(self, host: npt.NDArray[np.generic]) -> DeviceArray:
        """A copy on the device, queued as by :meth:`write`.

        Raises:
            HeapFull: the device has not enough free memory, or the host not enough that can be pinned.
        """
        array = self.empty(host.shape, host.dtype)
        self.write(host, array)
        return array

    @abstractmethod
    def download(self, array: DeviceArray) -> npt.NDArray[np.generic]:
        """A copy on the host; waits for the current stream."""

    @abstractmethod
    def address(self, array: DeviceArray) -> int:
        """Where an array begins."""

    @abstractmethod
    def view(self, x: Any) -> DeviceArray:
        """An array of any framework with DLPack, on this device and without a copy.

        Raises:
            DTypeError: it is no such array, or is in the memory of another device.
        """

    def writable_view(self, what: str, x: Any) -> DeviceArray:
        """:meth:`view` of an array that is written to; ``what`` names it in the text of an error.

        Raises:
            DTypeError: as :meth:`view`, or the array is read-only.
        """
        view = self.view(x)
        require_writable(what, x)
        return view

    @abstractmethod
    def key(self, x: Any) -> Hashable:
        """What :meth:`view` depends on of an array of CuPy or torch: its address, shape and so on; None for others."""

    @abstractmethod
    def on_stream_of(self, *arrays: Any) -> AbstractContextManager[object]:
        """Make the current stream of torch that of all work, if one of ``arrays`` is a tensor of torch."""

    @abstractmethod
    def order(self) -> Order:
        """An order for one thing that several streams may work on."""

    @abstractmethod
    def mark(self) -> Mark:
        """The moment when all is done that is queued on the current stream now."""

    @abstractmethod
    def launch(self, kernel: Kernel, n_blocks: int, n_threads: int, *arguments: Scalar, shared_nbytes: int = 0) -> None:
        """Queue a kernel; ``n_blocks`` of 0 is none. Arguments are numpy scalars: addresses are ``np.uint64``."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the current stream."""
