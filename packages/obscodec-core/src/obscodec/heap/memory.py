"""HeapMemory: where the chunks of a slot heap lie. In host memory, or in the memory of a device."""

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from obscodec.runtime import new_chunk
from obscodec.segments import Bytes, Ints, Segments

C = TypeVar("C")


class Streams(Protocol):
    """Streams to write into a memory: :class:`Segments` into any; those in a form of its own into that one alone."""

    @property
    def lengths(self) -> Ints:
        """``i64[n]``, the bytes of each."""

    @property
    def nbytes(self) -> int:
        """Bytes of all streams together."""

    def take(self, which: slice | npt.NDArray[np.generic]) -> Self:
        """Some of the streams."""

    def __len__(self) -> int:
        """How many there are."""


class Places(NamedTuple):
    """Where streams lie, for kernels.

    Attributes:
        addresses: ``u64[n]``, the first byte of each; 0 for a slot that holds nothing.
        lengths: ``i64[n]``, its bytes.
        memories: the chunks that there are. While somebody holds this, what the addresses point to stays as it is; on a
            device it is held until the kernels that use the addresses are done.
    """

    addresses: npt.NDArray[np.uint64]
    lengths: Ints
    memories: tuple[object, ...]


class HeapMemory(ABC, Generic[C]):
    """Makes the chunks of one heap, and moves streams into and out of them. Its heap calls it under its lock.

    A chunk is what :meth:`new` gives. Streams are written into it from front to back, each byte at most once.

    Attributes:
        no_chunk: what stands for a chunk that is not there; all its streams are empty.
    """

    no_chunk: C

    @abstractmethod
    def new(self, nbytes: int) -> C:
        """A chunk of ``nbytes``.

        Raises:
            HeapFull: there is not enough memory.
        """

    def drop(self, chunk: C, *, used: bool) -> None:
        """The heap has released ``chunk``.

        Args:
            chunk: a chunk that :meth:`new` gave.
            used: whether streams were ever written to it: what writes or reads them may still be at work.
        """

    def wait(self) -> None:
        """Wait until nothing reads or writes it any more that was queued by now."""

    @abstractmethod
    def address(self, chunk: C) -> int:
        """Where the chunk begins, for kernels that run where this memory is."""

    @abstractmethod
    def write(self, chunk: C, start: int, streams: Streams) -> None:
        """Copy streams into a chunk from the byte ``start`` on, each behind the one before it.

        Raises:
            HeapFull: there is not enough memory to do that; nothing was written.
        """

    @abstractmethod
    def within(self, chunk: C, offsets: Ints, lengths: Ints) -> Streams:
        """Streams in a chunk, to :meth:`write` into another one."""

    @abstractmethod
    def streams(self, chunks: tuple[C, ...], which: Ints, offsets: Ints, lengths: Ints, bases: Ints) -> Segments:
        """Streams in host memory, where nobody changes them: a view or a copy.

        Args:
            chunks: by number; :attr:`no_chunk` for a number that is not used, 0 among them.
            which: ``i64[n]``, the number of the chunk of each stream; 0 for an empty one.
            offsets: ``i64[n]``, its first byte in that chunk.
            lengths: ``i64[n]``, its bytes.
            bases: ``i64[n_chunks]``, the addresses of the chunks, 0 for none.
        """


class HostMemory(HeapMemory[Bytes]):
    """Chunks that come from the operating system. There is one, :data:`HOST`."""

    no_chunk = np.empty(0, np.uint8)

    def new(self, nbytes: int) -> Bytes:
        """See :func:`obscodec.runtime.pages.new_chunk`."""
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
