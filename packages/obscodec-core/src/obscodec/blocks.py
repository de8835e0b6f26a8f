"""Blocks: the frames of a FrameStore under their ids, in open blocks and in full ones."""

from __future__ import annotations

import threading
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from obscodec.block_coder import BlockCoder, Offer, Wanted
from obscodec.bytes_codec import BytesCodec
from obscodec.codec import Codec
from obscodec.errors import HeapFull, ShapeError, SlotError
from obscodec.frame_watch import FrameWatch
from obscodec.heap import SlotHeap
from obscodec.interrupts import uninterrupted
from obscodec.kernels.counts import count_known, release_frames, retain_frames
from obscodec.kernels.grouping import group_by_block
from obscodec.layout import Rows
from obscodec.open_blocks import FrameTables, OpenBlocks
from obscodec.segments import Ints, Segments

MIN_BLOCKS = 1 << 10
_MAX_ID = (1 << 31) - 1


class Blocks:
    """Blocks of consecutive frames, by number: for each stream of frames an open one, the full ones in a heap.

    The id of a frame is ``number * block_frames + place``. Ids are counted; a block goes with its last frame, and its
    number is used again. Safe to use from several threads.

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
        n: how many numbers of blocks were ever used; 0 is the block of the frame of zeros.
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
        self.tables = FrameTables(MIN_BLOCKS, self.block_frames)
        self.n = 0
        self._unused: list[int] = []
        while self.n * self.block_frames < first_id:
            self._add()
        self.watch: FrameWatch | None = None
        self.lock = threading.Lock()

    def replace(self, old: Ints, rows: Rows, streams: Ints) -> Ints:
        """Take frames in, ``u8[n, nbytes]``, then release ``old``; see ``FrameStore.replace``."""
        n, done = len(rows), 0
        ids, dead = np.empty(n, np.int64), np.empty(n + len(old), np.int64)
        with uninterrupted(), self.lock:
            try:
                while True:
                    done, n_dead, refused = self.open.replace(rows, old, done, streams, self.tables, ids, dead)
                    if n_dead:
                        self._drop(dead[:n_dead].tolist())
                    if done == n:
                        break
                    self._next(int(streams[done]))
                if refused >= 0:
                    self._complain(old[refused])
            except BaseException:
                self._release(ids[:done])
                raise
        return ids

    def retain(self, ids: Ints) -> None:
        """Add one reference to each of ``ids``.

        Raises:
            SlotError: an id is of no frame.
        """
        with self.lock:
            n_known = retain_frames(ids, self.tables.counts)
            if n_known < len(ids):
                self._refuse(ids[n_known])

    def release(self, ids: Ints) -> None:
        """Give back one reference to each of ``ids``; 0 among them is left alone.

        Raises:
            SlotError: an id is of no frame.
        """
        with uninterrupted(), self.lock:
            self._release(ids)

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
                np.isin(blocks, list(self.open.blocks)),
                np.diff(starts),
                places[starts[1:] - 1],
                self.open.references[: self.open.n_references],
                self.coder.versions,
            )
            before = self.tables.previous[frames]
        return offer._replace(blocks=self.coder.lend(offer.blocks)), before

    def take(self, offer: Offer, places: Ints, n_each: Ints) -> Ints:
        """Store encoded blocks; the ids of the frames at the places that are wanted, with so many references each."""
        with self.lock:
            numbers: list[int] = []
            try:
                for _ in offer.n_wanted:
                    numbers.append(self._new())
                blocks = self.coder.take(offer, self.open)
                try:
                    self.heap.put(numbers, blocks)
                except BaseException:
                    self.coder.dropped(blocks)
                    raise
            except BaseException:
                self._unused += numbers
                raise
            ids = np.repeat(np.array(numbers, np.int64), offer.n_wanted) * self.block_frames + places
            self.tables.counts[ids] = 2 * n_each
            self.tables.live[numbers] = offer.n_wanted
        return ids

    def set_previous(self, ids: Ints, before: Ints) -> None:
        """Note which frame came before each of ``ids``."""
        with self.lock:
            self.tables.previous[ids] = before
            if self.watch is not None:
                self.watch.note(ids // self.block_frames)

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

    def _next(self, stream: int) -> None:
        """Encode the full block of a stream, and begin another one."""
        if stream < 0:
            raise ShapeError(f"streams are numbers from 0 on, got {stream}")
        self.open.add_streams(stream + 1)
        full = self.open.block_of(stream)
        if full and self.tables.live[full]:
            content = self.open.content(full)
            block = self.coder.seal(content)
            self.heap.put(full, Segments.packed(block, np.array([len(block)])))
            self.coder.stored(block, content)
        elif full:
            self._unused.append(full)
        self.open.start(stream, self._new())

    def _new(self) -> int:
        """The number of a new block."""
        return self._unused.pop() if self._unused else self._add()

    def _add(self) -> int:
        # a StackStore multiplies the id of a frame by the depth, a NarrowStore that by two, and arrays keep it as int32
        if (self.n + 1) * self.block_frames * self.open.stack * 2 > _MAX_ID:
            n_ids = self.n * self.block_frames
            raise HeapFull(f"all {n_ids} ids of frames that fit into 32 bits are used: use more than one store")
        if self.n == len(self.tables.live):
            self.heap.grow(2 * self.n)
            self.tables.grow()
        self.n += 1
        return self.n - 1

    def _release(self, ids: Ints) -> None:
        dead = np.empty(len(ids), np.int64)
        n_dead = release_frames(ids, self.block_frames, self.tables.counts, self.tables.live, dead)
        if n_dead < 0:
            self._complain(ids[-1 - n_dead])
        self._drop(dead[:n_dead].tolist())

    def _drop(self, blocks: list[int]) -> None:
        """Give back blocks without references; one that is still open goes when it is full."""
        dropped = [block for block in blocks if block not in self.open.blocks]
        if dropped:
            if self.coder.versions is not None:
                self.coder.dropped(self.heap.get(dropped))
            self.heap.free(dropped)
            self._unused += dropped

    def _refuse(self, wanted: np.int64) -> NoReturn:
        raise SlotError(f"id {wanted} is of no frame in this store")

    def _complain(self, released: np.int64) -> NoReturn:
        raise SlotError(f"id {released} is of no frame in this store, or is released more often than it was given out")

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("lock", "watch")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, watch=None, lock=threading.Lock())
