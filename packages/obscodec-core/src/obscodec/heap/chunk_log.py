"""ChunkLog: memory that is written from front to back, and given back in pieces once what is in them is dead.

Streams are written to the end of the newest chunk, and never changed. A stream that is no longer wanted is dead: its
bytes are counted, and when no stream of a chunk is left, the chunk goes.
"""

import mmap
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.errors import HeapFull
from obscodec.heap.memory import HeapMemory, Streams
from obscodec.segments import Ints

MIN_CHUNK_NBYTES = 1 << 16
_MAX_CHUNK_NBYTES = 1 << 21  # moving one takes 1 to 2 ms, the longest pause: benchmarks/heap_pauses.py
_MIN_CHUNK_STREAMS = 16  # at the end of a chunk there is room that one more would not fit into
_MAX_CHUNK_STREAMS = 1 << 11  # likewise


@dataclass(slots=True)
class Chunk:
    """A piece of the log.

    Attributes:
        memory: what the memory of the heap made.
        nbytes: its bytes, written up to ``end``.
        end: bytes that are written.
        live_bytes: of these, those of streams that are wanted.
        n_live: how many streams that is.
        n_streams: streams that are written, dead ones included.
    """

    memory: Any
    nbytes: int
    end: int = 0
    live_bytes: int = 0
    n_live: int = 0
    n_streams: int = 0


class ChunkLog:
    """Chunks, by number. Not safe to use from several threads: its heap locks.

    Args:
        max_bytes: the most bytes of chunks to reserve, None for no limit.
        memory: where the chunks lie.

    Attributes:
        chunks: the chunks; numbers begin at 1, so that a table of zeros says: none.
        memories: for each number the memory of that chunk, ``memory.no_chunk`` for none; replaced and never changed.
        addresses: ``i64[:]``, where they begin, likewise; 0 for none.
        newest: the number of the one that is written to, 0 for none.
        n_streams: live streams.
        live_bytes: their bytes.
        written_bytes: bytes that are written in the chunks that there are, dead ones included.
    """

    def __init__(self, max_bytes: int | None, memory: HeapMemory[Any]) -> None:
        self.max_bytes = max_bytes
        self.memory = memory
        self.chunks: dict[int, Chunk] = {}
        self.memories: tuple[Any, ...] = (memory.no_chunk,)
        self.addresses = np.zeros(1, np.int64)
        self.newest = 0
        self.n_streams = 0
        self.live_bytes = 0
        self.written_bytes = 0

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the chunks."""
        return sum(chunk.nbytes for chunk in self.chunks.values())

    def plan(self, lengths: Ints, above: int = 0) -> list[tuple[int, slice]]:
        """Which streams go to the end of which chunk. Adds the chunks that this takes, or none if they don't fit.

        Raises:
            HeapFull: there is not enough room below ``max_bytes``, and ``above`` bytes more; or no memory.
        """
        room, n_room = self._room()
        if len(lengths) <= n_room and int(lengths.sum()) <= room:  # nearly always
            return [(self.newest, slice(0, len(lengths)))]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        pieces: list[tuple[int, slice]] = []
        added: list[int] = []
        first, newest = 0, self.newest
        while first < len(lengths):
            last = int(np.searchsorted(ends, ends[first] + room, side="right")) - 1
            last = min(last, first + n_room)
            if last > first:
                pieces.append((newest, slice(first, last)))
                first = last
            if first < len(lengths):
                next_chunk = min(first + _MAX_CHUNK_STREAMS, len(lengths))
                try:
                    newest = self._add_chunk(int(lengths[first]), int(ends[next_chunk] - ends[first]), above)
                except BaseException as error:
                    for number in added:
                        self.drop(number)
                    if isinstance(error, HeapFull):
                        raise HeapFull(f"{ends[-1]} bytes do not fit: {error}") from None
                    raise
                added.append(newest)
                room, n_room = self.chunks[newest].nbytes, _MAX_CHUNK_STREAMS
        self.newest = newest
        return pieces

    def write(self, streams: Streams, pieces: list[tuple[int, slice]]) -> npt.NDArray[np.uint32]:
        """Write streams to the ends of chunks. They are dead until they are counted by :meth:`enliven`.

        Args:
            streams: what to write.
            pieces: which of them go to which chunk, as :meth:`plan` tells.

        Returns:
            ``u32[n, 3]``, the chunk of each stream, its offset there, and its bytes.

        Raises:
            HeapFull: there is no memory to do that.
        """
        entries = np.empty((len(streams.lengths), 3), np.uint32)
        for number, part in pieces:
            some = streams if len(pieces) == 1 else streams.take(part)
            entries[part, 0], entries[part, 1] = number, self.append(number, some)
        entries[:, 2] = streams.lengths
        return entries

    def append(self, number: int, streams: Streams) -> Ints:
        """Write streams to the end of a chunk that :meth:`plan` named; their offsets, ``i64[n]``."""
        chunk, lengths = self.chunks[number], streams.lengths
        self.memory.write(chunk.memory, chunk.end, streams)
        ends: Ints = chunk.end + np.cumsum(lengths)
        self.written_bytes += int(ends[-1]) - chunk.end
        chunk.end = int(ends[-1])
        chunk.n_streams += len(lengths)
        return ends - lengths

    def enliven(self, numbers: Ints, lengths: Ints, sign: int = 1) -> set[int]:
        """Count streams as live, by their chunks and lengths; returns the chunks that they are in."""
        chunks = set(numbers.tolist())
        for number in chunks:
            there = numbers == number
            self.chunks[number].live_bytes += sign * int(lengths[there].sum())
            self.chunks[number].n_live += sign * int(np.count_nonzero(there))
        self.n_streams += sign * len(numbers)
        self.live_bytes += sign * int(lengths.sum())
        return chunks

    def bury(self, numbers: Ints, lengths: Ints) -> set[int]:
        """Count streams as dead, by their chunks and lengths; returns the chunks that they are in."""
        return self.enliven(numbers, lengths, -1)

    def recount(self, numbers: Ints, lengths: Ints) -> None:
        """Count anew, after a call that ended in the middle, what the table of slots says is live.

        Args:
            numbers: ``i64[n]``, the chunk of each live stream.
            lengths: ``i64[n]``, its bytes.
        """
        given_back = [number for number in range(1, len(self.memories)) if number not in self.chunks]
        for number in given_back:
            if self.memories[number] is not self.memory.no_chunk:
                self.memory.drop(self.memories[number], used=True)
                self._set_memory(number, self.memory.no_chunk, 0)
        n = max(self.chunks, default=0) + 1
        n_live, live_bytes = np.bincount(numbers, minlength=n), np.bincount(numbers, lengths, minlength=n)
        for number, chunk in self.chunks.items():
            self._set_memory(number, chunk.memory, self.memory.address(chunk.memory))
            chunk.n_live, chunk.live_bytes = int(n_live[number]), int(live_bytes[number])
            chunk.n_streams = max(chunk.n_streams, chunk.n_live)
        self.n_streams, self.live_bytes = len(numbers), int(lengths.sum())
        self.written_bytes = sum(chunk.end for chunk in self.chunks.values())
        if self.newest not in self.chunks or not self.chunks[self.newest].n_live:
            self.newest = 0  # it may have come beyond ``max_bytes``, for streams that were about to move
        self.drop_dead(set(self.chunks))

    def drop_dead(self, numbers: set[int]) -> None:
        """Give back those of the chunks in which no stream is left; the newest one is still written to."""
        for number in numbers:
            if number != self.newest and self.chunks[number].n_live == 0:
                self.drop(number)

    @property
    def deadest(self) -> int:
        """The number of the chunk with most dead bytes."""
        return max(self.chunks, key=lambda n: self.chunks[n].end - self.chunks[n].live_bytes)

    def drop(self, number: int) -> None:
        """Give back a chunk."""
        if number == self.newest:
            self.newest = 0
        chunk = self.chunks.pop(number)
        self.written_bytes -= chunk.end
        self.memory.drop(chunk.memory, used=chunk.end > 0)
        self._set_memory(number, self.memory.no_chunk, 0)

    def _room(self) -> tuple[int, int]:
        """Bytes and streams that the newest chunk can still take."""
        chunk = self.chunks.get(self.newest)
        if chunk is None:
            return 0, 0
        return chunk.nbytes - chunk.end, max(0, _MAX_CHUNK_STREAMS - chunk.n_streams)

    def _add_chunk(self, least: int, wanted: int, above: int) -> int:
        """Add a chunk of ``least`` bytes or more; larger if the heap is large, or if ``wanted`` bytes are to come."""
        fillable = _MAX_CHUNK_STREAMS * (self.live_bytes // max(1, self.n_streams) + 1)
        nbytes = max(min(self.live_bytes // 32, fillable), wanted, _MIN_CHUNK_STREAMS * least, MIN_CHUNK_NBYTES)
        nbytes = max(min(nbytes, _MAX_CHUNK_NBYTES), least)
        nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        reserved_bytes = self.reserved_bytes
        if self.max_bytes is not None and reserved_bytes + nbytes > self.max_bytes + above:
            nbytes = self.max_bytes + above - reserved_bytes
            if nbytes < max(least, 1):
                raise HeapFull(
                    f"the heap has reserved {reserved_bytes} bytes for {self.live_bytes} live ones, "
                    f"max_bytes is {self.max_bytes}: free slots, or allow more"
                )
        memory, nbytes = self._new_memory(nbytes, least)
        number = next(number for number in count(1) if number not in self.chunks)
        self._set_memory(number, memory, self.memory.address(memory))
        self.chunks[number] = Chunk(memory, nbytes)
        return number

    def _new_memory(self, nbytes: int, least: int) -> tuple[Any, int]:
        """Memory for a chunk of ``nbytes``, or of fewer where there is less, down to ``least``; and its bytes."""
        while True:
            try:
                return self.memory.new(nbytes), nbytes
            except HeapFull:
                if nbytes <= max(least, mmap.PAGESIZE):
                    raise
                nbytes = max(nbytes // 2, least)

    def _set_memory(self, number: int, memory: object, address: int) -> None:
        n = max(number + 1, len(self.memories))
        memories = [*self.memories, *[self.memory.no_chunk] * (n - len(self.memories))]
        addresses = np.zeros(n, np.int64)
        addresses[: len(self.addresses)] = self.addresses
        memories[number], addresses[number] = memory, address
        self.memories, self.addresses = tuple(memories), addresses
