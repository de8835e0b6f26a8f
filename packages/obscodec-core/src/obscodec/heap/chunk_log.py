"""ChunkLog: memory that is written from front to back, and released chunk by chunk once its streams are dead.

Streams are written to the end of the newest chunk, and never changed. The log counts the bytes of dead streams, and
releases a chunk that has no live one left. A chunk that is full can move to a file.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

import numpy as np
import numpy.typing as npt

from obscodec.errors import HeapFull
from obscodec.runtime import MappedFile, in_pages, is_in_file, new_chunk
from obscodec.segments import Bytes, Ints, Segments

MIN_CHUNK_NBYTES = 1 << 16
_MAX_CHUNK_NBYTES = 1 << 21  # moving one takes 1 to 2 ms, the longest pause: benchmarks/heap_pauses.py
_MIN_CHUNK_STREAMS = 16  # the last stream may leave room at the end of a chunk: a sixteenth of it at most
_MAX_CHUNK_STREAMS = 1 << 11  # moving more takes longer, too, even if they are empty
_NO_CHUNK = np.empty(0, np.uint8)  # in the place of a chunk; only empty streams lie in it

Allocate = Callable[[int], Bytes]  # the memory of a chunk of so many bytes


@dataclass(slots=True)
class Chunk:
    """A piece of the log: memory that is written from front to back, each byte at most once, up to ``end``.

    ``n_streams`` were written, of which ``n_live`` are live, and have ``live_bytes``.
    """

    memory: Bytes
    nbytes: int
    end: int = 0
    live_bytes: int = 0
    n_live: int = 0
    n_streams: int = 0

    @property
    def is_spilled(self) -> bool:
        """Whether its memory lies in a file."""
        return is_in_file(self.memory)


class ChunkLog:
    """Chunks, by number. Not safe to use from several threads: its heap locks.

    Attributes:
        max_bytes: the most bytes of chunks to reserve, None for no limit.
        allocate: returns the memory of a new chunk.
        chunks: the chunks, the oldest first; numbers begin at 1, so that a table of zeros names no chunk.
        memories: the memory of each chunk, by number, an empty array for none; replaced, never changed.
        mapped: the files that chunks are parts of, by number of the chunk; replaced, never changed.
        addresses: ``i64[:]``, where each chunk begins, by number, 0 for none; replaced, never changed.
        newest: the number of the chunk that is written to, 0 for none.
        written_bytes: bytes that are written in all chunks, dead ones included.
        reserved_bytes: bytes of the chunks in memory.
        disk_bytes: bytes of the chunks in files, all of which are written.
        disk_live_bytes: bytes of live streams there.
    """

    def __init__(self, max_bytes: int | None, allocate: Allocate) -> None:
        self.max_bytes = max_bytes
        self.allocate = allocate
        self.chunks: dict[int, Chunk] = {}
        self.memories: tuple[Bytes, ...] = (_NO_CHUNK,)
        self.mapped: dict[int, MappedFile] = {}
        self.addresses = np.zeros(1, np.int64)
        self.newest = 0
        self.n_streams = 0
        self.live_bytes = 0
        self.written_bytes = 0
        self.reserved_bytes = 0
        self.disk_bytes = 0
        self.disk_live_bytes = 0

    def plan(self, lengths: Ints, above: int = 0) -> list[tuple[int, slice]]:
        """Decide which streams go to which chunk, and add the chunks that this takes.

        Raises:
            HeapFull: the chunks exceed ``max_bytes`` by more than ``above``, or there is no memory; no chunk was added.
        """
        newest, first, chunk = self.newest, 0, self.chunks.get(self.newest)
        room, n_room = (chunk.nbytes - chunk.end, _MAX_CHUNK_STREAMS - chunk.n_streams) if chunk else (0, 0)
        if len(lengths) <= n_room and int(lengths.sum()) <= room:  # nearly always
            return [(newest, slice(0, len(lengths)))]
        ends = np.append(0, np.cumsum(lengths))
        pieces: list[tuple[int, slice]] = []
        added: list[int] = []
        while True:
            last = int(np.searchsorted(ends, ends[first] + room, side="right")) - 1
            last = min(last, first + n_room)
            if last > first:
                pieces.append((newest, slice(first, last)))
                first = last
            if first == len(lengths):
                left, self.newest = self.newest, newest
                if left not in (newest, pieces[0][0]):
                    self._close(left)
                return pieces
            wanted = int(ends[min(first + _MAX_CHUNK_STREAMS, len(lengths))] - ends[first])
            try:
                newest = self._add_chunk(int(lengths[first]), wanted, above)
            except HeapFull as error:
                for number in added:
                    self.drop(number)
                raise HeapFull(f"{ends[-1]} bytes do not fit: {error}") from None
            added.append(newest)
            room, n_room = self.chunks[newest].nbytes, _MAX_CHUNK_STREAMS

    def write(self, streams: Segments, pieces: list[tuple[int, slice]]) -> npt.NDArray[np.uint32]:
        """Write streams to the ends of the chunks that :meth:`plan` chose. They are dead until :meth:`enliven`.

        Returns:
            ``u32[n, 3]``, the chunk of each stream, its offset there, and its bytes.
        """
        entries = np.empty((len(streams.lengths), 3), np.uint32)
        entries[:, 2] = streams.lengths
        for number, part in pieces:
            some = streams if len(pieces) == 1 else streams.take(part)
            chunk, lengths = self.chunks[number], some.lengths
            some.pack(chunk.memory[chunk.end : chunk.end + some.nbytes])
            ends: Ints = chunk.end + np.cumsum(lengths)
            entries[part, 0], entries[part, 1] = number, ends - lengths
            self.written_bytes += int(ends[-1]) - chunk.end
            chunk.end = int(ends[-1])
            chunk.n_streams += len(lengths)
            if number != self.newest:
                self._close(number)
        return entries

    def adopt(self, streams: Segments) -> npt.NDArray[np.uint32] | None:
        """Make each buffer of some streams a chunk, without a copy; for an empty log, before :meth:`recount`.

        Returns:
            What :meth:`write` returns; None if there is a limit of memory, or a buffer is no chunk of this log.
        """
        most = 2 * _MAX_CHUNK_NBYTES
        if self.max_bytes is not None or self.allocate is not new_chunk or max(map(len, streams.buffers)) > most:
            return None
        n_streams = np.bincount(streams.which, minlength=len(streams.buffers)).tolist()
        for number, (memory, n) in enumerate(zip(streams.buffers, n_streams, strict=True), 1):
            self.chunks[number] = Chunk(memory, len(memory), end=len(memory), n_streams=n)
        files = {number: MappedFile.behind(memory) for number, memory in enumerate(streams.buffers, 1)}
        self.mapped = {number: file for number, file in files.items() if file is not None}
        self.memories = (_NO_CHUNK, *streams.buffers)
        self.addresses = np.array([0, *(memory.ctypes.data for memory in streams.buffers)], np.int64)
        return np.stack([1 + streams.which, streams.offsets, streams.lengths], axis=1).astype(np.uint32)

    def check_files(self, numbers: Iterable[int]) -> None:
        """Before chunks are read: refuse files that they are parts of and that are shorter than they were."""
        for file in {mapped for number in numbers if (mapped := self.mapped.get(number)) is not None}:
            file.check()

    def count(self, entries: npt.NDArray[np.uint32], before: npt.NDArray[np.int64]) -> set[int]:
        """Count written streams as live, and those that they replace as dead; return the chunks of these.

        ``entries`` is what :meth:`write` returned; ``before``, ``i64[3, n]``, has the chunk, offset and length of each
        replaced stream; chunk 0 for none.
        """
        self.enliven(entries[:, 0].astype(np.int64), entries[:, 2].astype(np.int64))
        return self.enliven(before[0], before[2], -1)

    def enliven(self, numbers: Ints, lengths: Ints, sign: int = 1) -> set[int]:
        """Count streams as live, by their chunks and lengths; return the chunks. Number 0 is of no stream.

        With the ``sign`` -1, they count as dead.
        """
        chunks = set(numbers.tolist()) - {0}
        for number in chunks:
            chunk, inside = self.chunks[number], numbers == number
            nbytes = sign * int(lengths[inside].sum())
            chunk.live_bytes += nbytes
            chunk.n_live += sign * int(np.count_nonzero(inside))
            if chunk.is_spilled:
                self.disk_live_bytes += nbytes
        self.n_streams += sign * int(np.count_nonzero(numbers))
        self.live_bytes += sign * int(lengths.sum())
        return chunks

    def recount(self, numbers: Ints, lengths: Ints) -> None:
        """Count anew after a call that ended in the middle, by the chunks and lengths of all live streams."""
        for number, memory in enumerate(self.memories):
            there = self.chunks[number].memory if number in self.chunks else _NO_CHUNK
            if memory is not there:
                self._set_memory(number, there)
        n = max(self.chunks, default=0) + 1
        n_live, live_bytes = np.bincount(numbers, minlength=n), np.bincount(numbers, lengths, minlength=n)
        for number, chunk in self.chunks.items():
            chunk.n_live, chunk.live_bytes = int(n_live[number]), int(live_bytes[number])
        self.n_streams, self.live_bytes = len(numbers), int(lengths.sum())
        self.written_bytes = sum(chunk.end for chunk in self.chunks.values())
        self._count_memory()
        if self.newest not in self.chunks or not self.chunks[self.newest].n_live:
            self.newest = 0  # it may lie above ``max_bytes``, added for streams that were about to move
        self.drop_dead(set(self.chunks))

    def drop_dead(self, numbers: set[int]) -> None:
        """Release those of the chunks that have no live stream, but not the newest one, which is still written to."""
        for number in numbers:
            if number != self.newest and self.chunks[number].n_live == 0:
                self.drop(number)

    @property
    def dead_bytes(self) -> int:
        """Bytes of dead streams in memory."""
        return self.written_bytes - self.disk_bytes - self.live_bytes + self.disk_live_bytes

    @property
    def wastes_memory(self) -> bool:
        """Whether memory has many dead bytes against the live ones."""
        return self.dead_bytes > (self.live_bytes - self.disk_live_bytes) // 4 + 2 * MIN_CHUNK_NBYTES

    @property
    def wastes_disk(self) -> bool:
        """Whether files have more dead bytes than live ones: to give them back, live streams come back to memory."""
        return self.disk_bytes - self.disk_live_bytes > self.disk_live_bytes + _MAX_CHUNK_NBYTES

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that chunks take: those of the system's memory as far as their pages are written."""
        chunk = self.chunks.get(self.newest)
        unwritten = max(0, chunk.nbytes - in_pages(chunk.end)) if chunk and self.allocate is new_chunk else 0
        return self.reserved_bytes - unwritten

    @property
    def room_bytes(self) -> int:
        """Bytes of the newest chunk that are not written yet."""
        chunk = self.chunks.get(self.newest)
        return chunk.nbytes - chunk.end if chunk else 0

    def deadest(self, *, spilled: bool = False) -> int:
        """The number of the chunk with most dead bytes, in memory or in a file; there is one with dead bytes."""
        numbers = [number for number, chunk in self.chunks.items() if chunk.is_spilled == spilled]
        return max(numbers, key=lambda n: self.chunks[n].end - self.chunks[n].live_bytes)

    def oldest(self, nbytes: int) -> dict[int, Chunk]:
        """The oldest chunks in memory, at least ``nbytes`` of them if there are so many; never the newest."""
        found: dict[int, Chunk] = {}
        for number, chunk in self.chunks.items():
            if nbytes > 0 and number != self.newest and chunk.end and not chunk.is_spilled:
                found[number] = chunk
                nbytes -= chunk.nbytes
        return found

    def move(self, number: int, chunk: Chunk, memory: Bytes) -> int:
        """Have a chunk lie in other memory with the same bytes; returns how many bytes of memory that frees.

        Readers that hold the former memory go on. It does nothing if the log has released the chunk meanwhile.
        """
        if self.chunks.get(number) is not chunk or number == self.newest:
            return 0
        chunk.memory = memory
        self._set_memory(number, memory)
        self._count_memory()
        return chunk.nbytes

    def drop(self, number: int) -> None:
        """Release a chunk."""
        if number == self.newest:
            self.newest = 0
        chunk = self.chunks.pop(number)
        self.written_bytes -= chunk.end
        if chunk.is_spilled:
            self.disk_bytes -= chunk.end
        else:
            self.reserved_bytes -= chunk.nbytes
        self._set_memory(number, _NO_CHUNK)

    def _add_chunk(self, least: int, wanted: int, above: int) -> int:
        """Add a chunk of ``least`` bytes or more; more if the heap is large, or if ``wanted`` bytes are to come."""
        fillable = _MAX_CHUNK_STREAMS * (self.live_bytes // max(1, self.n_streams) + 1)
        nbytes = max(min(self.live_bytes // 32, fillable), wanted, _MIN_CHUNK_STREAMS * least, MIN_CHUNK_NBYTES)
        nbytes = max(min(nbytes, _MAX_CHUNK_NBYTES), least)
        nbytes = in_pages(nbytes)
        if self.max_bytes is not None and self.reserved_bytes + nbytes > self.max_bytes + above:
            nbytes = self.max_bytes + above - self.reserved_bytes
            if nbytes < max(least, 1):
                raise HeapFull(
                    f"the heap has reserved {self.reserved_bytes} bytes for {self.live_bytes} live ones, "
                    f"max_bytes is {self.max_bytes}: free slots, or allow more"
                )
        memory, nbytes = self._new_memory(nbytes, least)
        number = next(number for number in count(1) if number not in self.chunks)
        self._set_memory(number, memory)
        self.chunks[number] = Chunk(memory, nbytes)
        self.reserved_bytes += nbytes
        return number

    def _close(self, number: int) -> None:
        """Do not count the pages at the end of a chunk that will never be written: they take no memory."""
        chunk = self.chunks.get(number)
        if chunk is not None and self.allocate is new_chunk and not chunk.is_spilled:
            before, chunk.nbytes = chunk.nbytes, min(chunk.nbytes, in_pages(chunk.end))
            self.reserved_bytes -= before - chunk.nbytes

    def _new_memory(self, nbytes: int, least: int) -> tuple[Bytes, int]:
        """Memory for a chunk of ``nbytes``, or of as few as ``least`` where memory is short; and its bytes."""
        while True:
            try:
                return self.allocate(nbytes), nbytes
            except HeapFull:
                if nbytes <= max(least, in_pages(1)):
                    raise
                nbytes = max(nbytes // 2, least)

    def _set_memory(self, number: int, memory: Bytes) -> None:
        if number in self.mapped:
            self.mapped = {of: file for of, file in self.mapped.items() if of != number}
        n_added = max(0, number + 1 - len(self.memories))
        memories = [*self.memories, *[_NO_CHUNK] * n_added]
        addresses = np.append(self.addresses, np.zeros(n_added, np.int64))
        memories[number], addresses[number] = memory, memory.ctypes.data if len(memory) else 0
        vars(self).update(memories=tuple(memories), addresses=addresses)  # both in one step: they belong together

    def _count_memory(self) -> None:
        """Count the bytes of chunks in memory and in files anew."""
        spilled = [chunk for chunk in self.chunks.values() if chunk.is_spilled]
        self.disk_bytes = sum(chunk.end for chunk in spilled)
        self.disk_live_bytes = sum(chunk.live_bytes for chunk in spilled)
        self.reserved_bytes = sum(chunk.nbytes for chunk in self.chunks.values() if not chunk.is_spilled)
