"""BornFrames: the way into a FrameStore for frames that are in the memory of a device, and are encoded there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from obscodec.errors import HeapFull
from obscodec.frame_encoder import FrameBatch, FrameEncoder, FramePlan, Patches
from obscodec.kernels.frame_streams import N_RECENT, RECENT_IDS
from obscodec.kernels.frames import fingerprint_recent
from obscodec.kernels.plans import plan_frames
from obscodec.layout import Rows
from obscodec.open_blocks import FrameTables, OpenBlocks
from obscodec.segments import Ints


class BornFrames:
    """Takes frames in that are in the memory of a device. They stay there: what comes to the CPU is their patches.

    The recent frames of a stream, with which new ones are compared, are where the last new ones came from: on the CPU
    or on the device. If the next ones come from elsewhere, the recent ones are read from the store, which has them all.
    Not safe to use from several threads: its FrameStore locks.

    Args:
        encoder: compares and encodes on the device.
        open_blocks: where the frames go.
        read: gives frames of the store by their ids, whoever refers to them.
    """

    def __init__(self, encoder: FrameEncoder, open_blocks: OpenBlocks, read: Callable[[Ints], Rows]) -> None:
        self.encoder = encoder
        self.open_blocks = open_blocks
        self._read = read
        self._on_cpu = np.zeros(0, bool)  # whether the recent frames of a stream are there
        self._on_device = np.zeros(0, bool)

    @contextmanager
    def batch(self, frames: FrameBatch, streams: Ints) -> Iterator[BornBatch]:
        """A batch of frames on its way in.

        Args:
            frames: at least one.
            streams: ``i64[n]``, the stream of each frame, from 0 on.
        """
        with frames:
            which = np.unique(streams)
            self._to_device(which)
            batch = BornBatch(self, frames, streams)
            self._on_device[which] = False  # until those that are taken in are there
            try:
                yield batch
            finally:
                self._on_device[which] = batch.keep()

    def to_cpu(self, streams: Ints | None = None) -> None:
        """Have the recent frames of streams on the CPU, None for those of all."""
        away = np.flatnonzero(~self._on_cpu)
        if streams is not None and len(away):
            away = np.intersect1d(away, streams)
        away = away[away < len(self.open_blocks)]
        if len(away) == 0:
            return
        rows = self.open_blocks.rows
        ids = [row[RECENT_IDS : RECENT_IDS + row[N_RECENT]] for row in rows[away]]
        frames, begin = self._read(np.concatenate(ids)), 0
        for stream, of_stream in zip(away.tolist(), ids, strict=True):
            end = begin + len(of_stream)
            self.open_blocks.recent(stream)[: len(of_stream)] = frames[begin:end]
            begin = end
        fingerprint_recent(rows, away, self.open_blocks.nbytes)
        self._on_cpu[away], self._on_device[away] = True, False

    def _to_device(self, which: Ints) -> None:
        n_new = int(which[-1]) + 1 - len(self._on_cpu)
        if n_new > 0:
            self._on_cpu = np.concatenate([self._on_cpu, np.ones(n_new, bool)])
            self._on_device = np.concatenate([self._on_device, np.zeros(n_new, bool)])
        self.encoder.reserve(len(self._on_cpu))
        rows = self.open_blocks.rows
        used = which[which < len(rows)]
        sent = used[~self._on_device[used] & (rows[used, N_RECENT] > 0)]
        if len(sent):
            self.to_cpu(sent)
            marks = self.encoder.send(sent, np.concatenate([self.open_blocks.recent(k) for k in sent.tolist()]))
            rows[sent, -self.open_blocks.n_recent :] = marks.reshape(len(sent), -1)
        self._on_cpu[which], self._on_device[which] = False, True


class BornBatch:
    """A batch of frames in the memory of a device, on its way into a store; made by ``BornFrames.batch``."""

    def __init__(self, born: BornFrames, frames: FrameBatch, streams: Ints) -> None:
        self._born, self._frames, self._streams = born, frames, streams
        self._marks = frames.marks()
        rows = born.open_blocks.rows
        self._before = np.zeros((max(len(rows), int(streams.max()) + 1), rows.shape[1]), np.int64)
        self._before[: len(rows)] = rows
        self._kinds, self._sources, _ = self._plan(len(frames))
        self._patches: Patches | None = None
        self._encoded_to = self._done = 0
        self._rows: Rows | None = None  # on the CPU, if marks took frames for equal that are not

    def replace(
        self, frames: FrameBatch, old: Ints, first: int, streams: Ints, tables: FrameTables, ids: Ints, dead: Ints
    ) -> tuple[int, int, int]:
        """``OpenBlocks.replace`` by the frames of this batch, which are encoded up to the end of ``streams`` at once.

        Raises:
            HeapFull: the device has not enough free memory; nothing was taken in.
        """
        open_blocks = self._born.open_blocks
        if self._rows is None and self._encoded_to < len(streams):
            some = slice(first, len(streams))
            plan = FramePlan(first, self._kinds[some], self._sources[some])
            self._patches = frames.encode(plan, open_blocks.references[: open_blocks.n_references])
            self._encoded_to = len(streams)
            if self._patches is None:
                self._rows = frames.rows()
                self._born.to_cpu(self._streams)
        if self._rows is not None:
            return open_blocks.replace(self._rows, old, first, streams, tables, ids, dead)
        assert self._patches is not None
        taken = open_blocks.replace_encoded(self._marks, self._patches, old, first, streams, tables, ids, dead)
        self._done = taken[0]
        return taken

    def keep(self) -> bool:
        """Have the recent frames on the device that were taken in of this batch; False if they are not there."""
        if self._rows is not None:
            return False
        *_, recent = self._plan(self._done)
        slots = np.flatnonzero(recent >= 0)
        try:
            self._frames.keep(slots, recent[slots])
        except HeapFull:  # they are in the store already, from where the next batch gets them
            return False
        return True

    def _plan(self, n: int) -> tuple[npt.NDArray[np.uint8], Ints, Ints]:
        kinds, sources = np.empty(n, np.uint8), np.empty(n, np.int64)
        recent = np.empty((len(self._before), self._born.open_blocks.n_recent), np.int64)
        streams, block_frames = self._before.copy(), self._born.open_blocks.block_frames
        plan_frames(self._marks[:n], self._streams, streams, block_frames, kinds, sources, recent)
        return kinds, sources, recent.reshape(-1)
