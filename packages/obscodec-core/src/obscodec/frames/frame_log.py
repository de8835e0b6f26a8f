"""Blocks: the frames of a FrameStore under their ids, in open blocks and in full ones."""

from __future__ import annotations

import threading
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from obscodec.codecs import BytesCodec, Codec, decode_varint
from obscodec.errors import HeapFull, ShapeError, SlotError
from obscodec.frames.block_coder import BlockCoder, Offer, Wanted
from obscodec.frames.frame_watch import FrameWatch
from obscodec.frames.kernels.counts import (
    N_DEAD,
    N_FREE,
    N_USED,
    adopt_frames,
    count_known,
    give_back_frames,
    reclaim,
    reserve_numbers,
    retain_frames,
)
from obscodec.frames.kernels.grouping import group_by_block
from obscodec.frames.kernels.stacks import LISTED_TWICE, NO_STACK, name_stacks, release_stacks
from obscodec.frames.open_blocks import FrameTables, OpenBlocks
from obscodec.frames.stack_table import ListedStacks
from obscodec.heap import SlotHeap
from obscodec.layout import Rows
from obscodec.segments import Ints, Segments

MIN_BLOCKS = 1 << 10
_MAX_ID = (1 << 31) - 1


class Blocks:
    """Blocks of consecutive frames, by number: for each stream of frames an open one, the full ones in a heap.

    The id of a frame is ``number * block_frames + place``. Ids are counted; a block goes with its last frame, and its
    number is used again. Safe to use from several threads.

    An exception at any line, from a signal handler or for want of memory, leaves all frames and counts as they were, or
    as they are after the call: kernels make the changes that belong together, and a reference is always in one place,
    an array of ids that somebody has. What a call that ended in the middle had taken in, :meth:`_settle` gives back.

    Args:
        coder: encodes full blocks.
        heap: where these go, with their numbers as slots; ``MIN_BLOCKS`` of them, it is grown.
        open_blocks: the open ones.
        first_id: the least id to give out, 1 or more.

    Attributes:
        coder: that.
        heap: that.
        open: the open blocks.
        block_frames: how many frames a block has.
        tables: what is known of each frame and block.
        singles: what stands for listed stacks where single frames are given out, which are stacks of one.
        watch: what looks for changes, None while nobody does.
        lock: held by whoever works with these attributes.
    """

    def __init__(
        self,
        coder: BlockCoder[BytesCodec] | BlockCoder[Codec],
        heap: SlotHeap,
        open_blocks: OpenBlocks,
        *,
        first_id: int,
    ) -> None:
        self.coder = coder
        self.heap = heap
        self.open = open_blocks
        self.block_frames = open_blocks.block_frames
        first = -(-first_id // self.block_frames)
        n_blocks = max(MIN_BLOCKS, 1 << first.bit_length())
        heap.grow(n_blocks)
        self.tables = FrameTables(n_blocks, self.block_frames)
        self.tables.tallies[N_USED] = first
        self.singles = ListedStacks(depth=1)
        self._held: Ints | None = None  # frames that are taken in, but belong to no id that was given out yet
        self.watch: FrameWatch | None = None
        self.lock = threading.Lock()

    @property
    def n(self) -> int:
        """How many numbers of blocks were ever used; 0 is the block of the frame of zeros."""
        return int(self.tables.tallies[N_USED])

    def take_in(self, rows: Rows, streams: Ints, which: Ints, ids: Ints, stacks: ListedStacks | None = None) -> None:
        """Store frames, those that are new, and give ids to the stacks that they make.

        Args:
            rows: ``u8[m * depth, nbytes]``, contiguous: the frames of ``m`` stacks, oldest first.
            streams: ``i64[m * depth]``, the stream of each frame.
            which: ``i64[n]``, the stack that each id is for, each of ``0..m-1`` at least once.
            ids: ``i64[n]`` of zeros, filled in one step: then there is a reference for each.
            stacks: those that are listed, None for single frames.

        Raises:
            ShapeError: a stream is negative.
            HeapFull: there is not enough room; nothing was stored.
        """
        with self.lock:
            self._settle()
            try:
                self._held = np.zeros(len(rows), np.int64)
                self._append(rows, streams, self._held)
                self._name(self._held, which, ids, stacks)
            finally:
                self._settle()

    def name(self, frames: Ints, ids: Ints, stacks: ListedStacks) -> None:
        """Give ids to stacks of frames: each reference goes from ``frames`` over to ``ids``, all of them in one step.

        Args:
            frames: ``i64[n * depth]``, the frames of each stack, oldest first, with a reference to each; then zeros.
            ids: ``i64[n]``, filled.
            stacks: those that are listed.
        """
        with self.lock:
            self._name(frames, np.arange(len(ids)), ids, stacks)

    def give_back(self, ids: Ints, stacks: ListedStacks | None = None) -> None:
        """Take one reference from each of ``ids``, and set them to 0, in one step; 0 among them is left alone.

        Raises:
            SlotError: an id is of no stack, or of no frame; nothing was done.
        """
        stacks = stacks or self.singles
        frames = np.empty((len(ids), stacks.depth), np.int64)
        with self.lock:
            self._settle()
            tables = self.tables
            wrong, at = release_stacks(
                ids,
                frames,
                self.block_frames,
                tables.counts,
                tables.live,
                tables.previous,
                tables.dead,
                tables.tallies,
                *stacks.tables,
            )
            if wrong == NO_STACK and stacks.depth > 1:
                raise SlotError(f"id {ids[at]} is of no stack in this store")
            if wrong == LISTED_TWICE:
                raise SlotError(f"id {ids[at]} is released twice, it stands for one stack")
            if wrong:
                frame = ids[at] if wrong == NO_STACK else frames.reshape(-1)[at]
                what = "is of no frame in this store, or is released more often than it was given out"
                raise SlotError(f"id {frame} {what}")
            self._settle()

    def retain(self, ids: Ints, retained: Ints) -> None:
        """Add one reference to each of ``ids``, and fill ``retained`` with them, in one step.

        Raises:
            SlotError: an id is of no frame.
        """
        with self.lock:
            self._settle()
            n_known = retain_frames(ids, self.tables.counts, retained)
            if n_known < len(ids):
                self._refuse(ids[n_known])

    def read(self, ids: Ints, rows: Rows, threads: int) -> None:
        """Decode frames into ``u8[n, nbytes]``; each block is decoded once.

        Raises:
            SlotError: an id is of no frame.
            CorruptStream: a block is truncated or altered.
        """
        with self.lock:
            order, places, blocks, starts = self._grouped(ids)
            streams = self._snapshot(blocks)
            references = self.open.references[: self.open.n_references]
        self.coder.read(streams, Wanted(starts, places, order, rows), references, threads)

    def check(self, ids: Ints) -> None:
        """Make sure that there are frames with these ids; called with the lock held.

        Raises:
            SlotError: an id is of no frame.
        """
        n_known = count_known(ids, self.tables.counts)
        if n_known < len(ids):
            self._refuse(ids[n_known])

    def offer(self, frames: Ints) -> tuple[Offer, npt.NDArray[np.int32]]:
        """The blocks of frames, which are given rising, for another store; and for each frame the one before it.

        Raises:
            SlotError: an id is of no frame.
            CorruptStream: a block is damaged.
        """
        with self.lock:
            _, places, blocks, starts = self._grouped(frames)
            offer = Offer(
                self._snapshot(blocks),
                np.isin(blocks, self.open.blocks),
                np.diff(starts),
                places[starts[1:] - 1],
                self.open.references[: self.open.n_references],
                self.coder.versions,
            )
            before = self.tables.previous[frames]
        return offer._replace(blocks=self.coder.lend(offer.blocks)), before

    def take(self, offer: Offer, places: Ints, n_each: Ints, ids: Ints) -> None:
        """Store encoded blocks.

        Args:
            offer: the blocks.
            places: ``i64[n]``, the places in them of the frames that are wanted, one block behind the other.
            n_each: ``i64[n]``, how many references to each of these.
            ids: ``i64[n_each.sum()]`` of zeros, filled with each of them as often as it has references.

        Raises:
            CorruptStream: a block is damaged.
            HeapFull: there is not enough room; nothing was stored.
        """
        numbers = np.zeros(len(offer.n_wanted), np.int64)
        starts = np.append(0, np.cumsum(offer.n_wanted))
        with self.lock:
            self._settle()
            try:
                self._make_room(len(numbers))
                tables = self.tables
                reserve_numbers(numbers, tables.live, tables.free, tables.dead, tables.tallies)
                blocks = self.coder.take(offer, self.open)
                tables.versions[numbers] = [decode_varint(block)[0] for block in blocks]
                self.heap.put(numbers, blocks)
                adopt_frames(numbers, starts, places, n_each, self.block_frames, tables.counts, tables.live, ids)
            finally:
                self._settle()

    def set_previous(self, ids: Ints, before: Ints) -> None:
        """Note which frame came before each of ``ids``."""
        with self.lock:
            if self.watch is not None:
                self.watch.note(ids // self.block_frames)
            self.tables.previous[ids] = before

    def _append(self, rows: Rows, streams: Ints, ids: Ints) -> None:
        """Take frames in; each id is there as soon as it has a reference."""
        done = 0
        while (done := self.open.append(rows, done, streams, self.tables, ids)) < len(rows):
            self._next(int(streams[done]))

    def _name(self, held: Ints, which: Ints, ids: Ints, stacks: ListedStacks | None) -> None:
        """Have the references that ``held`` has go over to ``ids``."""
        stacks = stacks or self.singles
        stacks.reserve(len(which))
        name_stacks(held, which, self.tables.counts, self.tables.previous, *stacks.tables, ids)

    def _next(self, stream: int) -> None:
        """Encode the full block of a stream, and begin another one."""
        if stream < 0:
            raise ShapeError(f"streams are numbers from 0 on, got {stream}")
        self.open.add_streams(stream + 1)
        full = int(self.open.blocks[stream])
        if full and self.tables.live[full] > 1:
            content = self.open.content(full)
            block = self.coder.seal(content)
            self.tables.versions[full] = decode_varint(block)[0]
            self.heap.put(full, Segments.packed(block, np.array([len(block)])))
            self.coder.learn(block, self.coder.plain(content))
        self._sweep()
        self._make_room(1)
        self.open.start(stream, self.tables)

    def _make_room(self, n: int) -> None:
        """Have numbers for ``n`` new blocks."""
        tables = self.tables
        n_new = n - int(tables.tallies[N_FREE])
        # a StackStore multiplies the id of a frame by the depth, a NarrowStore that by two, and arrays keep it as int32
        if n_new > 0 and (self.n + n_new) * self.block_frames * self.open.stack * 2 > _MAX_ID:
            n_ids = self.n * self.block_frames
            raise HeapFull(f"all {n_ids} ids of frames that fit into 32 bits are used: use more than one store")
        while self.n + n_new > len(self.tables.live):
            self.heap.grow(2 * len(self.tables.live))
            self.tables = self.tables.grown()

    def _settle(self) -> None:
        """Finish what a call left: give back what it held, and blocks without frames."""
        if self._held is not None:
            if self._held.any():
                tables = self.tables
                give_back_frames(self._held, self.block_frames, tables.counts, tables.live, tables.dead, tables.tallies)
            self._held = None
        self._sweep()

    def _sweep(self) -> None:
        """Give back the blocks without frames."""
        tables = self.tables
        if not tables.tallies[N_DEAD]:
            return
        dead = tables.dead[: tables.tallies[N_DEAD]].astype(np.int64)  # numpy may crash where it casts, without memory
        self.heap.free(dead[tables.live[dead] == 0])
        reclaim(tables.live, tables.free, tables.dead, tables.versions, tables.tallies)
        versions = self.coder.versions
        if versions is not None and versions.are_several:
            versions.keep(set(np.unique(tables.versions[: self.n]).tolist()))

    def _grouped(self, ids: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """What ``group_by_block`` tells of frames."""
        n_known, *grouped = group_by_block(ids, self.block_frames, self.tables.counts)
        if n_known < len(ids):
            self._refuse(ids[n_known])
        order, places, blocks, starts = grouped
        return order, places, blocks, starts

    def _snapshot(self, blocks: Ints) -> Segments:
        """The streams of blocks, as they are now; empty for the block of zeros."""
        streams = self.heap.locate(blocks)
        if streams.lengths.all():
            return streams
        opened = np.flatnonzero((streams.lengths == 0) & (blocks != 0))
        if len(opened) == 0:
            return streams
        contents = [self.coder.open(self.open.content(number)) for number in blocks[opened].tolist()]
        return streams.replaced(opened, Segments.of(contents))

    def _refuse(self, wanted: np.int64) -> NoReturn:
        raise SlotError(f"id {wanted} is of no frame in this store")

    def __getstate__(self) -> dict[str, object]:
        with self.lock:
            self._settle()
        return {name: value for name, value in vars(self).items() if name not in ("lock", "watch")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, watch=None, lock=threading.Lock())
