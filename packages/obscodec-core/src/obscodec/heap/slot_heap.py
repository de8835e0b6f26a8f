"""SlotHeap: streams of any length, each under an integer, in memory that grows and shrinks with them.

The streams lie in chunks, written from front to back and never changed. So a reader needs no copy and no lock: it
holds the chunks that it reads, and they live as long as it does. Overwriting or freeing a stream only counts its bytes
as dead. A chunk without live bytes is dropped; when dead bytes outweigh the live ones, the chunk with most of them is
emptied by moving its live streams to the front of the log. (The cleaning of log-structured file systems: Rosenblum and
Ousterhout 1992.)
"""

import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_nbytes, check_kind, kind_of
from obscodec.errors import DTypeError, HeapFull, ShapeError, SlotError
from obscodec.heap.chunk_log import MIN_CHUNK_NBYTES, Chunk, ChunkLog
from obscodec.heap.memory import HOST, HeapMemory, Places, Streams
from obscodec.heap.slot_table import SlotTable
from obscodec.segments import Ints, Segments

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


class SlotHeap:
    """Streams under the integers ``0..n_slots-1``.

    Safe to use from several threads. What :meth:`get` gave stays as it was, whatever is written later.

    Args:
        n_slots: how many slots there are; a slot that was never used costs nothing.
        max_bytes: the most bytes of chunks to reserve, None for no limit; one more chunk for a moment while one is
            emptied.
        memory: where the chunks lie, made for this heap alone if it is not :data:`HOST`.

    Attributes:
        lock: held while a stream comes, goes or moves; reentrant.

    Raises:
        DTypeError: an argument is something else than is asked for.
        ShapeError: a number is out of range.

    Example:
        >>> heap = SlotHeap(10)
        >>> heap.put([3, 7], Segments.of([b"abc", b"de"]))
        >>> [bytes(stream) for stream in heap.get([7, 3])]
        [b'de', b'abc']
    """

    def __init__(self, n_slots: int, *, max_bytes: int | None = None, memory: HeapMemory[Any] = HOST) -> None:
        check_kind("memory", memory, HeapMemory, "a HeapMemory, such as obscodec.heap.HOST")
        self.memory = memory
        self.lock = threading.RLock()
        self._log = ChunkLog(as_nbytes("max_bytes", max_bytes), memory)
        # It says what is stored; what the log counts follows from it.
        self._table = SlotTable(as_count("n_slots", n_slots, 0))
        self._is_counted = True  # whether it does so at the moment

    @property
    def n_slots(self) -> int:
        """How many slots there are."""
        return self._table.n_slots

    @property
    def max_bytes(self) -> int | None:
        """The most bytes of chunks to reserve, None for no limit."""
        return self._log.max_bytes

    def put(self, slots: npt.ArrayLike, streams: Streams) -> None:
        """Store one stream in each slot; what was there before is overwritten.

        Either all streams are stored or none. If a slot occurs twice, its last stream stays.

        Args:
            slots: ``[n]``.
            streams: as many: :class:`Segments`, or what the memory of this heap takes besides.

        Raises:
            SlotError: a slot is out of range.
            ShapeError: there are not as many streams as slots, or a stream has 4 GiB or more.
            DTypeError: the streams are something else.
            HeapFull: there is not enough room below ``max_bytes``, even before what is overwritten is dropped; or the
                memory of the heap has no room.
        """
        lengths = getattr(streams, "lengths", None)
        if lengths is None:
            raise DTypeError(f"streams must be Segments, such as Segments.of([b'abc']), got {kind_of(streams)}")
        slots = self._table.checked(slots)
        if len(slots) != len(lengths):
            raise ShapeError(f"{len(slots)} slots take {len(slots)} streams, got {len(lengths)}")
        if len(slots) == 0:
            return
        if int(lengths.max()) > _MAX_STREAM_NBYTES:
            raise ShapeError(f"a stream has at most {_MAX_STREAM_NBYTES} bytes, got {int(lengths.max())}")
        slots, streams = _last_of_each(slots, streams)
        with self.lock:
            self._count()
            self._is_counted = False
            overwritten = self._enter(slots, self._log.write(streams, self._make_room(streams.lengths)))
            if overwritten:
                self._log.drop_dead(overwritten)
            self._clean()
            self._is_counted = True

    def get(self, slots: npt.ArrayLike) -> Segments:
        """The streams in ``slots``, without a copy if they are in host memory.

        Args:
            slots: ``[n]``.

        Raises:
            SlotError: a slot is out of range, or holds nothing.
        """
        checked = self._table.checked(slots)
        with self.lock:
            chunks, offsets, lengths = self._table.find(checked)
            if not chunks.all():
                raise SlotError(f"slot {int(checked[chunks == 0][0])} holds nothing")
            return self.memory.streams(self._log.memories, chunks, offsets, lengths, self._log.addresses)

    def locate(self, slots: Ints) -> Segments:
        """:meth:`get`, with an empty stream for a slot that holds nothing.

        Args:
            slots: ``i64[n]``, each in range: that is not checked.
        """
        with self.lock:
            chunks, offsets, lengths = self._table.find(slots)
            return self.memory.streams(self._log.memories, chunks, offsets, lengths, self._log.addresses)

    def place(self, slots: Ints) -> Places:
        """Where the streams in ``slots`` lie, for kernels that run where the memory of this heap is.

        The next call that changes the heap may move streams, and give back the memory where they were if nobody holds
        it.

        Args:
            slots: ``i64[n]``, each in range: that is not checked.
        """
        with self.lock:
            chunks, offsets, lengths = self._table.find(slots)
            addresses = self._log.addresses[chunks] + offsets
            return Places(addresses.view(np.uint64), lengths, self._log.memories)

    def watch(self) -> None:
        """Note from now on which slots change; all that hold a stream count as changed."""
        with self.lock:
            self._table.watch()

    @property
    def has_changed(self) -> bool:
        """Whether :meth:`changed` would give any."""
        return self._table.has_changed

    def changed(self) -> Ints:
        """The slots, rising, whose :meth:`place` may have changed since this was asked last; after :meth:`watch`."""
        with self.lock:
            return self._table.changed()

    def free(self, slots: npt.ArrayLike) -> None:
        """Empty ``slots``; those that are empty already stay so.

        Raises:
            SlotError: a slot is out of range.
        """
        slots = self._table.checked(slots)
        if len(slots) > 1:
            slots = np.unique(slots)
        with self.lock:
            self._count()
            self._is_counted = False
            numbers, _, lengths = self._table.find(slots)
            self._table.clear(slots)
            self._log.drop_dead(self._bury(numbers, lengths))
            self._clean()
            self._is_counted = True

    def holds(self, slots: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """``bool[n]``: which of ``slots`` hold a stream.

        Raises:
            SlotError: a slot is out of range.
        """
        return self._table.holds(self._table.checked(slots))

    def grow(self, n_slots: int) -> None:
        """Make room for more slots; there are never fewer than before.

        Raises:
            DTypeError: ``n_slots`` is no number.
            ShapeError: it is out of range.
        """
        n_slots = as_count("n_slots", n_slots, 0)
        with self.lock:
            if n_slots > self.n_slots:
                self._table.grow(n_slots)

    def compact(self) -> None:
        """Move streams together until no chunk but the newest has dead bytes; give back what that frees.

        Raises:
            HeapFull: the memory of the heap has no room to move them.
        """
        with self.lock:
            self._count()
            self._is_counted = False
            for number in [n for n, chunk in self._log.chunks.items() if chunk.live_bytes < max(chunk.end, 1)]:
                self._empty(number)
            self._is_counted = True

    def stats(self) -> HeapStats:
        """What the heap holds now."""
        with self.lock:
            self._count()
            return HeapStats(self._log.n_streams, self._log.live_bytes, self._log.reserved_bytes, self._table.nbytes)

    def __repr__(self) -> str:
        stats = ", ".join(f"{name}={value}" for name, value in asdict(self.stats()).items())
        return f"SlotHeap(n_slots={self.n_slots}, max_bytes={self.max_bytes}, {stats})"

    def __del__(self) -> None:
        """Wait for what reads or writes the memory that goes now."""
        with suppress(Exception):  # at the end of the process there may be no device any more
            self.memory.wait()

    def __getstate__(self) -> dict[str, object]:
        with self.lock:
            slots = self._table.held()
            streams = self.get(slots)
        buffer = np.empty(streams.nbytes, np.uint8)
        streams.pack(buffer)
        return {
            "n_slots": self.n_slots,
            "max_bytes": self.max_bytes,
            "memory": self.memory,
            "slots": slots,
            "buffer": buffer,
            "lengths": streams.lengths,
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        memory = state.get("memory", HOST)
        self.__init__(state["n_slots"], max_bytes=state["max_bytes"], memory=memory)  # type: ignore[misc]
        self.put(state["slots"], Segments.packed(state["buffer"], state["lengths"]))  # type: ignore[arg-type]

    def _count(self) -> None:
        """Have the log count what the table says, if a call ended in the middle: by any exception, at any line."""
        if not self._is_counted:
            numbers, _, lengths = self._table.find(self._table.held())
            self._log.recount(numbers, lengths)
            self._is_counted = True

    def _bury(self, numbers: Ints, lengths: Ints) -> set[int]:
        """Count streams as dead, by their chunks, 0 for none; returns the chunks that they are in."""
        used = numbers != 0
        return self._log.bury(numbers[used], lengths[used]) if used.any() else set()

    def _make_room(self, lengths: Ints) -> list[tuple[int, slice]]:
        """``ChunkLog.plan``, after a clean-up if the streams don't fit before."""
        while True:
            try:
                return self._log.plan(lengths)
            except HeapFull as full:
                if self._log.written_bytes == self._log.live_bytes:
                    raise
                try:
                    self._empty(self._log.deadest)
                except HeapFull:
                    raise full from None

    def _clean(self) -> None:
        """Give back chunks until the dead bytes are few against the live ones, or there is no room to move streams."""
        while self._log.written_bytes - self._log.live_bytes > self._log.live_bytes // 4 + 2 * MIN_CHUNK_NBYTES:
            try:
                self._empty(self._log.deadest)
            except HeapFull:
                return

    def _empty(self, number: int) -> None:
        """Move the live streams of a chunk to the front of the log, and drop the chunk."""
        chunk, newest = self._log.chunks[number], self._log.newest
        if number == newest:
            self._log.newest = 0
        try:
            if chunk.live_bytes or chunk.n_streams:
                slots = self._table.in_chunk(number)
                if len(slots):
                    self._move(chunk, slots)
        except HeapFull:
            self._log.newest = self._log.newest or newest
            raise
        self._log.drop(number)

    def _move(self, chunk: Chunk, slots: Ints) -> None:
        _, offsets, lengths = self._table.find(slots)
        streams = self.memory.within(chunk.memory, offsets, lengths)
        pieces = self._log.plan(lengths, above=chunk.nbytes)  # which is dropped as soon as it is empty
        self._enter(slots, self._log.write(streams, pieces))

    def _enter(self, slots: Ints, entries: npt.NDArray[np.uint32]) -> set[int]:
        """Have slots hold streams that were written; the chunks of those that they held before."""
        before, _, lengths_before = self._table.find(slots)
        self._table.set(slots, entries)
        self._log.enliven(entries[:, 0].astype(np.int64), entries[:, 2].astype(np.int64))
        return self._bury(before, lengths_before)


def _last_of_each(slots: Ints, streams: Streams) -> tuple[Ints, Streams]:
    """Without those streams that a later one with the same slot overwrites."""
    if len(slots) == 1:
        return slots, streams
    _, from_end = np.unique(slots[::-1], return_index=True)
    if len(from_end) == len(slots):
        return slots, streams
    last = np.sort(len(slots) - 1 - from_end)
    return slots[last], streams.take(last)
