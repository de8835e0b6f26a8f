"""FrameLog: the frames of a FrameStore under their ids, in open blocks and in full ones."""

import threading
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from obscodec.codecs import BytesCodec, Codec, decode_varint
from obscodec.errors import HeapFull, ShapeError, SlotError
from obscodec.frames.block_coder import BlockCoder, BlockExport, Wanted
from obscodec.frames.kernels.append import append_frames
from obscodec.frames.kernels.counts import (
    N_DEAD,
    N_FREE,
    N_USED,
    count_known,
    give_back_frames,
    reclaim,
    reserve_numbers,
    retain_frames,
    take_frames,
)
from obscodec.frames.kernels.grouping import group_by_block
from obscodec.frames.kernels.stacks import LISTED_TWICE, N_ROWS, NO_STACK, expand_stacks, name_stacks, release_stacks
from obscodec.frames.open_blocks import OpenBlocks
from obscodec.frames.stack_table import StackTable
from obscodec.frames.tables import FrameTables
from obscodec.heap import Allocate, SlotHeap
from obscodec.layout import Rows
from obscodec.segments import Ints, Segments
from obscodec.stats import StoreStats

MIN_BLOCKS = 1 << 10


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
        open: the open blocks.
        tables: the tables of frames and blocks.
        stacks: the listed stacks of a StackStore, which puts them here.
        n_changes: how often frames, blocks or stacks may have changed.
        watcher: the token of whoever keeps a copy of this log elsewhere and asks for changes, None for nobody.
        lock: held by whoever works with these attributes.
    """

    def __init__(
        self,
        coder: BlockCoder[BytesCodec] | BlockCoder[Codec],
        nbytes: int,
        *,
        block_frames: int,
        stack: int,
        n_recent: int,
        first_id: int,
        last_id: int,
        max_bytes: int | None,
        allocate: Allocate,
    ) -> None:
        self.coder = coder
        self.block_frames = block_frames
        self._most_blocks = last_id // block_frames
        self.open = OpenBlocks(nbytes, block_frames=block_frames, stack=stack, n_recent=n_recent, patches=coder.patches)
        self.first = -(-first_id // block_frames)
        n_blocks = min(max(MIN_BLOCKS, 1 << self.first.bit_length()), self._most_blocks)
        self.heap = SlotHeap(n_blocks, max_bytes=max_bytes, allocate=allocate)
        self.tables = FrameTables(n_blocks, block_frames)
        self.tables.tallies[N_USED] = self.first
        self._singles = StackTable(depth=1)  # for ids of single frames
        self.stacks = self._singles
        self._held: Ints | None = None  # frames that are stored, but not yet given out as part of a stack
        self.n_changes = 0
        self.watcher: object = None
        self.lock = threading.Lock()

    @property
    def n(self) -> int:
        """How many numbers of blocks were ever used; 0 is the block of the frame of zeros."""
        return int(self.tables.tallies[N_USED])

    @property
    def mean_frame_bytes(self) -> float:
        """Bytes for each frame in full blocks, reference frames included; in open blocks while no block is full."""
        with self.lock:
            self._settle()
            heap = self.heap.stats()
            if not heap.n_streams:
                return self.open.mean_frame_bytes
            return (heap.live_bytes + self.open.reference_bytes) / (heap.n_streams * self.block_frames)

    def stats(self) -> StoreStats:
        """What the log holds now; reference frames count as dictionaries."""
        with self.lock:
            self._settle()
            heap, versions = self.heap.stats(), self.coder.versions
            n_frames = int(np.count_nonzero(self.tables.counts[: self.n * self.block_frames] > 1))
            return StoreStats(
                n_tensors=n_frames,
                raw_bytes=n_frames * self.open.nbytes,
                live_bytes=heap.live_bytes,
                reserved_bytes=heap.reserved_bytes + self.open.memory_bytes,
                table_bytes=heap.table_bytes + self.n * (8 * self.block_frames + 4),
                dictionary_bytes=self.open.reference_bytes + (versions.dictionary_bytes if versions else 0),
            )

    def take_in(self, rows: Rows, sequences: Ints, which: Ints, ids: Ints, stacks: StackTable | None = None) -> None:
        """Store stacks of frames; a frame that is known is not stored again.

        Args:
            rows: ``u8[m * depth, nbytes]``, contiguous: the frames of ``m`` stacks, oldest first.
            sequences: ``i64[m * depth]``, the sequence of each frame.
            which: ``i64[n]``, the stack that each id is for, each of ``0..m-1`` at least once.
            ids: ``i64[n]`` of zeros, filled in one step, each id with a reference.
            stacks: the listed stacks, None for single frames.

        Raises:
            ShapeError: a sequence is negative.
            HeapFull: there is not enough room; nothing was stored.
        """
        with self.lock:
            self.n_changes += 1
            self._settle()
            try:
                self._held = held = np.zeros(len(rows), np.int64)
                self._append(rows, sequences, held)
                self._name(held, which, ids, stacks or self._singles)
            except BaseException:
                self._settle()
                raise
            self._held = None

    def name(self, frames: Ints, ids: Ints, stacks: StackTable) -> None:
        """Fill ``ids``, ``i64[n]``, with ids of stacks of ``frames``, ``i64[n * depth]``, oldest first.

        All references go over from ``frames`` to ``ids`` in one step; after it, ``frames`` are zeros.
        """
        with self.lock:
            self.n_changes += 1
            self._name(frames, np.arange(len(ids)), ids, stacks)

    def give_back(self, ids: Ints, stacks: StackTable | None = None) -> None:
        """Take one reference from each of ``ids``, and set ``ids`` to 0, in one step.

        Raises:
            SlotError: an id is of no stack or frame, or is named more often than it has references; nothing was done.
        """
        stacks = stacks or self._singles
        frames = np.empty((len(ids), stacks.depth), np.int64)
        with self.lock:
            self.n_changes += 1
            self._settle()
            wrong, at = release_stacks(ids, frames, self.block_frames, self.tables.arrays, stacks.tables)
            if wrong == NO_STACK and stacks.depth > 1:
                raise SlotError(f"id {ids[at]} is of no stack in this store")
            if wrong == LISTED_TWICE:
                raise SlotError(f"id {ids[at]} is released twice, it stands for one stack")
            if wrong:
                frame = ids[at] if wrong == NO_STACK else frames.reshape(-1)[at]
                what = "is of no frame in this store, or is released more often than it was given out"
                raise SlotError(f"id {frame} {what}")
            if self.tables.tallies[N_DEAD]:
                self._sweep()

    def expand(self, ids: Ints, stacks: StackTable) -> npt.NDArray[np.int64]:
        """The frames of stacks, ``i64[n, depth]``.

        Raises:
            SlotError: an id is of no stack.
        """
        frames = np.empty((len(ids), stacks.depth), np.int64)
        listed, _, _, tallies = stacks.tables
        n_known = expand_stacks(ids, self.tables.previous, listed, tallies[N_ROWS], frames)
        if n_known < len(ids):
            raise SlotError(f"id {ids[n_known]} is of no stack in this store")
        return frames

    def retain(self, ids: Ints, retained: Ints) -> None:
        """Add one reference to each of ``ids``, and copy them to ``retained``, in one step.

        Raises:
            SlotError: an id is of no frame.
        """
        with self.lock:
            self._settle()
            self.check(ids)
            retain_frames(ids, self.tables.counts, retained)

    def read(self, ids: Ints, rows: Rows, threads: int) -> None:
        """Decode frames into ``u8[n, nbytes]``; each block is decoded once.

        Raises:
            SlotError: an id is of no frame.
            CorruptStream: a block is truncated or altered.
        """
        with self.lock:
            self.check(ids)
            order, places, blocks, starts = group_by_block(ids, self.block_frames)
            streams = self._snapshot(blocks)
            references = self.open.references[: self.open.n_references]
        self.coder.read(streams, Wanted(starts, places, order, rows), references, threads)

    def check(self, ids: Ints) -> None:
        """Make sure that all ids are of frames; called with the lock held.

        Raises:
            SlotError: an id is of no frame.
        """
        n_known = count_known(ids, self.tables.counts)
        if n_known < len(ids):
            raise SlotError(f"id {ids[n_known]} is of no frame in this store")

    def export_blocks(self, frames: Ints) -> tuple[BlockExport, npt.NDArray[np.int32]]:
        """The blocks of frames, given by rising ids, for another store; and for each frame the one before it.

        Raises:
            SlotError: an id is of no frame.
            CorruptStream: a block is damaged.
        """
        with self.lock:
            self.check(frames)
            _, places, blocks, starts = group_by_block(frames, self.block_frames)
            export = BlockExport(
                self._snapshot(blocks),
                np.isin(blocks, self.open.blocks),
                np.diff(starts),
                places[starts[1:] - 1],
                self.open.references[: self.open.n_references],
                self.coder.versions,
            )
            before = self.tables.previous[frames]
        return export._replace(blocks=self.coder.export_blocks(export.blocks)), before

    def take_blocks(self, export: BlockExport, places: Ints, n_each: Ints, ids: Ints) -> None:
        """Store blocks of another store.

        Args:
            export: the blocks.
            places: ``i64[n]``, the place of each wanted frame in its block; the frames of a block are consecutive.
            n_each: ``i64[n]``, how many references each of these frames gets.
            ids: ``i64[n_each.sum()]`` of zeros, filled: the id of each frame, as often as it has references.

        Raises:
            CorruptStream: a block is damaged.
            HeapFull: there is not enough room; nothing was stored.
        """
        numbers = np.zeros(len(export.n_wanted), np.int64)
        starts = np.append(0, np.cumsum(export.n_wanted))
        with self.lock:
            self.n_changes += 1
            self._settle()
            try:
                self._make_room(len(numbers))
                tables = self.tables
                reserve_numbers(numbers, tables.arrays)
                blocks = self.coder.take(export, self.open)
                tables.versions[numbers] = [decode_varint(block)[0] for block in blocks]
                self.heap.put(numbers, blocks)
                take_frames(numbers, starts, places, n_each, self.block_frames, tables.arrays, ids)
            finally:
                self._settle()

    def set_previous(self, ids: Ints, before: Ints) -> None:
        """Note that the frames ``before`` came before ``ids``."""
        with self.lock:
            self.n_changes += 1
            self.heap.note(ids // self.block_frames)
            self.tables.previous[ids] = before

    def _append(self, rows: Rows, sequences: Ints, ids: Ints) -> None:
        done = 0
        while (done := append_frames(rows, done, sequences, self.open.tables, self.tables.arrays, ids)) < len(rows):
            self._prepare(int(sequences[done]))
        if self.open.n_full:
            with suppress(HeapFull):  # it is only a problem for the next frame
                self._store_full(self.open.full(self.tables.live))

    def _name(self, held: Ints, which: Ints, ids: Ints, stacks: StackTable) -> None:
        while not name_stacks(held, which, self.tables.arrays, stacks.tables, ids):
            stacks.reserve(len(which))

    def _prepare(self, sequence: int) -> None:
        """Make sure that a sequence exists and can begin another block."""
        if sequence < 0:
            raise ShapeError(f"sequences are numbers from 0 on, got {sequence}")
        self._sweep()
        full = self.open.full(self.tables.live)
        try:
            self._store_full(full)
        except HeapFull:
            self._store_full(full[full == sequence])
        self._make_room(1)
        self.open.add_sequences(sequence + 1)

    def _store_full(self, which: Ints) -> None:
        """Compress and store the open blocks of the sequences ``which``, all or none."""
        self.open.n_full = 0  # if there is no room, there is none in the next call
        if len(which) == 0:
            return
        new = which[~self.heap.holds(self.open.blocks[which])]  # a call that was cut off may have stored some
        numbers, blocks = self.open.blocks[new], self.open.copies(new)
        versions, sealed = self.coder.seal(blocks)
        self.tables.versions[numbers] = versions.astype(np.int32)  # numpy may crash if it has no memory to cast
        self.heap.put(numbers, sealed)
        self.open.mark_stored(which)
        self.coder.learn(blocks, versions, sealed)

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
        reclaim(tables.arrays)
        versions = self.coder.versions
        if versions is not None and versions.are_several:
            versions.keep(set(np.unique(tables.versions[: self.n]).tolist()))

    def _snapshot(self, blocks: Ints) -> Segments:
        """The streams of blocks as they are now; an empty stream for the block of the frame of zeros."""
        streams = self.heap.locate(blocks)
        if streams.lengths.all():
            return streams
        opened = np.flatnonzero((streams.lengths == 0) & (blocks != 0))
        if len(opened) == 0:
            return streams
        contents = [self.open.block(number) for number in blocks[opened].tolist()]
        return streams.replaced(opened, Segments.of(contents))

    def __getstate__(self) -> dict[str, object]:
        """All parts as they are at one moment, whatever other threads do until they are pickled."""
        with self.lock:
            self._settle()
            parts = {name: _Frozen(vars(self)[name]) for name in ("coder", "heap", "open", "tables", "stacks")}
            return {**vars(self), **parts, "lock": None, "watcher": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, lock=threading.Lock())


class _Frozen:
    """Is pickled and copied as ``part`` is now."""

    def __init__(self, part: object) -> None:
        self._type, self._state = type(part), part.__getstate__()

    def __reduce__(self) -> tuple[object, ...]:
        return object.__new__, (self._type,), self._state
