"""WatchedLog: what a copy of a FrameLog elsewhere, such as on a device, asks of it."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.frames.frame_log import FrameLog
from obscodec.frames.kernels.counts import Table
from obscodec.heap import HeapChanges
from obscodec.layout import Rows
from obscodec.segments import Ints


class Copied(NamedTuple):
    """The tables of a log, as they are.

    Attributes:
        sequences: the open blocks, for :func:`stage_blocks`.
        previous: ``i32[n_blocks, block_frames]``, the frame before each frame.
        references: ``u8[n, nbytes]``, the reference frames, and rows for more.
        stacks: ``i32[n_rows, depth]``, the listed stacks.
        n_blocks: how many numbers of blocks were ever used.
    """

    sequences: Ints
    previous: Table
    references: Rows
    n_references: int
    stacks: npt.NDArray[np.int32]
    n_blocks: int


class WatchedLog:
    """The face of a log for one copy of it. Who calls it holds ``lock``, but for :attr:`n_changes`.

    Attributes:
        has_references: whether blocks may refer to reference frames.
        first: the number of the first block.
    """

    def __init__(self, log: FrameLog) -> None:
        self._log = log
        self._token = object()  # that the log knows, and not this object, which goes with its store
        self.lock, self.spec, self.block_frames, self.first = log.lock, log.coder.spec, log.block_frames, log.first
        self.frame_nbytes, self.depth, self.has_references = log.open.nbytes, log.stacks.depth, log.open.patches

    @property
    def n_changes(self) -> int:
        """How often frames, blocks or stacks may have changed."""
        return self._log.n_changes

    def check(self, ids: Ints) -> None:
        """Raise SlotError if one of the ids is of no stack."""
        self._log.check(ids)

    def begins(self) -> bool:
        """Compress all full blocks; returns whether everything counts as changed, as this copy was not told last."""
        log = self._log
        log.seal()
        if is_new := log.watcher is not self._token:
            log.watcher = self._token
            self.note_blocks()
            self.note_stacks()
        return is_new

    def forget(self) -> None:
        """Have everything count as changed when the log is asked next."""
        if self._log.watcher is self._token:
            self._log.watcher = None

    def note_blocks(self) -> None:
        """Have all full blocks count as changed."""
        self._log.heap.watch()

    def note_stacks(self) -> None:
        """Have all listed stacks count as changed."""
        self._log.stacks.note_all()

    def changed_stacks(self) -> Ints:
        """``i64[n]``, rising: the rows of listed stacks that have changed since the last call."""
        return self._log.stacks.changed()

    def changed_blocks(self) -> HeapChanges:
        """The full blocks that have changed since the last call."""
        return self._log.heap.changes()

    @property
    def tables(self) -> Copied:
        """The tables as they are; changes may replace them."""
        log, (sequences, references, n_references, *_) = self._log, self._log.open.tables
        previous = log.tables.previous.reshape(-1, self.block_frames)
        return Copied(sequences, previous, references, int(n_references[0]), log.stacks.frames, log.n)

    @property
    def dictionaries(self) -> dict[int, bytes]:
        """The dictionaries that blocks were compressed with, by version; empty if there are none."""
        versions = self._log.coder.versions if self.has_references else None
        return {} if versions is None else {n: codec.dictionary for n, codec in versions.by_version.items()}
