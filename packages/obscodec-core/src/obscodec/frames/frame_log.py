"""FrameLog: the frames of a FrameStore under their ids, in open blocks and in full ones."""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple
from weakref import ref

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream, HeapFull, ShapeError, SlotError
from obscodec.frames.block_coder import Coder, Wanted
from obscodec.frames.kernels import find
from obscodec.frames.kernels import sequences as field
from obscodec.frames.kernels.append import announce, append_frames
from obscodec.frames.kernels.counts import N_DEAD, N_FREE, N_USED, count_known, give_back_frames, reclaim
from obscodec.frames.kernels.stacks import (
    LISTED_TWICE,
    N_ROWS,
    NO_SUCH_STACK,
    expand_stacks,
    name_stacks,
    release_stacks,
)
from obscodec.frames.kernels.steps import DONE_AND_DUE, NEW_NUMBERS, NO_ROOM, PICKED_STEPS, exchange_step
from obscodec.frames.open_blocks import OpenBlocks
from obscodec.frames.sealer import Sealer
from obscodec.frames.sizes import growing_bytes
from obscodec.frames.stack_table import StackTable
from obscodec.frames.step_state import StepState
from obscodec.frames.tables import FrameTables
from obscodec.heap import Allocate, SlotHeap
from obscodec.layout import Rows
from obscodec.runtime import LockOrder, PicklableLock
from obscodec.segments import Ints, Segments
from obscodec.state import State, array_of, check_range, part_of
from obscodec.stats import StoreStats

MIN_BLOCKS = 1 << 10
_UNREADABLE = b"\xff" * 11  # in place of a block that was lost: no version has so many bytes
_ROOM = 1 << 14  # bytes for blocks that are not stored; few batches need more


class LogClosed(Exception):
    """Frames were given to a log that takes no others: they belong to the one that follows it."""


class Newest(NamedTuple):
    """Some of the frames that came last.

    Attributes:
        rows: ``u8[n, nbytes]``, in the order of time for each sequence.
        sequences: ``i64[n]``, which of them are of one sequence.
        n_references: how many references they have on average.
    """

    rows: Rows
    sequences: Ints
    n_references: float


class _Reading:
    """Held by all who decode streams without the lock: as long as it lives, no codec that they need is forgotten."""


Located = tuple[Segments, Ints, Ints, Ints, Rows, _Reading]


class FrameLog:
    """Blocks of consecutive frames, by number: an open block for each sequence of frames, full blocks in a heap.

    The id of a frame is ``number * block_frames + place``; id 0 is the frame of zeros. References to ids are counted. A
    block goes with its last frame, and its number is used again. Safe to use from several threads.

    An exception at any line, from a signal handler or a failed allocation, leaves all frames and counts as they were
    before the call, or as they are after it: one kernel makes all changes that belong together, and each reference is
    in one place, an array of ids that somebody has. :meth:`_settle` gives back the frames of a call that was cut off.

    See ``FrameStore`` for the arguments; ``nbytes`` are of a frame, and no id is greater than ``last_id``.

    Attributes:
        first: the number of the first block.
        heap: the full blocks, with their numbers as slots.
        tables: the tables of frames and blocks.
        stacks: the listed stacks; with a depth of 1, a stack is a frame.
        n_changes: how often frames, blocks or stacks may have changed.
        watcher: the token of whoever keeps a copy of this log elsewhere and asks for changes, None for nobody.
        lock: held by whoever works with these attributes.
    """

    def __init__(
        self,
        coder: Coder,
        nbytes: int,
        *,
        block_frames: int,
        stack: int,
        n_recent: int,
        interleaved: bool = False,
        first_id: int,
        first_row: int,
        last_id: int,
        max_bytes: int | None,
        allocate: Allocate,
    ) -> None:
        announce()
        self.coder = coder
        self.block_frames = block_frames
        self._most_blocks = last_id // block_frames
        self.open = OpenBlocks(
            nbytes,
            block_frames=block_frames,
            stack=stack,
            n_recent=n_recent,
            patches=coder.patches,
            queues=max_bytes is None,  # what waits in a queue takes memory, too
        )
        self.first = -(-first_id // block_frames)
        n_blocks = min(max(MIN_BLOCKS, 1 << self.first.bit_length()), self._most_blocks)
        self.heap = SlotHeap(n_blocks, max_bytes=max_bytes, allocate=allocate)
        self._sealer = Sealer(coder, self.heap, self.open)
        self.tables = FrameTables(n_blocks, block_frames)
        self.tables.tallies[N_USED] = self.first
        self.stacks = StackTable(stack, first_row)
        self._is_one = interleaved  # sequence, 0, whatever the callers say
        self._of_ids = "frame" if stack == 1 else "stack"
        self._held: Ints | None = None  # frames that are stored, but not yet given out as part of a stack
        self._reading = ref(_Reading())  # that of all readers; none now
        self.n_changes = 0
        self.watcher: object = None
        self._is_closed = False
        self.lock = PicklableLock(LockOrder.FRAMES)
        # Load the kernels that undo a change: after a failed allocation there may be no memory to load them.
        no_ids, no_frames = np.empty(0, np.int64), np.empty((0, 1), np.int64)
        give_back_frames(no_ids, self.block_frames, self.tables.arrays)
        release_stacks(no_ids, no_frames, self.block_frames, self.tables.arrays, self.stacks.tables, False)
        reclaim(self.tables.arrays, *self.open.queues)

    @property
    def n(self) -> int:
        """How many numbers of blocks were ever used; 0 is the block of the frame of zeros."""
        return int(self.tables.tallies[N_USED])

    def mean_frame_bytes(self, before: tuple[int, int]) -> float:
        """Bytes for each frame in the blocks that are full since :meth:`train`; in open blocks if there are none."""
        with self.lock:
            (n, nbytes), (n_before, nbytes_before), opened = self._full_blocks(), before, self.open
            if n == n_before:
                return opened.mean_frame_bytes + opened.reference_bytes / max(1, opened.n_frames)
            return (nbytes - nbytes_before) / ((n - n_before) * self.block_frames)

    def watch(self, on_full: Callable[[], object]) -> None:
        """Count what is encoded from now on, and call ``on_full`` with the lock held whenever many blocks were full."""
        self._sealer.on_full = on_full

    @property
    def encoded(self) -> tuple[int, int]:
        """How many frames are in the blocks that were stored since :meth:`watch`, and the bytes of these blocks."""
        return self._sealer.n_stored * self.block_frames, self._sealer.stored_nbytes

    def newest(self, n: int) -> Newest:
        """Up to ``n`` of the frames in the blocks that were stored last, since :meth:`watch`."""
        with self.lock:
            self._settle()
            places = np.add.outer(self._sealer.newest * self.block_frames, np.arange(self.block_frames)).reshape(-1)
            ids = np.array([*dict.fromkeys(places[self.tables.counts[places] > 1].tolist())][-n:], np.int64)
            before = np.where(ids % self.block_frames, ids - 1, self.tables.previous[ids])
            n_references = float(np.mean(self.tables.counts[ids] >> 1)) if len(ids) else 0.0
            located = self._locate(ids, StackTable(1))
        last: dict[int, int] = {}  # of each sequence by its last frame
        sequences = np.zeros(len(ids), np.int64)
        for k, (frame, one_before) in enumerate(zip(ids.tolist(), before.tolist(), strict=True)):
            sequences[k] = last[frame] = last.pop(one_before, k)
        rows = np.empty((len(ids), self.open.nbytes), np.uint8)
        self._decode(located, rows, threads=1)
        return Newest(rows, sequences, n_references)

    @property
    def ends(self) -> tuple[int, int]:
        """Frames have ids below the first number, and listed stacks are in rows before the second one."""
        return self.n * self.block_frames, len(self.stacks.frames)

    def close(self, first_id: int, first_row: int) -> bool:
        """Take no other frames; False if ids of frames or rows from these on are in use, which others are to have."""
        with self.lock:
            self._settle()
            end, n_rows = self.ends
            self._is_closed = end <= first_id and n_rows <= first_row
            return self._is_closed

    def reopen(self) -> None:
        """Undo :meth:`close`."""
        with self.lock:
            self._is_closed = False

    def train(self) -> tuple[int, int]:
        """Train dictionaries on the blocks that are full, which may be fewer than these wait for.

        Returns how many blocks these are, and their bytes, with all reference frames.
        """
        with self.lock:
            full = self._full_blocks()
            self._sealer.trained()
            if self.coder.versions is not None:
                self.coder.versions.train()
            return full

    def _full_blocks(self) -> tuple[int, int]:
        self._settle()
        self.seal()
        heap = self.heap.stats()
        return heap.n_streams, heap.live_bytes + self.open.reference_bytes

    def stats(self) -> StoreStats:
        """What the log holds now; reference frames count as dictionaries."""
        with self.lock:
            self._settle()
            with suppress(HeapFull):
                self.seal()
            heap, versions = self.heap.stats(), self.coder.versions
            first, end = self.first * self.block_frames, self.n * self.block_frames
            table_bytes = heap.table_bytes + self._table_nbytes
            n_frames = int(np.count_nonzero(self.tables.counts[first:end] > 1))
            return StoreStats(
                n_tensors=n_frames,
                raw_bytes=n_frames * self.open.nbytes,
                live_bytes=heap.live_bytes,
                reserved_bytes=heap.reserved_bytes + self.open.memory_bytes,
                table_bytes=table_bytes,
                dictionary_bytes=self.open.reference_bytes + (versions.dictionary_bytes if versions else 0),
                disk_bytes=heap.disk_bytes,
                growing_bytes=growing_bytes(n_frames, heap, self.open, self.coder) + table_bytes,
            )

    @property
    def memory_bytes(self) -> int:
        """Bytes of the heap, the open blocks and the tables, without a lock; dictionaries are not counted.

        Nor are the queues, whose blocks become smaller soon: how long they wait depends on other processes.
        """
        waiting = self.open.queue.nbytes + self.open.leaving.nbytes
        opened = self.open.memory_bytes - waiting + self.open.reference_bytes
        return self.heap.memory_bytes + opened + self._table_nbytes

    @property
    def _table_nbytes(self) -> int:
        """Bytes of the tables, as far as they were ever used."""
        return (self.n - self.first) * (8 * self.block_frames + 4) + self.stacks.nbytes

    def take_in(self, rows: Rows, sequences: Ints, which: Ints, ids: Ints) -> None:
        """Store stacks of frames; a frame that is known is not stored again.

        Args:
            rows: ``u8[m * depth, nbytes]``, contiguous: the frames of ``m`` stacks, oldest first.
            sequences: ``i64[m]``, the sequence of each stack.
            which: ``i64[n]``, the stack that each id is for, each of ``0..m-1`` at least once.
            ids: ``i64[n]`` of zeros, filled in one step, each id with a reference.

        Raises:
            LogClosed: another log takes frames instead.
            ShapeError: a sequence is negative.
            HeapFull: there is not enough room; nothing was stored.
        """
        with self.lock:
            if self._is_closed:
                raise LogClosed
            self.n_changes += 1
            self._settle()
            try:
                self._held = held = np.zeros(len(rows), np.int64)
                of_frames = sequences if self.stacks.depth == 1 else sequences.repeat(self.stacks.depth)
                of_frames = np.zeros_like(of_frames) if self._is_one else of_frames
                n = 0
                while (n := append_frames(rows, n, of_frames, self.open.tables, self.tables.arrays, held)) < len(rows):
                    self._prepare(int(of_frames[n]))
                if self.open.queue.is_due:
                    self._sealer.soon(self.tables.versions)
                while not name_stacks(held, which, self.tables.arrays, self.stacks.tables, ids):
                    self.stacks.reserve(len(which))
            except BaseException:
                self._settle()
                raise
            self._held = None

    def write_step(
        self, state: StepState, rows: Rows, more_rows: Rows, n_arrays: int, n_columns: int, step: int
    ) -> bool:
        """Store a step of one array of stacks or two, and exchange its ids, in one step; see ``kernels.steps``.

        Returns:
            False if there is no room for replaced ids; nothing is done then.

        Raises:
            HeapFull: there is not enough room; nothing was stored.
        """
        stacks, first = self.stacks, 0
        with self.lock:
            self.n_changes += 1
            if self._held is not None:
                self._settle()
            try:
                self._held = state.held
                while True:
                    bound = state.tables
                    if (
                        bound is None
                        or bound[0] is not self.open.tables
                        or bound[1] is not self.tables.arrays
                        or bound[2] is not stacks.tables
                    ):
                        state.bind_tables(self.open.tables, self.tables.arrays, stacks.tables, self._is_one)
                    first = exchange_step(rows, more_rows, n_arrays, n_columns, step, first, state.words)
                    if first == NEW_NUMBERS:
                        state.learn()
                        first = 0
                    elif first < 0:
                        break
                    elif first < n_arrays * len(rows) * stacks.depth:
                        row = first // stacks.depth % len(rows)
                        sequence = state.first + (row if step != PICKED_STEPS else int(state.picked[1, row]))
                        self._prepare(0 if self._is_one else sequence)
                    else:
                        stacks.reserve(n_arrays * len(rows))
            except BaseException:
                self._settle()
                raise
            self._held = None
            if first == DONE_AND_DUE:
                self._sealer.soon(self.tables.versions)
        return first != NO_ROOM

    def give_back(self, ids: Ints, *, only_looks: bool = False) -> None:
        """Take one reference from each of ``ids``, and set ``ids`` to 0, in one step; or only look whether that can be.

        Raises:
            SlotError: an id is of no stack or frame, or is named more often than it has references; nothing was done.
        """
        stacks = self.stacks
        frames = np.empty((len(ids), stacks.depth), np.int64)
        with self.lock:
            self.n_changes += not only_looks
            self._settle()
            tables = self.tables.arrays
            wrong, at = release_stacks(ids, frames, self.block_frames, tables, stacks.tables, only_looks)
            if wrong == NO_SUCH_STACK and stacks.depth > 1:
                raise SlotError(f"id {ids[at]} is of no stack in this store")
            if wrong == LISTED_TWICE:
                raise SlotError(f"id {ids[at]} is released twice, it stands for one stack")
            if wrong:
                frame = ids[at] if wrong == NO_SUCH_STACK else frames.reshape(-1)[at]
                what = "is of no frame in this store, or is released more often than it was given out"
                raise SlotError(f"id {frame} {what}")
            if self.tables.tallies[N_DEAD]:
                self._sweep()

    def read(self, ids: Ints, rows: Rows, threads: int) -> None:
        """Decode the frames of stacks ``i64[n]`` into ``u8[n * depth, nbytes]``, contiguous; each block once.

        Raises:
            SlotError: an id is of no stack or frame.
            CorruptStream: a block is truncated or altered.
            SnapshotError: a block lies in a file that somebody has shortened.
        """
        self._decode(self.located(ids), rows, threads)

    def located(self, ids: Ints) -> Located:
        """The blocks that have the frames of stacks ``i64[n]``, the first three of ``Wanted``, and the references.

        As long as the last value lives, no codec of these blocks is forgotten. See :meth:`read` for errors.
        """
        with self.lock:
            return self._locate(ids, self.stacks)

    def _locate(self, ids: Ints, stacks: StackTable) -> Located:
        """Where the frames of stacks are, for :meth:`_decode` without the lock."""
        found, streams = self._find(ids, stacks)
        references = self.open.reference_frames[: self.open.n_reference_frames]
        self._reading = ref(reading := self._reading() or _Reading())
        n = len(ids) * stacks.depth
        starts, places, targets = found[find.STARTS, : len(streams) + 1], found[find.PLACES, :n], found[find.ORDER, :n]
        return streams, starts, places, targets, references, reading

    def _decode(self, located: Located, rows: Rows, threads: int) -> None:
        streams, starts, places, targets, references, _ = located
        self.coder.read(streams, Wanted(starts, places, targets, rows), references, threads)

    def _find(self, ids: Ints, stacks: StackTable) -> tuple[npt.NDArray[np.int64], Segments]:
        """What ``find_frames`` finds, and the streams of the blocks, empty for the block of the frame of zeros."""
        content = np.empty(_ROOM, np.uint8)
        found = np.empty((find.N_ROWS_FOUND, len(ids) * stacks.depth + 1), np.int64)
        entries, memories, bases = self.heap.tables_now()
        tables = self.tables.arrays, stacks.tables, entries, bases, self.open.rows, *self.open.queues
        while True:
            n, value = find.find_frames(ids, self.block_frames, *tables, len(memories), content, found)
            if n != find.FEW_BYTES:
                break
            content = np.empty(value, np.uint8)
        if n == find.NO_STACK:
            raise SlotError(f"id {ids[value]} is of no {self._of_ids} in this store")
        if n == find.NO_FRAME:
            raise SlotError(f"id {value} is of no frame in this store")
        if n == find.NO_BLOCK:
            raise CorruptStream(f"block {value} is neither stored nor open")
        if value:
            memories = *memories, content
        self.heap.check_files(found[find.CHUNKS, :n])
        chunks, offsets = found[find.CHUNKS, :n], found[find.OFFSETS, :n]
        return found, Segments.located(memories, chunks, offsets, found[find.LENGTHS, :n], found[find.ADDRESSES, :n])

    def check(self, ids: Ints) -> Ints:
        """Make sure that all ids are of stacks of frames, ``i64[n * depth]``, and return these; with the lock held.

        Raises:
            SlotError: an id is of no stack or frame.
        """
        frames, (listed, _, _, tallies) = np.empty((len(ids), self.stacks.depth), np.int64), self.stacks.tables
        n_known = expand_stacks(ids, self.tables.previous, listed, tallies[N_ROWS], frames)
        if n_known < len(ids):
            raise SlotError(f"id {ids[n_known]} is of no {self._of_ids} in this store")
        flat = frames.reshape(-1)
        n_known = count_known(flat, self.tables.counts)
        if n_known < len(flat):
            raise SlotError(f"id {flat[n_known]} is of no frame in this store")
        return flat

    def compress(self) -> None:
        """Compress and store the blocks that wait, unless there is not enough room."""
        with self.lock, suppress(HeapFull):
            self.seal()

    def seal(self) -> None:
        """Compress and store the blocks of the queue, all or none; called with the lock held.

        Raises:
            HeapFull: there is not enough room.
        """
        self._sealer.now(self.tables.versions)

    def _prepare(self, sequence: int) -> None:
        """Make sure that a sequence exists and can begin another block."""
        if sequence < 0:
            raise ShapeError(f"sequences are numbers from 0 on, got {sequence}")
        self._sweep()
        if self.open.is_full(sequence):
            self.seal()
            if not self.open.queue.is_open:
                self._sealer.alone(int(self.open.blocks[sequence]), self.tables.versions)
                self.open.rows[sequence, field.QUEUED] = 1
        self._make_room(1)
        self.open.add_sequences(sequence + 1)

    def _make_room(self, n: int) -> None:
        """Make sure that there are numbers for ``n`` new blocks, and room in the tables."""
        tables = self.tables
        n_new = n - int(tables.tallies[N_FREE])
        if n_new > 0 and self.n + n_new > self._most_blocks:
            n_ids = self.n * self.block_frames
            raise HeapFull(f"all {n_ids} ids of frames that fit into 32 bits are used: use more than one store")
        while self.n + n_new > len(self.tables.live):
            n_blocks = min(2 * len(self.tables.live), self._most_blocks)
            self.heap.grow(n_blocks)
            self.tables = self.tables.grown(n_blocks)

    def _settle(self) -> None:
        """Give back the frames that an interrupted call held, and the blocks without frames."""
        if self._held is not None:
            if self._held.any():
                give_back_frames(self._held, self.block_frames, self.tables.arrays)
            self._held = None
        self._sweep()

    def _sweep(self) -> None:
        """Give back the blocks without frames, if there are any."""
        tables = self.tables
        if not tables.tallies[N_DEAD]:
            return
        dead = tables.dead[: tables.tallies[N_DEAD]].astype(np.int64)  # numpy may crash if it casts without memory
        self.heap.free(dead[tables.live[dead] == 0])
        reclaim(tables.arrays, *self.open.queues)
        versions = self.coder.versions
        if versions and len(versions.by_version) > 1 and not self._sealer.is_busy and self._reading() is None:
            versions.keep(set(np.unique(tables.versions[: self.n]).tolist()))

    def state(self) -> State:
        """All frames as they are at one moment, whatever other threads do later: see ``obscodec.state``."""
        with self.lock:
            self._settle()
            self.seal()
            n_ids, versions = self.n * self.block_frames, self.coder.versions
            return {
                "references": self.tables.counts[:n_ids] >> 1,
                "previous": self.tables.previous[:n_ids] * np.int32(self.stacks.depth > 1),  # ids of stacks need it
                "free": self.tables.free.copy(),
                "versions": self.tables.versions[: self.n].copy(),
                "blocks": self.heap.state(),
                "open": self.open.state(),
                "stacks": self.stacks.state() if self.stacks.depth > 1 else None,
                "codecs": versions.state() if versions else None,
            }

    def restore(self, state: State) -> None:
        """Fill this log, which is empty, with the :meth:`state` of a log that was made with equal arguments.

        Raises:
            CorruptStream: no log has such a state.
            HeapFull: there is not enough room.
        """
        references = array_of(state, "references", np.int32, (None,))
        n_ids, (n_blocks, rest) = len(references), divmod(len(references), self.block_frames)
        if rest or not self.first <= n_blocks <= self._most_blocks:
            raise CorruptStream(f"{n_ids} frames are not the blocks {self.first}..{self._most_blocks}")
        previous = array_of(state, "previous", np.int32, (n_ids,))
        with self.lock:
            self._make_room(n_blocks - self.n)
            if self.coder.versions is not None:
                self.coder.versions.restore(part_of(state, "codecs", dict))
            self.heap.restore(part_of(state, "blocks", dict), _UNREADABLE)
            self.open.restore(part_of(state, "open", dict))
            if self.stacks.depth > 1:
                self.stacks.restore(part_of(state, "stacks", dict), n_ids)
            recent = [row[field.RECENT_IDS :][: row[field.N_RECENT]] for row in self.open.rows]
            opened = self.open.blocks[self.open.blocks != 0]
            recent_ids = np.concatenate([np.empty(0, np.int64), *recent])
            free = array_of(state, "free", np.int32, (None,))
            self.tables.restore(references, previous, free, recent_ids, opened)
            if self.stacks.depth == 1:
                self.stacks.count(int(references.astype(np.int64).sum()))
            self._check_blocks()
            versions = array_of(state, "versions", np.int32, (n_blocks,))
            check_range("versions", versions, 0, np.iinfo(np.int32).max)
            self.tables.versions[:n_blocks] = versions

    def _check_blocks(self) -> None:
        """Refuse blocks that are nowhere."""
        live, stored = self.tables.live[: self.n], np.zeros(self.n, np.bool_)
        slots, _ = self.heap.state().values()
        if len(slots) and slots[-1] >= self.n:
            raise CorruptStream(f"a block has the number {slots[-1]}, there are {self.n}")
        stored[slots] = True
        if (live[stored] <= 0).any() or ((live > 0) & ~stored & ~np.isin(np.arange(self.n), self.open.blocks)).any():
            raise CorruptStream("a block with frames is neither stored nor open, or one without frames is stored")
