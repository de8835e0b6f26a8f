"""Segments: many streams in few buffers, the only thing that crosses between codecs and heaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segments:
    """``n`` streams: stream ``i`` is ``buffers[which[i]][offsets[i] : offsets[i] + lengths[i]]``.

    A sequence of ``u8`` views. Whoever holds it keeps the bytes alive, and nobody changes them.

    Attributes:
        buffers: the memory that the streams lie in, each ``u8[:]``.
        which: ``i64[n]``, the buffer of each stream.
        offsets: ``i64[n]``, its first byte in that buffer.
        lengths: ``i64[n]``, its bytes.

    Example:
        >>> [bytes(s) for s in Segments.of([b"ab", b"", b"c"])]
        [b'ab', b'', b'c']
    """

    buffers: tuple[Bytes, ...]
    which: Ints
    offsets: Ints
    lengths: Ints

    @classmethod
    def packed(cls, buffer: Bytes, lengths: Ints) -> Segments:
        """Streams that lie in one buffer, each behind the one before it."""
        offsets = np.zeros(len(lengths), np.int64)
        np.cumsum(lengths[:-1], out=offsets[1:])
        return cls((buffer,), np.zeros(len(lengths), np.int64), offsets, lengths)

    @classmethod
    def of(cls, streams: Sequence[bytes | bytearray | memoryview | Bytes]) -> Segments:
        """Streams given one by one, copied into one buffer."""
        views = [np.frombuffer(s, np.uint8) for s in streams]
        buffer = np.concatenate(views) if views else np.empty(0, np.uint8)
        return cls.packed(buffer, np.array([len(v) for v in views], np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of all streams together."""
        return int(self.lengths.sum())

    def addresses(self) -> npt.NDArray[np.uint64]:
        """``u64[n]``: where each stream begins in memory, for compiled kernels; valid while this object lives."""
        bases = np.array([b.ctypes.data for b in self.buffers], np.uint64)
        addresses: npt.NDArray[np.uint64] = bases[self.which] + self.offsets.astype(np.uint64)
        return addresses

    def pack(self, out: Bytes) -> None:
        """Copy all streams into ``out``, each behind the one before it."""
        end = 0
        for stream in self:
            out[end : end + len(stream)] = stream
            end += len(stream)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> Bytes:
        start = self.offsets[i]
        stream: Bytes = self.buffers[self.which[i]][start : start + self.lengths[i]]
        return stream

    def __iter__(self) -> Iterator[Bytes]:
        for which, start, length in zip(self.which.tolist(), self.offsets.tolist(), self.lengths.tolist(), strict=True):
            yield self.buffers[which][start : start + length]
