"""SlotHeap: streams of any length, each under an integer, in memory that grows and shrinks with them.

The streams lie in chunks, written from front to back and never changed. So a reader needs no copy and no lock: it
holds the chunks that it reads, and they live as long as it does. Overwriting or freeing a stream only counts its bytes
as dead. A chunk without live bytes is dropped; when dead bytes outweigh the live ones, the chunk with most of them is
emptied by moving its live streams to the front of the log. (The cleaning of log-structured file systems: Rosenblum and
Ousterhout 1992.)
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from obscodec.chunk import new_table
from obscodec.chunk_log import MIN_CHUNK_NBYTES, Chunk, ChunkLog
from obscodec.errors import HeapFull, ShapeError, SlotError
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

    Example:
        >>> heap = SlotHeap(10)
        >>> heap.put([3, 7], Segments.of([b"abc", b"de"]))
        >>> [bytes(stream) for stream in heap.get([7, 3])]
        [b'de', b'abc']
    """

    def __init__(self, n_slots: int, *, max_bytes: int | None = None) -> None:
        self.n_slots = n_slots
        self._lock = threading.RLock()
        self._log = ChunkLog(max_bytes)
        # the chunk of each stream, 0 for none; its offset, its length
        self._table = new_table((max(1, n_slots), 3), np.uint32)
        self._n_used = 0  # no slot from here on was ever used

    @property
    def max_bytes(self) -> int | None:
        """The most bytes of chunks to reserve, None for no limit."""
        return self._log.max_bytes

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
                self._write(number, slots[part], streams.take(part))
            self._log.drop_dead(overwritten)
            self._clean()

    def get(self, slots: npt.ArrayLike) -> Segments:
        """The streams in ``slots``, without a copy.

        Args:
            slots: ``[n]``.

        Raises:
            SlotError: a slot is out of range, or holds nothing.
        """
        checked = self._checked(slots)
        streams = self.locate(checked)
        if not streams.which.all():
            raise SlotError(f"slot {int(checked[streams.which == 0][0])} holds nothing")
        return streams

    def locate(self, slots: Ints) -> Segments:
        """The streams in ``slots``, without a copy; an empty one for a slot that holds nothing.

        Args:
            slots: ``i64[n]``, each in range: that is not checked.
        """
        with self._lock:
            chunks, offsets, lengths = self._table.take(slots, axis=0).T.astype(np.int64, order="C")
            return Segments.located(self._log.memories, chunks, offsets, lengths, self._log.addresses)

    def free(self, slots: npt.ArrayLike) -> None:
        """Empty ``slots``; those that are empty already stay so.

        Raises:
            SlotError: a slot is out of range.
        """
        slots = self._checked(slots)
        if len(slots) > 1:
            slots = np.unique(slots)
        with self._lock:
            self._log.drop_dead(self._forget(slots))
            self._clean()

    def holds(self, slots: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """``bool[n]``: which of ``slots`` hold a stream.

        Raises:
            SlotError: a slot is out of range.
        """
        held: npt.NDArray[np.bool_] = self._table[self._checked(slots), 0] != 0
        return held

    def grow(self, n_slots: int) -> None:
        """Make room for more slots; there are never fewer than before."""
        with self._lock:
            if n_slots > self.n_slots:
                grown = new_table((n_slots, 3), np.uint32)
                grown[: self._n_used] = self._table[: self._n_used]
                self._table, self.n_slots = grown, n_slots

    def compact(self) -> None:
        """Move streams together until no chunk but the newest has dead bytes; give back what that frees."""
        with self._lock:
            for number in [n for n, chunk in self._log.chunks.items() if chunk.live_bytes < max(chunk.end, 1)]:
                self._empty(number)

    def stats(self) -> HeapStats:
        """What the heap holds now."""
        table_bytes = self._table[: self._n_used].nbytes
        return HeapStats(self._log.n_streams, self._log.live_bytes, self._log.reserved_bytes, table_bytes)

    def __repr__(self) -> str:
        stats = ", ".join(f"{name}={value}" for name, value in asdict(self.stats()).items())
        return f"SlotHeap(n_slots={self.n_slots}, max_bytes={self.max_bytes}, {stats})"

    def __getstate__(self) -> dict[str, object]:
        with self._lock:
            slots = np.flatnonzero(self._table[: self._n_used, 0])
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
        checked = np.asarray(slots)
        if checked.size and checked.dtype.kind not in "iu":
            raise SlotError(f"slots are integers, got {checked.dtype}")
        checked = checked.astype(np.int64, copy=False).reshape(-1)
        if checked.size and checked.view(np.uint64).max() >= self.n_slots:  # one that is negative is large there
            outside = checked[(checked < 0) | (checked >= self.n_slots)][0]
            raise SlotError(f"slots are in 0..{self.n_slots - 1}, got {int(outside)}")
        return checked

    def _forget(self, slots: Ints) -> set[int]:
        """Count the streams in ``slots`` as dead; returns the chunks that they are in."""
        chunk_of, _, lengths = self._table.take(slots, axis=0).T.astype(np.int64, order="C")
        used = chunk_of != 0
        if not used.any():
            return set()
        chunks = self._log.bury(chunk_of[used], lengths[used])
        self._table[slots] = 0
        return chunks

    def _make_room(self, lengths: Ints) -> list[tuple[int, slice]]:
        """``ChunkLog.plan``, after a clean-up if the streams don't fit before."""
        while True:
            try:
                return self._log.plan(lengths)
            except HeapFull:
                if self._log.written_bytes == self._log.live_bytes:
                    raise
                self._empty(self._log.deadest)

    def _clean(self) -> None:
        """Give back chunks until the dead bytes are few against the live ones."""
        while self._log.written_bytes - self._log.live_bytes > self._log.live_bytes // 4 + 2 * MIN_CHUNK_NBYTES:
            self._empty(self._log.deadest)

    def _empty(self, number: int) -> None:
        """Move the live streams of a chunk to the front of the log, and drop the chunk."""
        chunk = self._log.chunks[number]
        if number == self._log.newest:
            self._log.newest = 0
        if chunk.live_bytes or chunk.n_streams:
            slots = np.flatnonzero(self._table[: self._n_used, 0] == number)
            slots = slots[np.argsort(self._table[slots, 1], kind="stable")]
            if len(slots):
                self._move(chunk, slots)
        self._log.drop(number)

    def _move(self, chunk: Chunk, slots: Ints) -> None:
        _, offsets, lengths = self._table.take(slots, axis=0).T.astype(np.int64, order="C")
        streams = Segments((chunk.memory,), np.zeros(len(slots), np.int64), offsets, lengths)
        pieces = self._log.plan(lengths, above=len(chunk.memory))  # which is dropped as soon as it is empty
        self._forget(slots)
        for target, part in pieces:
            self._write(target, slots[part], streams.take(part))

    def _write(self, number: int, slots: Ints, streams: Segments) -> None:
        """Write streams to the end of a chunk."""
        entries = np.empty((len(slots), 3), np.uint32)
        entries[:, 0], entries[:, 1], entries[:, 2] = number, self._log.append(number, streams), streams.lengths
        self._table[slots] = entries
        self._n_used = max(self._n_used, int(slots.max()) + 1)


def _last_of_each(slots: Ints, streams: Segments) -> tuple[Ints, Segments]:
    """Without those streams that a later one with the same slot overwrites."""
    if len(slots) == 1:
        return slots, streams
    _, from_end = np.unique(slots[::-1], return_index=True)
    if len(from_end) == len(slots):
        return slots, streams
    last = np.sort(len(slots) - 1 - from_end)
    return slots[last], streams.take(last)
