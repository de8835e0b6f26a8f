"""Sealer: compresses the full blocks of a FrameLog, and stores them."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np

from obscodec.errors import HeapFull
from obscodec.frames.block_coder import Coder
from obscodec.frames.block_queue import BlockQueue
from obscodec.frames.kernels.counts import Table
from obscodec.frames.open_blocks import OpenBlocks
from obscodec.heap import SlotHeap
from obscodec.runtime import Background, Job, n_processors
from obscodec.segments import Ints, Segments

_ENCODER = Background()
TRAINER = Background(None)
_N_NEWEST = 128  # blocks to learn from again, and as many others

Sealed = tuple[Ints, Segments]  # what ``BlockCoder.seal`` returns


class Sealer:
    """Moves blocks from the queue into the heap. Not safe to use from several threads: its FrameLog locks.

    In the background, where there is a second processor and the queue is open: one queue is compressed while kernels
    fill the other one. The thread in the background only compresses; it takes no lock of a store. Its blocks stay in
    their queue, where readers find them, until a call of this object has stored them. Another thread trains codecs,
    while blocks are compressed with what they have learned before.

    Attributes:
        on_full: called whenever many blocks were full; None for nothing, then it need not count blocks.
        newest: ``i64[n]``, the numbers of the blocks that this object stored last, in this order.
        n_stored: how many blocks it has counted.
        stored_nbytes: their bytes.
    """

    def __init__(self, coder: Coder, heap: SlotHeap, open_blocks: OpenBlocks) -> None:
        self._coder, self._heap, self._open = coder, heap, open_blocks
        self.newest: Ints = np.arange(0)
        self.n_stored = self.stored_nbytes = 0
        self.on_full: Callable[[], object] | None = None
        self._job: Job[Sealed] | None = None  # which compresses the queue that leaves
        self._training: Job[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether blocks are compressed in the background, or were and are not stored."""
        return self._job is not None

    def soon(self, versions: Table) -> None:
        """Begin to compress the blocks of the queue; store the blocks that were compressed in the background.

        Without enough memory, all blocks go on waiting. ``versions``, ``i32[n_blocks]``, get those of stored blocks.
        """
        try:
            if self._job is None or not self._job.is_under_way:
                self._finish(versions)
                self._begin(versions)
        except (HeapFull, MemoryError):  # it is only a problem when the queue is full
            self._open.queue.postpone()
        self._train(len(versions))
        if self.on_full is not None:
            self.on_full()

    def now(self, versions: Table) -> None:
        """Compress and store all blocks of the queues.

        Raises:
            HeapFull: there is not enough room; the blocks go on waiting.
        """
        self._finish(versions)
        while len(self._open.leaving) or len(self._open.queue):
            self._begin(versions, waits=True)
        self._train(len(versions))

    def alone(self, number: int, versions: Table) -> None:
        """Compress and store an open block that is full, here and now.

        Raises:
            HeapFull: there is not enough room; nothing was done.
        """
        numbers = np.array([number])
        if not self._heap.holds(numbers)[0]:
            plain = Segments.of([self._open.content(number)])
            self._put(numbers, plain, self._sealed(plain), versions)
            self._train(len(versions))

    def trained(self) -> None:
        """Wait until no codec is trained in the background."""
        if self._training is not None and self._training.is_under_way:
            self._training.wait()

    def _begin(self, versions: Table, *, waits: bool = False) -> None:
        """Compress the blocks of a queue in the background; here if somebody waits, or there is no second processor."""
        if not len(self._open.leaving):
            self._open.exchange_queues()
        leaving = self._open.leaving
        seal = partial(self._sealed, leaving.blocks())
        if leaving.is_open and not waits and n_processors() > 1:
            try:
                self._job = _ENCODER.submit(seal)
                return
            except RuntimeError:  # there can be no other thread
                pass
        self._store(leaving, seal(), versions)

    def _train(self, n_numbers: int) -> None:
        """Begin to train codecs in the background, if that is due; here, if there can be no other thread."""
        codecs, job = self._coder.versions, self._training
        if codecs is None or (job is not None and job.is_under_way):
            return
        self._training = None
        if job is not None and job.is_done:
            job.result()
        if codecs.is_due:
            with suppress(MemoryError):  # another time
                train = partial(self._coder.train, Segments.of([]) if codecs.learning else self._samples(n_numbers))
                try:
                    self._training = TRAINER.submit(train)
                except RuntimeError:  # there can be no other thread
                    train()

    def _samples(self, n_numbers: int) -> Segments:
        """The newest blocks and as many others, in random order."""
        rng, stored = np.random.default_rng(0), np.flatnonzero(self._heap.holds(np.arange(n_numbers)))
        newest = np.intersect1d(self.newest, stored)
        others = rng.permutation(np.setdiff1d(stored, newest))[:_N_NEWEST]
        return self._heap.locate(rng.permutation(np.append(newest, others)))

    def _finish(self, versions: Table) -> None:
        """Wait for the background, and store what it has compressed."""
        job = self._job
        if job is None:
            return
        if job.is_here:
            try:
                sealed = job.result()
            except BaseException:
                if job.is_done:  # else it still reads the queue
                    self._job = None
                raise
            self._store(self._open.leaving, sealed, versions)
        self._job = None

    def _sealed(self, blocks: Segments) -> Sealed:
        blocks = self._coder.without_long_patches(blocks, self._open.reference_frames)
        sealed = self._coder.seal(blocks)
        self._coder.note(blocks, *sealed)
        return sealed

    def _store(self, queue: BlockQueue, sealed: Sealed, versions: Table) -> None:
        numbers, (of_blocks, blocks) = queue.numbers(), sealed
        new = np.flatnonzero((numbers != 0) & ~self._heap.holds(numbers))  # it may be here for the second time
        if len(new):
            self._put(numbers[new], queue.blocks().take(new), (of_blocks[new], blocks.take(new)), versions)
        queue.clear(len(self._open.rows))

    def _put(self, numbers: Ints, plain: Segments, sealed: Sealed, versions: Table) -> None:
        (of_blocks, blocks), newest, counted = sealed, self.newest, (self.n_stored, self.stored_nbytes)
        if self.on_full is not None or self._coder.versions is not None:
            newest = np.concatenate([newest, numbers])[-_N_NEWEST:]
            counted = self.n_stored + len(numbers), self.stored_nbytes + int(blocks.lengths.sum())
        versions[numbers] = of_blocks.astype(np.int32)  # numpy may crash if it has no memory to cast
        self._heap.put(numbers, blocks)
        self._open.count_uses(plain)
        self.newest = newest
        self.n_stored, self.stored_nbytes = counted
