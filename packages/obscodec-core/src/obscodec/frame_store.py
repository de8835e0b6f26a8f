"""FrameStore: frames that are stored once, in blocks of consecutive ones, as patches of each other."""

from __future__ import annotations

import threading
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from obscodec.block_coder import Offer, Wanted
from obscodec.errors import CorruptStream, HeapFull, ShapeError, SlotError
from obscodec.frame_blocks import block_coder
from obscodec.heap import SlotHeap
from obscodec.interrupts import uninterrupted
from obscodec.kernels.counts import release_frames, retain_frames
from obscodec.kernels.first_use import announce
from obscodec.kernels.grouping import group_by_block
from obscodec.layout import Layout, Rows
from obscodec.open_blocks import FrameTables, OpenBlocks
from obscodec.parallel import default_threads
from obscodec.segments import Ints, Segments
from obscodec.store import Store, StoreStats, each_stream, repeats

DEFAULT_BLOCK_FRAMES = 16
_MIN_BLOCKS = 1 << 10
_MAX_ID = (1 << 31) - 1
_NOTHING = np.empty(0, np.int64)


class FrameStore(Store):
    """Frames of one layout, each stored once, under integer ids.

    A frame that is equal, byte for byte, to one of the last frames of its stream gets the id of that one. A new one
    joins the open block of its stream; a full block is encoded as one stream in a slot heap. With the codec
    ``delta-rle``, each frame is a patch of the one before it, made when it is appended.

    The id of a frame is ``block * block_frames + place``. Id 0 is the frame of zeros. Ids are counted: a frame is
    dropped when each reference that :meth:`append` and :meth:`retain` gave has been released, and the memory of a block
    when its last frame is. Safe to use from several threads.

    Args:
        layout: shape and dtype of one frame.
        codec: how blocks are encoded: ``delta-rle``, ``delta-rle|zstd:3`` or any other spec.
        block_frames: how many frames a block has; 1 for codecs that gain nothing from neighbours.
        stack: how many frames come together in one observation. A hint: the likely distance to a repetition.
        recent: with how many of the last frames of its stream a frame is compared.
        first_id: the least id to give out, 1 or more.
        max_bytes: the most bytes to reserve for blocks, None for no limit.
        threads: how many threads a large batch is spread over, None for half of the usable processors.

    Example:
        >>> import numpy as np
        >>> store = FrameStore(Layout((84, 84), np.uint8))
        >>> grey, white = np.full((84, 84), 127, np.uint8), np.full((84, 84), 255, np.uint8)
        >>> a, b, c = store.append(np.stack([grey, white, grey]))
        >>> bool(a == c), store.stats().n_tensors
        (True, 2)
        >>> store.read([b]).max()
        np.uint8(255)
    """

    def __init__(
        self,
        layout: Layout,
        *,
        codec: str = "delta-rle",
        block_frames: int = DEFAULT_BLOCK_FRAMES,
        stack: int = 1,
        recent: int | None = None,
        first_id: int = 1,
        max_bytes: int | None = None,
        threads: int | None = None,
    ) -> None:
        if layout.nbytes == 0:
            raise ShapeError(f"a frame has at least one byte, got {layout}")
        if min(block_frames, stack, 1 if recent is None else recent) < 1:
            raise ShapeError(f"block_frames, stack and recent are 1 or more, got {block_frames}, {stack}, {recent}")
        announce()
        self.layout = layout
        self.block_frames = block_frames
        self.threads = default_threads() if threads is None else threads
        self._coder = block_coder(codec, layout, block_frames)
        self._heap = SlotHeap(_MIN_BLOCKS, max_bytes=max_bytes)
        self._open = OpenBlocks(
            layout.nbytes,
            block_frames=block_frames,
            stack=stack,
            n_recent=stack + 2 if recent is None else recent,
            patches=self._coder.patches,
        )
        self._n_blocks = 0
        self._unused_blocks: list[int] = []
        self._tables = FrameTables(_MIN_BLOCKS, block_frames)
        while self._n_blocks * block_frames < first_id:  # the first one is that of the frame of zeros
            self._add_block()
        self._lock = threading.Lock()

    @property
    def codec(self) -> str:
        """The spec of the codec of the blocks."""
        return self._coder.spec

    @property
    def previous(self) -> npt.NDArray[np.int32]:
        """For each frame, by id, the one before it in the observation of ``stack`` frames that it came with first."""
        return self._tables.previous

    @property
    def mean_frame_bytes(self) -> float:
        """Bytes for each frame in the full blocks, with the reference frames; in the open ones if none is full yet."""
        with self._lock:
            heap = self._heap.stats()
            if heap.n_streams:
                references = (self._open.n_references - 1) * self.layout.nbytes
                return (heap.live_bytes + references) / (heap.n_streams * self.block_frames)
            return self._open.mean_frame_bytes

    def append(self, tensors: npt.NDArray[np.generic], streams: npt.ArrayLike = 0) -> Ints:
        """Store frames, those that are new.

        Args:
            tensors: ``[n, *shape]``, in the order of time for each stream.
            streams: which stream each frame belongs to, ``i64[n]`` or one for all: small numbers from 0 on, such as
                the index of the environment. Frames are compared and encoded within their stream.

        Returns:
            ``i64[n]``, their ids. The caller owns one reference for each.

        Raises:
            ShapeError: the frames have another shape.
            DTypeError: the frames have another dtype.
            HeapFull: there is not enough room below ``max_bytes``; nothing was stored.
        """
        return self.replace(_NOTHING, tensors, streams)

    def replace(self, old: Ints, tensors: npt.NDArray[np.generic], streams: npt.ArrayLike = 0) -> Ints:
        """Store frames, and give back one reference to each of ``old``; see :meth:`append`, :meth:`release`."""
        rows = self.layout.rows(tensors)
        return self.replace_rows(old, rows, each_stream(streams, len(rows)))

    def replace_repeated(self, old: Ints, tensors: npt.NDArray[np.generic], which: Ints, streams: Ints) -> Ints:
        """:meth:`replace` by ``tensors[which]``; see ``Store.replace_repeated``."""
        with uninterrupted():
            ids = self.replace(old, tensors, streams)[which]
            self.retain(ids[repeats(which, len(tensors))])
        return ids

    def replace_rows(self, old: Ints, rows: Rows, streams: Ints) -> Ints:
        """:meth:`replace` for frames that are rows already, ``u8[n, nbytes]`` and contiguous."""
        n = len(rows)
        ids = np.empty(n, np.int64)
        dead = np.empty(n + len(old), np.int64)
        with uninterrupted(), self._lock:
            done = 0
            try:
                while True:
                    done, n_dead, refused = self._open.replace(old, rows, done, streams, self._tables, ids, dead)
                    if n_dead:
                        self._drop(dead[:n_dead].tolist())
                    if done == n:
                        break
                    self._next_block(int(streams[done]))
                if refused >= 0:
                    self._complain(old[refused])
            except BaseException:
                self._release(ids[:done])
                raise
        return ids

    def adopt_alike(self, other: Store, ids: Ints) -> Ints | None:
        """Take frames over from a store with the same codec, block by block; see ``Store.adopt``.

        A block of which half of the frames are wanted goes as it is, with the others: alone, without the one before it,
        a frame takes several times as much. The frames of other blocks are decoded and appended.
        """
        if other is self:
            self.retain(ids)
            return ids.copy()
        if not isinstance(other, FrameStore) or other._form != self._form:
            return None
        frames, which, n_each = np.unique(np.append(0, ids), return_inverse=True, return_counts=True)
        adopted = np.zeros(len(frames), np.int64)
        if len(frames) > 1:
            adopted[1:] = self._adopt_each(other, frames[1:], n_each[1:])
        return adopted[which[1:]]

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """Decode frames; see ``Store.read``. Each block is decoded once, and its frames go straight to their places."""
        rows = self.layout.rows(out)
        with self._lock:
            n_known, order, places, blocks, starts = group_by_block(ids, self.block_frames, self._tables.counts)
            if n_known < len(ids):
                self._refuse(ids[n_known])
            streams = self._snapshot(blocks)
            references = self._open.references[: self._open.n_references]
        self._coder.read(streams, Wanted(starts, places, order, rows), references, self.threads)

    def retain(self, ids: npt.ArrayLike) -> None:
        """Add one reference to each of ``ids``.

        Raises:
            SlotError: an id is of no frame.
        """
        added = np.atleast_1d(np.asarray(ids, np.int64))
        with self._lock:
            n_known = retain_frames(added, self._tables.counts)
            if n_known < len(added):
                self._refuse(added[n_known])

    def release(self, ids: npt.ArrayLike) -> None:
        """Give back one reference to each of ``ids``; 0 among them is left alone.

        Raises:
            SlotError: an id is of no frame.
        """
        released = np.atleast_1d(np.asarray(ids, np.int64))
        with uninterrupted(), self._lock:
            self._release(released)

    def stats(self) -> StoreStats:
        """What the store holds now."""
        with self._lock:
            heap = self._heap.stats()
            n_frames = int(np.count_nonzero(self._tables.counts[: self._n_blocks * self.block_frames] > 1))
            open_bytes = self._open.memory_bytes
            reference_bytes = (self._open.n_references - 1) * self.layout.nbytes
        return StoreStats(
            n_tensors=n_frames,
            raw_bytes=n_frames * self.layout.nbytes,
            live_bytes=heap.live_bytes,
            reserved_bytes=heap.reserved_bytes + open_bytes,
            table_bytes=heap.table_bytes + self._n_blocks * (8 * self.block_frames + 4),
            dictionary_bytes=reference_bytes + (self._coder.versions.dictionary_bytes if self._coder.versions else 0),
        )

    @property
    def _form(self) -> tuple[Layout, str, int]:
        return self.layout, self.codec, self.block_frames

    def _adopt_each(self, other: FrameStore, frames: Ints, n_each: Ints) -> Ints:
        """Take over different frames, rising and without 0, with so many references to each."""
        try:
            offer, before = other._offer(frames)
            suits = self._coder.suits(offer)
        except CorruptStream as error:
            raise CorruptStream(f"a block of the other store can't be taken over: {error}") from error
        as_is, ids = suits.repeat(offer.n_wanted), np.empty(len(frames), np.int64)
        rest = np.flatnonzero(~as_is)
        with uninterrupted():
            if len(rest):
                ids[rest] = self.append(other.read(frames[rest]))
            try:
                ids[as_is] = self._adopt_blocks(offer.take(suits), frames[as_is] % self.block_frames, n_each[as_is])
            except BaseException:
                self.release(ids[rest])
                raise
            self.retain(ids[rest].repeat(n_each[rest] - 1))
            at = np.searchsorted(frames, before[as_is]).clip(max=len(frames) - 1)
            with self._lock:
                self.previous[ids[as_is]] = np.where(frames[at] == before[as_is], ids[at], 0)
        return ids

    def _adopt_blocks(self, offer: Offer, places: Ints, n_each: Ints) -> Ints:
        """Store encoded blocks; the ids of the frames at the places that are wanted, with so many references each."""
        with self._lock:
            numbers: list[int] = []
            try:
                for _ in offer.n_wanted:
                    numbers.append(self._new_block())
                blocks = self._coder.take(offer, self._open)
                try:
                    self._heap.put(numbers, blocks)
                except BaseException:
                    self._coder.dropped(blocks)
                    raise
            except BaseException:
                self._unused_blocks += numbers
                raise
            ids = np.repeat(np.array(numbers, np.int64), offer.n_wanted) * self.block_frames + places
            self._tables.counts[ids] = 2 * n_each
            self._tables.live[numbers] = offer.n_wanted
        return ids

    def _offer(self, frames: Ints) -> tuple[Offer, npt.NDArray[np.int32]]:
        """The blocks of frames, which are given rising; and for each frame the one before it."""
        with self._lock:
            n_known, _, places, blocks, starts = group_by_block(frames, self.block_frames, self._tables.counts)
            if n_known < len(frames):
                self._refuse(frames[n_known])
            offer = Offer(
                self._snapshot(blocks),
                np.isin(blocks, list(self._open.blocks)),
                np.diff(starts),
                places[starts[1:] - 1],
                self._open.references[: self._open.n_references],
                self._coder.versions,
            )
            before = self.previous[frames]
        return offer._replace(blocks=self._coder.lend(offer.blocks)), before

    def _snapshot(self, blocks: Ints) -> Segments:
        """The streams of blocks, as they are now; empty for the block of zeros."""
        streams = self._heap.locate(blocks)
        if streams.lengths.all():
            return streams
        opened = np.flatnonzero((streams.lengths == 0) & (blocks != 0))
        if len(opened) == 0:
            return streams
        contents = [self._coder.open(self._open.content(number)) for number in blocks[opened].tolist()]
        return streams.replaced(opened, Segments.of(contents))

    def _next_block(self, stream: int) -> None:
        """Encode the full block of a stream, and begin another one."""
        if stream < 0:
            raise ShapeError(f"streams are numbers from 0 on, got {stream}")
        self._open.add_streams(stream + 1)
        full = self._open.block_of(stream)
        if full and self._tables.live[full]:
            content = self._open.content(full)
            block = self._coder.seal(content)
            self._heap.put(full, Segments.packed(block, np.array([len(block)])))
            self._coder.stored(block, content)
        elif full:
            self._unused_blocks.append(full)
        self._open.start(stream, self._new_block())

    def _new_block(self) -> int:
        if self._unused_blocks:
            return self._unused_blocks.pop()
        return self._add_block()

    def _add_block(self) -> int:
        # a StackStore multiplies the id of a frame by the depth, a NarrowStore that by two, and arrays keep it as int32
        if (self._n_blocks + 1) * self.block_frames * self._open.stack * 2 > _MAX_ID:
            n_ids = self._n_blocks * self.block_frames
            raise HeapFull(f"all {n_ids} ids of frames that fit into 32 bits are used: use more than one store")
        if self._n_blocks == len(self._tables.live):
            self._heap.grow(2 * self._n_blocks)
            self._tables.grow()
        self._n_blocks += 1
        return self._n_blocks - 1

    def _release(self, ids: Ints) -> None:
        dead = np.empty(len(ids), np.int64)
        n_dead = release_frames(ids, self.block_frames, self._tables.counts, self._tables.live, dead)
        if n_dead < 0:
            self._complain(ids[-1 - n_dead])
        self._drop(dead[:n_dead].tolist())

    def _refuse(self, wanted: np.int64) -> NoReturn:
        raise SlotError(f"id {wanted} is of no frame in this store")

    def _complain(self, released: np.int64) -> NoReturn:
        raise SlotError(f"id {released} is of no frame in this store, or is released more often than it was given out")

    def _drop(self, blocks: list[int]) -> None:
        """Give back blocks without references; one that is still open goes when it is full."""
        dropped = [block for block in blocks if block not in self._open.blocks]
        if dropped:
            if self._coder.versions is not None:
                self._coder.dropped(self._heap.get(dropped))
            self._heap.free(dropped)
            self._unused_blocks += dropped

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __repr__(self) -> str:
        return f"FrameStore({self.codec!r}, {self.layout}, block_frames={self.block_frames}, {self.stats()})"
