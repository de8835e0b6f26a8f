"""SlotHeap: streams of any length, each under an integer, in memory that grows and shrinks with them.

Streams lie in chunks that are written from front to back and never changed. So a reader needs no copy and no lock: it
holds the chunks that it reads, and they live as long as it does. Overwriting or freeing a stream only counts its bytes
as dead. The heap releases a chunk without live streams. When there are too many dead bytes, it empties the chunk with
most of them by moving the live streams to the end of the log. (The cleaning of log-structured file systems: Rosenblum
and Ousterhout 1992.)

Two parts: a ``SlotTable`` says what is stored. A ``ChunkLog`` has the chunks, and counts what the table says of them.
The table changes in one statement. So it is right even after an exception in the middle of a call, and the next call
has the log count anew.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_integers, as_nbytes, kind_of
from obscodec.errors import CorruptStream, DTypeError, HeapFull, ShapeError, SlotError, SnapshotError, SpecError
from obscodec.fixed import Fixed
from obscodec.heap.chunk_log import Allocate, Chunk, ChunkLog
from obscodec.heap.slot_table import SlotTable
from obscodec.runtime import LockOrder, PicklableLock, in_file, new_chunk
from obscodec.segments import Bytes, Ints, Segments
from obscodec.state import State, array_of, check_range, part_of

_MAX_STREAM_NBYTES = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class HeapStats:
    """What a heap holds.

    Attributes:
        live_bytes: bytes of the streams.
        reserved_bytes: bytes of the chunks in memory. Where the newest one is not written yet, it takes no memory.
        table_bytes: bytes of the table of slots, as far as it was ever used.
        disk_bytes: bytes of the chunks in files, see :meth:`SlotHeap.spill`.
        room_bytes: bytes of the newest chunk that are not written yet.
    """

    n_streams: int
    live_bytes: int
    reserved_bytes: int
    table_bytes: int
    disk_bytes: int
    room_bytes: int


class HeapChanges(NamedTuple):
    """What is new in a heap, for a copy of it elsewhere.

    Attributes:
        slots: ``i64[n]``, rising, the slots that changed.
        entries: ``u32[n_slots, 3]``: the chunk of each stream, its offset there, its bytes; 0 for a slot without one.
        chunks: all chunks, by number.
    """

    slots: Ints
    entries: npt.NDArray[np.uint32]
    chunks: dict[int, Chunk]


class SlotHeap:
    """Streams under the integers ``0..n_slots-1``.

    Safe to use from several threads. Streams that :meth:`get` returned stay as they are, whatever is written later.

    Args:
        n_slots: how many slots there are; a slot that was never used costs nothing.
        max_bytes: the most bytes of memory to reserve for chunks, None for no limit; one more chunk while the heap
            empties one.
        allocate: called with a number of bytes, returns the memory of a new chunk, ``u8[nbytes]``.

    Raises:
        DTypeError: an argument is of another type.
        ShapeError: a number is out of range.
    """

    max_bytes: Fixed[int | None] = Fixed("make another heap, and put the streams of this one into it")

    def __init__(self, n_slots: int, *, max_bytes: int | None = None, allocate: Allocate = new_chunk) -> None:
        self.lock = PicklableLock(LockOrder.STREAMS)  # held while a stream comes, goes or moves
        self.max_bytes = as_nbytes("max_bytes", max_bytes)
        self._log = ChunkLog(self.max_bytes, allocate)
        self._table = SlotTable(as_count("n_slots", n_slots, 0))
        self._is_counted = True  # whether the log counts what the table says

    @property
    def n_slots(self) -> int:
        """How many slots there are."""
        return self._table.n_slots

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory, chunks and table, without a lock."""
        return self._log.memory_bytes + self._table.nbytes

    def put(self, slots: npt.ArrayLike, streams: Segments) -> None:
        """Store one stream in each slot, in place of the stream that it holds; all streams, or none if this raises.

        Args:
            slots: ``[n]``; if a slot occurs twice, its last stream stays.
            streams: ``n`` streams.

        Raises:
            SlotError: a slot is out of range.
            ShapeError: there are not as many streams as slots, or a stream has 4 GiB or more.
            DTypeError: ``streams`` are no streams.
            HeapFull: the new streams and those that they overwrite do not fit below ``max_bytes`` together, or the
                memory is full.
        """
        if not isinstance(streams, Segments):
            raise DTypeError(f"streams must be Segments, such as Segments.of([b'abc']), got {kind_of(streams)}")
        slots = _checked(slots, self.n_slots)
        if len(slots) != (n := len(streams.lengths)):
            raise ShapeError(f"{len(slots)} slots take {len(slots)} streams, got {n}")
        if len(slots) == 0:
            return
        if (longest := int(streams.lengths.max())) > _MAX_STREAM_NBYTES:
            raise ShapeError(f"a stream has at most {_MAX_STREAM_NBYTES} bytes, got {longest}")
        slots, streams = _last_of_each(slots, streams)
        with self.lock:
            self._count()
            self._is_counted = False
            entries = self._log.write(streams, self._make_room(streams.lengths))
            self._log.drop_dead(self._log.count(entries, self._table.set(slots, entries)))
            self._clean()
            self._is_counted = True

    def get(self, slots: npt.ArrayLike) -> Segments:
        """The streams in ``slots``, ``[n]``, without a copy; SlotError for one that is empty or out of range."""
        checked = _checked(slots, self.n_slots)
        with self.lock:
            if not (held := self._table.holds(checked)).all():
                raise SlotError(f"slot {int(checked[~held][0])} holds nothing")
            return self.locate(checked)

    def locate(self, slots: Ints) -> Segments:
        """As :meth:`get`, but an empty stream for a slot that holds nothing; nobody checks that slots are in range."""
        with self.lock:
            chunks, offsets, lengths = self._table.find(slots)
            self.check_files(chunks)
            addresses = self._log.addresses[chunks] + offsets
            return Segments.located(self._log.memories, chunks, offsets, lengths, addresses)

    def tables_now(self) -> tuple[npt.NDArray[np.uint32], tuple[Bytes, ...], Ints]:
        """For kernels that find many streams.

        Returns:
            ``u32[n_slots, 3]``: the chunk of each stream, its offset there, its bytes; 0 for a slot without one. It
            changes with the next call. The memory of each chunk by number, and its address, ``i64[:]``, which stay.
        """
        with self.lock:
            return self._table.entries, self._log.memories, self._log.addresses

    def check_files(self, chunks: Ints) -> None:
        """Before streams of some chunks are read that :meth:`tables_now` has told of: see ``ChunkLog.check_files``."""
        if self._log.mapped:
            self._log.check_files(set(chunks.tolist()))

    def watch(self) -> None:
        """Note from now on which slots change; all slots that hold a stream count as changed."""
        with self.lock:
            self._table.watch()

    def changes(self) -> HeapChanges:
        """What changed since the last call, or since :meth:`watch`."""
        with self.lock:
            if self._log.mapped:
                self._log.check_files(self._log.mapped)
            return HeapChanges(self._table.changed(), self._table.entries, self._log.chunks)

    def free(self, slots: npt.ArrayLike) -> None:
        """Empty ``slots``, ``[n]``; a slot may be empty already."""
        slots = _checked(slots, self.n_slots)
        if len(slots) > 1:
            slots = np.unique(slots)
        with self.lock:
            self._count()
            self._is_counted = False
            numbers, _, lengths = self._table.find(slots)
            self._table.clear(slots)
            self._log.drop_dead(self._log.enliven(numbers, lengths, -1))
            self._clean()
            self._is_counted = True

    def holds(self, slots: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """``bool[n]``: which of ``slots`` hold a stream."""
        return self._table.holds(_checked(slots, self.n_slots))

    def grow(self, n_slots: int) -> None:
        """Have ``n_slots`` slots, if there are fewer."""
        n_slots = as_count("n_slots", n_slots, 0)
        with self.lock:
            if n_slots > self.n_slots:
                self._table.grow(n_slots)

    def spill(self, folder: str, nbytes: int) -> int:
        """Move the oldest chunks from memory to files in a folder; they are read there as before.

        Nobody waits while bytes are written: other threads put and get streams meanwhile. An error leaves the chunks
        that were not moved where they are. Whole chunks go, of ``nbytes`` or more together, but not the newest one,
        which is written to.

        Returns:
            How many bytes of memory it has freed.

        Raises:
            OSError: the disk is full or refuses; the text says what to do.
            SpecError: a GPU reads the chunks in place.
        """
        if self._log.allocate is not new_chunk:
            raise SpecError("a GPU reads this heap in pinned memory, which can't move to a file: leave spill out")
        with self.lock:
            self._count()
            oldest = self._log.oldest(nbytes)
        freed = 0
        for number, chunk in oldest.items():
            memory = in_file(chunk.memory[: chunk.end], folder)
            with self.lock:
                self._count()
                self._is_counted = False
                freed += self._log.move(number, chunk, memory)
                self._is_counted = True
        return freed

    def stats(self) -> HeapStats:
        """What the heap holds now."""
        with self.lock:
            self._count()
            log = self._log
            reserved, table, on_disk = log.reserved_bytes, self._table.nbytes, log.disk_bytes
            return HeapStats(log.n_streams, log.live_bytes, reserved, table, on_disk, log.room_bytes)

    def state(self) -> State:
        """What the heap holds now, whatever happens to it later: see ``obscodec.state``."""
        with self.lock:
            slots = self._table.held()
            return {"slots": slots, "streams": self.get(slots)}

    def restore(self, state: State, unreadable: bytes = b"") -> None:
        """Fill this heap, which is empty, with another one's :meth:`state`.

        Streams in buffers of a few MB stay there: do not change these any more. Slots in ``lost``, ``i64[n]`` of the
        state, get the stream ``unreadable``, which no decoder accepts.

        Raises:
            CorruptStream: a slot occurs twice or is out of range, or a stream does not lie in its buffer.
            HeapFull: there is not enough room.
        """
        streams = part_of(state, "streams", Segments)
        slots = array_of(state, "slots", np.int64, (len(streams),))
        check_range("slots", slots, 0, self.n_slots - 1)
        if len(np.unique(slots)) < len(slots) or not streams.inside().all():
            raise CorruptStream("two streams of a heap have one slot, or one is outside of its buffer")
        order = np.lexsort((streams.offsets, streams.which))
        which, offsets = streams.which[order], streams.offsets[order]
        follows = (which[1:] == which[:-1]) & (streams.lengths[order][1:] > 0)
        if (follows & (offsets[1:] < (offsets + streams.lengths[order])[:-1])).any():
            raise CorruptStream("two streams of a heap overlap")
        lost = array_of(state, "lost", np.int64, (None,)) if "lost" in state else slots[:0]
        if np.isin(lost, slots).any():
            raise CorruptStream("a stream of a heap is lost, and is there")
        with self.lock:
            entries = self._log.adopt(streams) if len(slots) else None
            if entries is None:
                self.put(slots, streams)
            else:
                self._is_counted = False
                self._table.set(slots, entries)
                self._count()
                self._is_counted = False
                self._clean()
                self._is_counted = True
            if len(lost):
                self.put(lost, Segments.of([unreadable] * len(lost)))

    def _count(self) -> None:
        """Have the log count what the table says, if a call ended in the middle."""
        if not self._is_counted:
            numbers, _, lengths = self._table.find(self._table.held())
            self._log.recount(numbers, lengths)
            self._is_counted = True

    def _make_room(self, lengths: Ints) -> list[tuple[int, slice]]:
        """``ChunkLog.plan``; if streams of these lengths don't fit, empties chunks with dead bytes and tries again."""
        while True:
            try:
                return self._log.plan(lengths)
            except HeapFull as full:
                if not self._log.dead_bytes:
                    raise
                try:
                    self._empty(self._log.deadest())
                except HeapFull:
                    raise full from None

    def _clean(self) -> None:
        """Empty chunks until there are few dead bytes against the live ones, or there is no room to move streams."""
        log = self._log
        while log.wastes_memory or log.wastes_disk:
            try:
                self._empty(log.deadest(spilled=not log.wastes_memory))
            except (HeapFull, SnapshotError):  # whoever reads these streams will see that their file is damaged
                return

    def _empty(self, number: int) -> None:
        """Move the live streams of a chunk to the end of the log, and drop the chunk."""
        self._log.check_files([number])
        log, chunk, newest = self._log, self._log.chunks[number], self._log.newest
        freed = 0 if chunk.is_spilled else chunk.nbytes
        if number == newest:
            log.newest = 0
        if chunk.n_live:
            slots = self._table.in_chunk(number)
            _, offsets, lengths = self._table.find(slots)
            try:
                streams = Segments((chunk.memory,), np.zeros(len(lengths), np.int64), offsets, lengths)
                pieces = log.plan(lengths, above=freed)  # the chunk goes as soon as it is empty
                entries = log.write(streams, pieces)
                log.count(entries, self._table.set(slots, entries))
            except HeapFull:
                log.newest = log.newest or newest
                raise
        log.drop(number)


def _checked(slots: npt.ArrayLike, n_slots: int) -> Ints:
    """``slots`` as ``i64[n]``; SlotError if one is out of range, or no integer."""
    checked = as_integers("slots", slots, SlotError).reshape(-1)
    if checked.size and checked.view(np.uint64).max() >= n_slots:  # a negative slot is large as unsigned
        outside = checked[(checked < 0) | (checked >= n_slots)][0]
        raise SlotError(f"slots are in 0..{n_slots - 1}, got {int(outside)}")
    return checked


def _last_of_each(slots: Ints, streams: Segments) -> tuple[Ints, Segments]:
    """Leave out each stream that a later one with the same slot overwrites."""
    if len(set(slots.tolist())) == len(slots):  # nearly always; numpy takes longer to find out
        return slots, streams
    _, from_end = np.unique(slots[::-1], return_index=True)
    last = np.sort(len(slots) - 1 - from_end)
    return slots[last], streams.take(last)
