"""Heap memory that kernels can read: in the memory of the device, or in pinned memory of the host."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from obscodec import HeapFull, SpecError
from obscodec.heap import HeapMemory, Streams
from obscodec.segments import Segments

from obscodec_cupy.device import opened
from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.copies import Addresses, Lengths, move
from obscodec_cupy.device.device import Device, Mark

C = TypeVar("C")
_DOWNLOAD_NBYTES = 1 << 22  # of streams that are put side by side on the device at once, to be downloaded


@dataclass(frozen=True, slots=True)
class PlacedStreams:
    """Streams where the device can read them, to put into a heap without the host.

    Attributes:
        addresses: ``u64[n]``, on the host.
        lengths: ``i64[n]``, likewise.
        owner: what keeps their memory.
    """

    addresses: Addresses
    lengths: Lengths
    owner: object

    @property
    def nbytes(self) -> int:
        """Bytes of all streams together."""
        return int(self.lengths.sum())

    def take(self, which: slice | npt.NDArray[np.generic]) -> PlacedStreams:
        """Some of the streams."""
        return PlacedStreams(self.addresses[which], self.lengths[which], self.owner)

    def __len__(self) -> int:
        return len(self.lengths)


class CudaHeapMemory(HeapMemory[C], Generic[C]):
    """The part that both kinds have in common.

    Kernels may still read a chunk that the heap drops: it goes back when what was queued in :attr:`order` is done.

    Args:
        device: that reads it.
        restore: what makes such memory again, and its arguments, for copies of a heap.

    Attributes:
        order: of all that is done on the device to this memory, or reads it.
    """

    def __init__(self, device: Device, restore: tuple[Callable[..., object], tuple[str, ...]]) -> None:
        self.device = device
        self.order = device.order()
        self._restore = restore
        self._kept: deque[tuple[object, Mark]] = deque()

    def new(self, nbytes: int) -> C:
        """A chunk; waits for those that were dropped if there is no other room.

        Raises:
            HeapFull: there is not enough memory.
        """
        self._give_back()
        try:
            return self._allocate(nbytes)
        except HeapFull:
            if not self._kept:
                raise
        self._kept[-1][1].wait()
        self._give_back()
        return self._allocate(nbytes)

    def drop(self, chunk: C, *, used: bool) -> None:
        """Give the chunk back, as soon as nobody writes or reads it."""
        if used:
            self.keep(chunk)
        del chunk
        self._give_back()

    def keep(self, thing: object) -> None:
        """Hold something, such as ``Places.memories``, until all is done that was queued in :attr:`order` so far."""
        with self.order:
            self._kept.append((thing, self.device.mark()))

    def wait(self) -> None:
        """Wait until all is done that was queued in :attr:`order` so far."""
        with self.order:
            done = self.device.mark()
        done.wait()

    @abstractmethod
    def _allocate(self, nbytes: int) -> C:
        """Memory for a chunk."""

    def _give_back(self) -> None:
        while self._kept and self._kept[0][1].passed():
            self._kept.popleft()

    def _move(self, streams: PlacedStreams, address: int) -> None:
        """Copy streams to an address, each behind the one before it."""
        begins = np.uint64(address) + (np.cumsum(streams.lengths) - streams.lengths).astype(np.uint64)
        move(self.device, streams.addresses, begins, streams.lengths)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return self._restore


class DeviceHeapMemory(CudaHeapMemory[DeviceArray | None]):
    """Chunks in the memory of the device."""

    no_chunk = None

    def address(self, chunk: DeviceArray | None) -> int:
        """The address on the device."""
        assert chunk is not None
        return self.device.address(chunk)

    def write(self, chunk: DeviceArray | None, start: int, streams: Streams) -> None:
        """Upload :class:`Segments` in one copy, or have the device copy :class:`PlacedStreams`."""
        assert chunk is not None
        nbytes = streams.nbytes
        if nbytes == 0:
            return
        with self.order:
            if isinstance(streams, PlacedStreams):
                self._move(streams, self.address(chunk) + start)
            else:
                self.device.write(_packed(streams), chunk[start : start + nbytes])

    def within(self, chunk: DeviceArray | None, offsets: Lengths, lengths: Lengths) -> PlacedStreams:
        """The places of the streams."""
        return PlacedStreams(np.uint64(self.address(chunk)) + offsets.astype(np.uint64), lengths, chunk)

    def streams(
        self,
        chunks: tuple[DeviceArray | None, ...],
        which: Lengths,
        offsets: Lengths,
        lengths: Lengths,
        bases: Lengths,
    ) -> Segments:
        """A copy; waits for the current stream."""
        host = np.empty(int(lengths.sum()), np.uint8)
        ends = np.cumsum(lengths)
        addresses = (bases[which] + offsets).astype(np.uint64)
        first = 0
        with self.order:
            while first < len(lengths):
                begin = ends[first] - lengths[first]
                last = max(first + 1, int(np.searchsorted(ends, begin + _DOWNLOAD_NBYTES, side="right")))
                some = slice(first, last)
                try:
                    self._download(PlacedStreams(addresses[some], lengths[some], chunks), host[begin : ends[last - 1]])
                except HeapFull:
                    for i in range(first, last):
                        if (chunk := chunks[which[i]]) is not None:
                            stream = chunk[int(offsets[i]) : int(offsets[i] + lengths[i])]
                            host[ends[i] - lengths[i] : ends[i]] = self.device.download(stream)
                first = last
        return Segments.packed(host, lengths)

    def _download(self, streams: PlacedStreams, out: npt.NDArray[np.uint8]) -> None:
        if len(out) == 0:
            return
        packed = self.device.empty((len(out),), np.uint8)
        self._move(streams, self.device.address(packed))
        out[:] = self.device.download(packed)

    def _allocate(self, nbytes: int) -> DeviceArray:
        return self.device.empty((nbytes,), np.uint8)  # the heap writes to it next, on the same stream


class PinnedHeapMemory(CudaHeapMemory[npt.NDArray[np.uint8]]):
    """Chunks in pinned memory of the host: it writes and reads them itself, kernels read them over the bus."""

    no_chunk = np.empty(0, np.uint8)

    def __init__(self, device: Device, restore: tuple[Callable[..., object], tuple[str, ...]]) -> None:
        super().__init__(device, restore)
        self._written: Mark | None = None  # by the device

    def address(self, chunk: npt.NDArray[np.uint8]) -> int:
        """The address in this process, and on the device."""
        return chunk.ctypes.data

    def write(self, chunk: npt.NDArray[np.uint8], start: int, streams: Streams) -> None:
        """Copy :class:`Segments`, or have the device copy :class:`PlacedStreams`."""
        if isinstance(streams, PlacedStreams):
            with self.order:
                self._move(streams, self.address(chunk) + start)
                self._written = self.device.mark()
        else:
            assert isinstance(streams, Segments)
            streams.pack(chunk[start : start + streams.nbytes])

    def within(self, chunk: npt.NDArray[np.uint8], offsets: Lengths, lengths: Lengths) -> Segments:
        """A view; waits for what the device writes."""
        self._wait()
        return Segments((chunk,), np.zeros(len(lengths), np.int64), offsets, lengths)

    def streams(
        self,
        chunks: tuple[npt.NDArray[np.uint8], ...],
        which: Lengths,
        offsets: Lengths,
        lengths: Lengths,
        bases: Lengths,
    ) -> Segments:
        """A view; waits for what the device writes."""
        self._wait()
        return Segments.located(chunks, which, offsets, lengths, bases)

    def _wait(self) -> None:
        if self._written is not None:
            self._written.wait()
            self._written = None

    def _allocate(self, nbytes: int) -> npt.NDArray[np.uint8]:
        return self.device.pinned(nbytes)


def heap_memory(device: str, heap: str) -> CudaHeapMemory[Any]:
    """Memory for a heap of its own; see ``Backend.heap_memory``."""
    kinds: dict[str, type[CudaHeapMemory[Any]]] = {"device": DeviceHeapMemory, "pinned": PinnedHeapMemory}
    if heap not in kinds:
        raise SpecError(f"heap is 'device' or 'pinned', got {heap!r}")
    return kinds[heap](opened.device(device), (heap_memory, (device, heap)))


def _packed(streams: Streams) -> npt.NDArray[np.uint8]:
    assert isinstance(streams, Segments)
    packed = np.empty(streams.nbytes, np.uint8)
    streams.pack(packed)
    return packed
