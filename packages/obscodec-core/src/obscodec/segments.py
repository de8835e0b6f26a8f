"""Segments: many streams in few buffers, the form in which codecs and heaps hand streams to each other."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream, DTypeError
from obscodec.state import State, array_of, check_range, part_of

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segments:
    """``n`` streams: stream ``i`` is ``buffers[which[i]][offsets[i] : offsets[i] + lengths[i]]``.

    A sequence of ``u8`` views. It keeps its buffers alive, and nobody changes their bytes.

    Attributes:
        buffers: the memory of the streams, each ``u8[:]``.
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
    _addresses: Ints | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def located(
        cls, buffers: tuple[Bytes, ...], which: Ints, offsets: Ints, lengths: Ints, addresses: Ints | None
    ) -> Segments:
        """Streams with known addresses, ``i64[n]``: numpy takes over a microsecond to find that of a buffer."""
        segments = cls(buffers, which, offsets, lengths)
        object.__setattr__(segments, "_addresses", addresses)
        return segments

    @classmethod
    def packed(cls, buffer: Bytes, lengths: Ints) -> Segments:
        """Streams that lie in one buffer, each behind the one before it."""
        offsets = np.zeros(len(lengths), np.int64)
        np.cumsum(lengths[:-1], out=offsets[1:])
        return cls((buffer,), np.zeros(len(lengths), np.int64), offsets, lengths)

    @classmethod
    def of(cls, streams: Sequence[bytes | bytearray | memoryview | Bytes]) -> Segments:
        """Streams given one by one, copied into one buffer.

        Raises:
            DTypeError: a stream has no bytes.
        """
        try:
            views = [np.frombuffer(s, np.uint8).data for s in streams]
        except TypeError:
            raise DTypeError(f"streams are a list of bytes, or of arrays u8[:], got {reprlib.repr(streams)}") from None
        return cls.packed(np.frombuffer(b"".join(views), np.uint8), np.array([len(v) for v in views], np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Segments]) -> Segments:
        """The streams of all ``parts``, in order and without a copy of their bytes."""
        firsts = np.cumsum([0, *(len(p.buffers) for p in parts)])
        return cls.located(
            tuple(buffer for p in parts for buffer in p.buffers),
            np.concatenate([p.which + first for p, first in zip(parts, firsts, strict=False)]),
            np.concatenate([p.offsets for p in parts]),
            np.concatenate([p.lengths for p in parts]),
            np.concatenate([p.addresses() for p in parts]),
        )

    def take(self, which: slice | npt.NDArray[np.generic]) -> Segments:
        """The streams in a slice, or at the positions in an index array."""
        addresses = None if self._addresses is None else self._addresses[which]
        return self.located(self.buffers, self.which[which], self.offsets[which], self.lengths[which], addresses)

    def behind(self, starts: Ints) -> Segments:
        """What each stream has behind its first ``starts[i]`` bytes."""
        addresses = None if self._addresses is None else self._addresses + starts
        return self.located(self.buffers, self.which, self.offsets + starts, self.lengths - starts, addresses)

    def contiguous(self) -> Segments:
        """These streams, copied if a buffer has strides."""
        if all(buffer.flags.c_contiguous for buffer in self.buffers):
            return self
        return Segments.of([np.ascontiguousarray(stream) for stream in self])

    @property
    def nbytes(self) -> int:
        """Bytes of all streams together."""
        return int(self.lengths.sum())

    def addresses(self) -> Ints:
        """``i64[n]``: the address of each stream, for compiled kernels; valid while this object lives."""
        if self._addresses is not None:
            return self._addresses
        bases = np.array([buffer.ctypes.data for buffer in self.buffers], np.int64)
        addresses: Ints = bases[self.which] + self.offsets
        return addresses

    def inside(self) -> npt.NDArray[np.bool_]:
        """``bool[n]``: which streams lie within their buffer; all do, unless somebody made them up."""
        nbytes = np.array([buffer.nbytes for buffer in self.buffers], np.int64)[self.which]
        inside: npt.NDArray[np.bool_] = (self.offsets >= 0) & (self.lengths >= 0)
        inside &= self.offsets <= nbytes - self.lengths
        return inside

    def pack(self, out: Bytes) -> None:
        """Copy all streams into ``out``, each behind the one before it."""
        if len(self) == 1:
            out[: self.lengths[0]] = self[0]
            return
        at, target = 0, out.data  # a slice of it takes less than one of the array
        for which, start, end in self._runs():
            target[at : at + end - start] = self.buffers[which].data[start:end]
            at += end - start

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """The buffer, the begin and the end of each run of streams without gaps in memory."""
        ends = self.offsets + self.lengths
        begins = np.ones(len(self), np.bool_)
        begins[1:] = (self.offsets[1:] != ends[:-1]) | (self.which[1:] != self.which[:-1])
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(self)) - 1 if len(first) else first
        return zip(self.which[first].tolist(), self.offsets[first].tolist(), ends[last].tolist(), strict=True)

    def state(self) -> State:
        """The streams, copied: see ``obscodec.state``."""
        packed = b"".join([self.buffers[which].data[start:end] for which, start, end in self._runs()])
        return {"bytes": np.frombuffer(packed, np.uint8), "lengths": self.lengths}

    @classmethod
    def from_state(cls, state: State) -> Segments:
        """Streams with this :meth:`state`; CorruptStream if no streams have it."""
        packed, lengths = array_of(state, "bytes", np.uint8, (None,)), array_of(state, "lengths", np.int64, (None,))
        check_range("lengths", lengths, 0, packed.size)
        if lengths.astype(np.float64).sum() != packed.size:
            raise CorruptStream(f"streams have {lengths.astype(object).sum()} bytes, there are {packed.size}")
        return cls.packed(packed, lengths)

    def __reduce__(self) -> tuple[object, ...]:
        return Segments.from_state, (self.state(),)  # without other bytes of the buffers

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> Bytes:
        start = self.offsets[i]
        stream: Bytes = self.buffers[self.which[i]][start : start + self.lengths[i]]
        return stream

    def __iter__(self) -> Iterator[Bytes]:
        for which, start, length in zip(self.which.tolist(), self.offsets.tolist(), self.lengths.tolist(), strict=True):
            yield self.buffers[which][start : start + length]


def joined(*parts: bytes | memoryview) -> Bytes:
    """Bytes one behind the other. Not by ``np.concatenate``: numpy keeps seven freed arrays of each small size."""
    return np.frombuffer(b"".join(parts), np.uint8)


def put_streams(streams: Iterable[bytes | Bytes], out: Bytes) -> list[int]:
    """Write streams into ``out``, each behind the one before it; returns the length of each."""
    lengths = []
    end = 0
    for stream in streams:
        out[end : end + len(stream)] = np.frombuffer(stream, np.uint8)
        lengths.append(len(stream))
        end += len(stream)
    return lengths


def segments_of(state: State, name: str) -> Segments:
    """Streams among the values of a state, which has them as their own state."""
    return Segments.from_state(part_of(state, name, dict))
