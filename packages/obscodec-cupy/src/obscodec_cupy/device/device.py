"""Device: all that this package needs of a GPU. Nothing else of it touches CuPy, so tests put a simulated one here."""

import threading
from abc import ABC, abstractmethod
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec_cupy.device.array import DeviceArray, require_writable

Scalar = np.generic


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of one of the ``.cu`` files, compiled for one geometry.

    Attributes:
        source: the file in ``obscodec_cupy/kernels``, such as ``"rle.cu"``.
        name: the function in it, declared ``extern "C" __global__``.
        defines: what its macros stand for, ``(("WIDTH", 4),)``.
    """

    source: str
    name: str
    defines: tuple[tuple[str, int], ...] = ()


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


class Mark(ABC):
    """The moment when all is done that a stream was given so far."""

    @abstractmethod
    def passed(self) -> bool:
        """Whether that is so now; does not wait."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until it is."""


class Device(ABC):
    """One GPU. All work is queued on the current stream: that of CuPy, or that of torch in :meth:`on_stream_of`.

    Attributes:
        name: such as ``"cuda:0"``.
        shared_nbytes: the most shared memory of a thread block, static and dynamic.
    """

    name: str
    shared_nbytes: int

    def __init__(self) -> None:
        self._kept: deque[tuple[Mark, object]] = deque()
        self._keeping = threading.RLock()  # the garbage collector runs in here

    def keep(self, thing: object) -> None:
        """Hold something until all is done that is queued on the current stream now."""
        with self._keeping:
            self._kept.append((self.mark(), thing))
            while self._kept and self._kept[0][0].passed():
                self._kept.popleft()

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
        """``u8[nbytes]`` in host memory that kernels can read and write at the same address; zeros.

        Raises:
            HeapFull: the host has not enough memory that can be pinned.
        """

    @abstractmethod
    def upload(self, host: npt.NDArray[np.generic]) -> DeviceArray:
        """A copy on the device, queued; the host array may change as soon as this returns.

        Raises:
            HeapFull: the device has not enough free memory, or the host not enough that can be pinned.
        """

    @abstractmethod
    def write(self, host: npt.NDArray[np.generic], out: DeviceArray) -> None:
        """Copy into a device array of the same bytes, both contiguous, queued; the host array may change then.

        Raises:
            HeapFull: the host has not enough memory that can be pinned; the first bytes may be copied then.
        """

    @abstractmethod
    def write_from(self, pinned: npt.NDArray[np.generic], out: DeviceArray) -> None:
        """:meth:`write` from memory that :meth:`pinned` gave, which must stay as it is until that is done."""

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
    def on_stream_of(self, *arrays: Any) -> AbstractContextManager[None]:
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
