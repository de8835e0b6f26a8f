"""SlotHeap: streams of any length, each under an integer, in memory that grows and shrinks with them.

The streams lie in chunks, written from front to back and never changed. So a reader needs no copy and no lock: it
holds the chunks that it reads, and they live as long as it does. Overwriting or freeing a stream only counts its bytes
as dead. A chunk without live bytes is dropped; when dead bytes outweigh the live ones, the chunk with most of them is
emptied by moving its live streams to the front of the log. (The cleaning of log-structured file systems: Rosenblum and
Ousterhout 1992.)
"""

from __future__ import annotations

import mmap
import threading
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from obscodec.chunk import new_chunk
from obscodec.errors import HeapFull, ShapeError, SlotError
from obscodec.segments import Bytes, Ints, Segments

_MIN_CHUNK_NBYTES = 1 << 16
_MAX_CHUNK_NBYTES = 1 << 21  # moving one takes 1 to 2 ms, the longest pause: benchmarks/heap_pauses.py
_MIN_CHUNK_STREAMS = 16  # at the end of a chunk there is room that one more would not fit into
_MAX_CHUNK_STREAMS = 1 << 11  # likewise
_MAX_STREAM_NBYTES = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class HeapStats:
    """What a heap holds.

    Attributes:
        n_streams: slots that hold a stream.
        live_bytes: bytes of these streams.
        reserved_bytes: bytes of the chunks; what is not written yet of the newest one is not resident.
        table_bytes: bytes of the tables that find a stream, for the slots that were ever used.
    """

    n_streams: int
    live_bytes: int
    reserved_bytes: int
    table_bytes: int


@dataclass(slots=True)
class _Chunk:
    memory: Bytes
    address: int
    end: int = 0
    live_bytes: int = 0
    n_live: int = 0
    n_streams: int = 0  # written, dead ones included


class SlotHeap:
    """Streams under the integers ``0..n_slots-1``.

    Safe to use from several threads. What :meth:`get` gave stays as it was, whatever is written later.

    Args:
        n_slots: how many slots there are; a slot that was never used costs nothing.
        max_bytes: the most bytes of chunks to reserve, None for no limit; one more chunk for a moment while one is
            emptied.

    Example:
        >>> heap = SlotHeap(10)
        >>> heap.put([3, 7], Segments.of([b"abc", b"de"]))
        >>> [bytes(stream) for stream in heap.get([7, 3])]
        [b'de', b'abc']
    """

    def __init__(self, n_slots: int, *, max_bytes: int | None = None) -> None:
        self.n_slots = n_slots
        self.max_bytes = max_bytes
        self._lock = threading.RLock()
        self._chunks: dict[int, _Chunk] = {}
        self._newest = 0  # chunk numbers begin at 1, so that a table of zeros says: empty
        self._unused_numbers: list[int] = []
        self._chunk_of = np.zeros(n_slots, np.int32)
        self._offsets = np.zeros(n_slots, np.uint32)
        self._lengths = np.zeros(n_slots, np.uint32)
        self._n_used = 0  # no slot from here on was ever used
        self._n_streams = 0
        self._live_bytes = 0
        self._written_bytes = 0  # in the chunks that there are, dead ones included
        self._reserved_bytes = 0

    def put(self, slots: npt.ArrayLike, streams: Segments) -> None:
        """Store one stream in each slot; what was there before is overwritten.

        Either all streams are stored or none. If a slot occurs twice, its last stream stays.

        Raises:
            SlotError: a slot is out of range.
            ShapeError: there are not as many streams as slots, or a stream has 4 GiB or more.
            HeapFull: there is not enough room below ``max_bytes``, even before what is overwritten is dropped.
        """
        slots = self._checked(slots)
        if len(slots) != len(streams):
            raise ShapeError(f"{len(slots)} slots take {len(slots)} streams, got {len(streams)}")
        if len(slots) == 0:
            return
        if int(streams.lengths.max()) > _MAX_STREAM_NBYTES:
            raise ShapeError(f"a stream has at most {_MAX_STREAM_NBYTES} bytes, got {int(streams.lengths.max())}")
        slots, streams = _last_of_each(slots, streams)
        with self._lock:
            pieces = self._make_room(streams.lengths)
            overwritten = self._forget(slots)
            for number, part in pieces:
                self._append(number, slots[part], streams.take(part))
            self._drop_dead(overwritten)
            self._clean()

    def get(self, slots: npt.ArrayLike) -> Segments:
        """The streams in ``slots``, without a copy.

        Raises:
            SlotError: a slot is out of range, or holds nothing.
        """
        slots = self._checked(slots)
        with self._lock:
            numbers, which = np.unique(self._chunk_of[slots], return_inverse=True)
            if len(numbers) and numbers[0] == 0:
                raise SlotError(f"slot {int(slots[self._chunk_of[slots] == 0][0])} holds nothing")
            chunks = [self._chunks[number] for number in numbers.tolist()]
            return Segments(
                tuple(chunk.memory for chunk in chunks),
                which,
                self._offsets[slots].astype(np.int64),
                self._lengths[slots].astype(np.int64),
                np.array([chunk.address for chunk in chunks], np.uint64),
            )

    def free(self, slots: npt.ArrayLike) -> None:
        """Empty ``slots``; those that are empty already stay so.

        Raises:
            SlotError: a slot is out of range.
        """
        slots = self._checked(slots)
        if len(slots) > 1:
            slots = np.unique(slots)
        with self._lock:
            self._drop_dead(self._forget(slots))
            self._clean()

    def holds(self, slots: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """``bool[n]``: which of ``slots`` hold a stream.

        Raises:
            SlotError: a slot is out of range.
        """
        held: npt.NDArray[np.bool_] = self._chunk_of[self._checked(slots)] != 0
        return held

    def grow(self, n_slots: int) -> None:
        """Make room for more slots; there are never fewer than before."""
        with self._lock:
            added = max(0, n_slots - self.n_slots)
            for name in ("_chunk_of", "_offsets", "_lengths"):
                table = getattr(self, name)
                setattr(self, name, np.concatenate([table, np.zeros(added, table.dtype)]))
            self.n_slots += added

    def compact(self) -> None:
        """Move streams together until no chunk but the newest has dead bytes; give back what that frees."""
        with self._lock:
            for number in [n for n, chunk in self._chunks.items() if chunk.live_bytes < max(chunk.end, 1)]:
                self._empty(number)

    def stats(self) -> HeapStats:
        """What the heap holds now."""
        table_bytes = self._n_used * (self._chunk_of.itemsize + self._offsets.itemsize + self._lengths.itemsize)
        return HeapStats(self._n_streams, self._live_bytes, self._reserved_bytes, table_bytes)

    def __repr__(self) -> str:
        stats = ", ".join(f"{name}={value}" for name, value in asdict(self.stats()).items())
        return f"SlotHeap(n_slots={self.n_slots}, max_bytes={self.max_bytes}, {stats})"

    def __getstate__(self) -> dict[str, object]:
        with self._lock:
            slots = np.flatnonzero(self._chunk_of[: self._n_used])
            streams = self.get(slots)
        buffer = np.empty(streams.nbytes, np.uint8)
        streams.pack(buffer)
        return {
            "n_slots": self.n_slots,
            "max_bytes": self.max_bytes,
            "slots": slots,
            "buffer": buffer,
            "lengths": streams.lengths,
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(state["n_slots"], max_bytes=state["max_bytes"])  # type: ignore[misc]
        self.put(state["slots"], Segments.packed(state["buffer"], state["lengths"]))  # type: ignore[arg-type]

    def _checked(self, slots: npt.ArrayLike) -> Ints:
        checked = np.atleast_1d(np.asarray(slots))
        if checked.size and checked.dtype.kind not in "iu":
            raise SlotError(f"slots are integers, got {checked.dtype}")
        checked = checked.astype(np.int64).reshape(-1)
        if checked.size and not (checked.min() >= 0 and checked.max() < self.n_slots):
            outside = checked[(checked < 0) | (checked >= self.n_slots)][0]
            raise SlotError(f"slots are in 0..{self.n_slots - 1}, got {int(outside)}")
        return checked

    def _forget(self, slots: Ints) -> set[int]:
        """Count the streams in ``slots`` as dead; returns the chunks that they are in."""
        numbers = self._chunk_of[slots]
        used = numbers != 0
        if not used.any():
            return set()
        numbers, lengths = numbers[used], self._lengths[slots[used]].astype(np.int64)
        chunks = set(numbers.tolist())
        for number in chunks:
            there = numbers == number
            self._chunks[number].live_bytes -= int(lengths[there].sum())
            self._chunks[number].n_live -= int(np.count_nonzero(there))
        self._chunk_of[slots] = 0
        self._n_streams -= len(numbers)
        self._live_bytes -= int(lengths.sum())
        return chunks

    def _drop_dead(self, numbers: set[int]) -> None:
        """Give back those of the chunks in which no stream is left; the newest one is still written to."""
        for number in numbers:
            if number != self._newest and self._chunks[number].n_live == 0:
                self._drop(number)

    def _make_room(self, lengths: Ints) -> list[tuple[int, slice]]:
        """:meth:`_plan`, after a clean-up if the streams don't fit before."""
        while True:
            try:
                return self._plan(lengths)
            except HeapFull:
                if self._written_bytes == self._live_bytes:
                    raise
                self._empty(self._deadest())

    def _plan(self, lengths: Ints) -> list[tuple[int, slice]]:
        """Which streams go to the end of which chunk. Adds the chunks that this takes, or none if they don't fit."""
        ends = np.concatenate([[0], np.cumsum(lengths)])
        pieces: list[tuple[int, slice]] = []
        added: list[int] = []
        first, newest = 0, self._newest
        room, n_room = self._room()
        while first < len(lengths):
            last = int(np.searchsorted(ends, ends[first] + room, side="right")) - 1
            last = min(last, first + n_room)
            if last > first:
                pieces.append((newest, slice(first, last)))
                first = last
            if first < len(lengths):
                next_chunk = min(first + _MAX_CHUNK_STREAMS, len(lengths))
                try:
                    newest = self._add_chunk(int(lengths[first]), int(ends[next_chunk] - ends[first]))
                except BaseException as error:
                    for number in added:
                        self._drop(number)
                    if isinstance(error, HeapFull):
                        raise HeapFull(f"{ends[-1]} bytes do not fit: {error}") from None
                    raise
                added.append(newest)
                room, n_room = len(self._chunks[newest].memory), _MAX_CHUNK_STREAMS
        self._newest = newest
        return pieces

    def _room(self) -> tuple[int, int]:
        """Bytes and streams that the newest chunk can still take."""
        chunk = self._chunks.get(self._newest)
        if chunk is None:
            return 0, 0
        return len(chunk.memory) - chunk.end, max(0, _MAX_CHUNK_STREAMS - chunk.n_streams)

    def _add_chunk(self, least: int, wanted: int) -> int:
        """Add a chunk of ``least`` bytes or more; larger if the heap is large, or if ``wanted`` bytes are to come."""
        fillable = _MAX_CHUNK_STREAMS * (self._live_bytes // max(1, self._n_streams) + 1)
        nbytes = max(min(self._live_bytes // 32, fillable), wanted, _MIN_CHUNK_STREAMS * least, _MIN_CHUNK_NBYTES)
        nbytes = max(min(nbytes, _MAX_CHUNK_NBYTES), least)
        nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        if self.max_bytes is not None and self._reserved_bytes + nbytes > self.max_bytes:
            nbytes = self.max_bytes - self._reserved_bytes
            if nbytes < max(least, 1):
                raise HeapFull(
                    f"the heap has reserved {self._reserved_bytes} bytes for {self._live_bytes} live ones, "
                    f"max_bytes is {self.max_bytes}: free slots, or allow more"
                )
        number = self._unused_numbers.pop() if self._unused_numbers else len(self._chunks) + 1
        memory = new_chunk(nbytes)
        self._chunks[number] = _Chunk(memory, memory.ctypes.data)
        self._reserved_bytes += nbytes
        return number

    def _append(self, number: int, slots: Ints, streams: Segments) -> None:
        chunk = self._chunks[number]
        nbytes = streams.nbytes
        streams.pack(chunk.memory[chunk.end : chunk.end + nbytes])
        self._chunk_of[slots] = number
        self._offsets[slots] = chunk.end + np.cumsum(streams.lengths) - streams.lengths
        self._lengths[slots] = streams.lengths
        chunk.end += nbytes
        chunk.live_bytes += nbytes
        chunk.n_live += len(slots)
        chunk.n_streams += len(slots)
        self._live_bytes += nbytes
        self._written_bytes += nbytes
        self._n_streams += len(slots)
        self._n_used = max(self._n_used, int(slots.max()) + 1)

    def _clean(self) -> None:
        """Give back chunks until the dead bytes are few against the live ones."""
        while self._written_bytes - self._live_bytes > self._live_bytes // 4 + 2 * _MIN_CHUNK_NBYTES:
            self._empty(self._deadest())

    def _deadest(self) -> int:
        """The chunk with most dead bytes."""
        return max(self._chunks, key=lambda n: self._chunks[n].end - self._chunks[n].live_bytes)

    def _empty(self, number: int) -> None:
        """Move the live streams of a chunk to the front of the log, and drop the chunk."""
        chunk = self._chunks[number]
        if number == self._newest:
            self._newest = 0
        if chunk.live_bytes or chunk.n_streams:
            slots = np.flatnonzero(self._chunk_of[: self._n_used] == number)
            slots = slots[np.argsort(self._offsets[slots], kind="stable")]
            if len(slots):
                self._move(number, chunk, slots)
        self._drop(number)

    def _move(self, number: int, chunk: _Chunk, slots: Ints) -> None:
        lengths = self._lengths[slots].astype(np.int64)
        offsets = self._offsets[slots].astype(np.int64)
        streams = Segments((chunk.memory,), np.zeros(len(slots), np.int64), offsets, lengths)
        limit = self.max_bytes
        if limit is not None:
            self.max_bytes = limit + len(chunk.memory)  # which is dropped as soon as it is empty
        try:
            pieces = self._plan(lengths)
        finally:
            self.max_bytes = limit
        self._forget(slots)
        for target, part in pieces:
            self._append(target, slots[part], streams.take(part))

    def _drop(self, number: int) -> None:
        chunk = self._chunks.pop(number)
        self._unused_numbers.append(number)
        self._reserved_bytes -= len(chunk.memory)
        self._written_bytes -= chunk.end
        if number == self._newest:
            self._newest = 0


def _last_of_each(slots: Ints, streams: Segments) -> tuple[Ints, Segments]:
    """Without those streams that a later one with the same slot overwrites."""
    if len(slots) == 1:
        return slots, streams
    _, from_end = np.unique(slots[::-1], return_index=True)
    if len(from_end) == len(slots):
        return slots, streams
    last = np.sort(len(slots) - 1 - from_end)
    return slots[last], streams.take(last)
