"""HeapMemory: where the chunks of a slot heap lie, in host memory or in the memory of a device.

``offsets`` and ``lengths`` are ``i64[n]`` everywhere: the first byte of each stream in its chunk, and its bytes.
"""

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from obscodec.runtime import new_chunk
from obscodec.segments import Bytes, Ints, Segments

C = TypeVar("C")


class Streams(Protocol):
    """Streams to write into a memory. Each memory takes :class:`Segments`, and may take a form of its own."""

    @property
    def lengths(self) -> Ints:
        """``i64[n]``, the bytes of each stream."""

    @property
    def nbytes(self) -> int:
        """Bytes of all streams together."""

    def take(self, which: slice | npt.NDArray[np.generic]) -> Self:
        """Some of the streams."""

    def __len__(self) -> int:
        """How many streams these are."""


class Places(NamedTuple):
    """Where streams lie, for kernels.

    Attributes:
        addresses: ``u64[n]``, the first byte of each stream; 0 for a slot that holds nothing.
        lengths: ``i64[n]``, the bytes of each stream.
        memories: all chunks. While somebody holds them, the bytes at the addresses stay as they are. On a device, hold
            them until the kernels that use the addresses are done.
    """

    addresses: npt.NDArray[np.uint64]
    lengths: Ints
    memories: tuple[object, ...]


class HeapMemory(ABC, Generic[C]):
    """Makes the chunks of one heap, and copies streams into and out of them. The heap calls it under its lock.

    A chunk is what :meth:`new` returns. The heap writes it from front to back, each byte at most once.

    Attributes:
        no_chunk: stands where there is no chunk; only empty streams lie in it.
    """

    no_chunk: C

    @abstractmethod
    def new(self, nbytes: int) -> C:
        """A chunk of ``nbytes``.

        Raises:
            HeapFull: there is not enough memory.
        """

    def drop(self, chunk: C, *, used: bool) -> None:
        """The heap has released ``chunk``; if it was ever ``used``, kernels may still read or write it."""

    def wait(self) -> None:
        """Wait until all reads and writes that are queued now are done."""

    @abstractmethod
    def address(self, chunk: C) -> int:
        """Where the chunk begins, for kernels that run where this memory is."""

    @abstractmethod
    def write(self, chunk: C, start: int, streams: Streams) -> None:
        """Copy streams into a chunk, one behind the other, from the byte ``start`` on.

        Raises:
            HeapFull: the copy needs more memory than there is; nothing was written.
        """

    @abstractmethod
    def within(self, chunk: C, offsets: Ints, lengths: Ints) -> Streams:
        """Streams in a chunk, to :meth:`write` into another chunk."""

    @abstractmethod
    def streams(self, chunks: tuple[C, ...], which: Ints, offsets: Ints, lengths: Ints, bases: Ints) -> Segments:
        """Streams in host memory, a view or a copy that nobody changes.

        Args:
            chunks: all chunks, by number; :attr:`no_chunk` for 0 and for each number that is not used.
            which: ``i64[n]``, the chunk of each stream, 0 for an empty stream.
            offsets: the first byte of each stream in its chunk.
            lengths: the bytes of each stream.
            bases: ``i64[n_chunks]``, the address of each chunk, 0 for :attr:`no_chunk`.
        """


class HostMemory(HeapMemory[Bytes]):
    """Chunks that come from the operating system. :data:`HOST` is the only instance."""

    no_chunk = np.empty(0, np.uint8)

    def new(self, nbytes: int) -> Bytes:
        """See ``runtime.new_chunk``."""
        return new_chunk(nbytes)

    def address(self, chunk: Bytes) -> int:
        """The address in this process."""
        return chunk.ctypes.data

    def write(self, chunk: Bytes, start: int, streams: Streams) -> None:
        """Copy :class:`Segments`."""
        assert isinstance(streams, Segments)
        streams.pack(chunk[start : start + streams.nbytes])

    def within(self, chunk: Bytes, offsets: Ints, lengths: Ints) -> Segments:
        """A view."""
        return Segments((chunk,), np.zeros(len(lengths), np.int64), offsets, lengths)

    def streams(self, chunks: tuple[Bytes, ...], which: Ints, offsets: Ints, lengths: Ints, bases: Ints) -> Segments:
        """A view."""
        return Segments.located(chunks, which, offsets, lengths, bases)

    def __reduce__(self) -> str:
        return "HOST"


HOST: HeapMemory[Any] = HostMemory()
