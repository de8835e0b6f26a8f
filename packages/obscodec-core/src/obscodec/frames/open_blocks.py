"""OpenBlocks: the block that each sequence fills, the full ones in a queue, and the frames to compare new ones with."""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.codecs import pack, unpack
from obscodec.codecs.formats.delta_rle import MAX_REFERENCES, MAX_VARINT_NBYTES, runs_bound
from obscodec.errors import CorruptStream
from obscodec.frames.block_queue import BlockQueue
from obscodec.frames.kernels import sequences as column
from obscodec.frames.kernels.append import OpenTables
from obscodec.frames.kernels.queue import Queue, most_nbytes, write_contents
from obscodec.layout import Rows
from obscodec.runtime import new_chunk, new_table
from obscodec.segments import Bytes, Ints, Segments


class OpenBlocks:
    """One open block for each sequence. Not safe to use from several threads: its FrameLog locks.

    With ``patches``, a frame is kept as a patch of the one before it, else as it is. Kernels change ``tables``, and put
    full blocks into the queue; with ``queues`` False, it has no room for any.

    Attributes:
        queue: the full blocks.
        leaving: full blocks that are compressed; those that come go to the other queue.
    """

    def __init__(
        self, nbytes: int, *, block_frames: int, stack: int, n_recent: int, patches: bool, queues: bool
    ) -> None:
        self.nbytes = nbytes
        self.block_frames = block_frames
        self.stack = stack
        self.n_recent = n_recent
        self.patches = patches
        rows = np.zeros((0, column.RECENT_IDS + 2 * n_recent), np.int64)
        bound = 3 * MAX_VARINT_NBYTES + block_frames * (nbytes + patches * runs_bound(nbytes))
        self.queue, self.leaving = BlockQueue(bound, queues), BlockQueue(bound, queues)
        self.tables = self._new_tables(rows, 1)
        self._rooms: list[tuple[Bytes, Bytes, Bytes]] = []

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """``i64[n_sequences, n_columns]``, see ``kernels.append``."""
        return self.tables[0]

    @property
    def references(self) -> Rows:
        """``u8[max_references, nbytes]``, the reference frames; the first one is zeros."""
        return self.tables[1]

    @property
    def n_references(self) -> int:
        """How many reference frames there are, with the frame of zeros."""
        return int(self.tables[2][0])

    @property
    def reference_bytes(self) -> int:
        """Bytes of the reference frames, without the frame of zeros."""
        return (self.n_references - 1) * self.nbytes

    @property
    def memory_bytes(self) -> int:
        """Memory of the open blocks, the queue and the recent frames."""
        recent_nbytes = int(self.rows[:, column.N_RECENT].sum()) * self.nbytes
        return recent_nbytes + self._content_nbytes + self.rows.nbytes + self.queue.nbytes + self.leaving.nbytes

    @property
    def mean_frame_bytes(self) -> float:
        """Bytes for each frame in the open blocks."""
        n_frames = int(self.rows[:, column.PLACE].sum())
        return self._content_nbytes / n_frames if n_frames else float(self.nbytes)

    @property
    def _content_nbytes(self) -> int:
        return int(self.rows[:, [column.RUNS_NBYTES, column.LITERALS_NBYTES]].sum())

    @property
    def blocks(self) -> Ints:
        """``i64[n_sequences]``, the number of the open block of each sequence, 0 for none."""
        return self.rows[:, column.BLOCK]

    def add_sequences(self, n: int) -> None:
        """Make sure that there are ``n`` sequences."""
        n_before = len(self.rows)
        if n <= n_before:
            return
        added, rooms = np.zeros((n - n_before, self.rows.shape[1]), np.int64), self._rooms[:n_before]
        for row in added:
            runs = new_chunk(self.block_frames * runs_bound(self.nbytes)) if self.patches else np.empty(0, np.uint8)
            room = runs, new_chunk(self.block_frames * self.nbytes), new_chunk(self.n_recent * self.nbytes)
            rooms.append(room)
            self._point(row, room)
        tables = (np.concatenate([self.rows, added]), *self.tables[1:])
        self._rooms, self.tables = rooms, tables

    def exchange_queues(self) -> None:
        """Fill the queue that was leaving, and is empty."""
        rows, references, tally, _, *rest = self.tables
        tables = (rows, references, tally, self.leaving.table, *rest)
        vars(self).update(queue=self.leaving, leaving=self.queue, tables=tables)

    @property
    def queues(self) -> tuple[Queue, Queue]:
        """Both queues, as kernels take them."""
        return self.queue.table, self.leaving.table

    def is_full(self, sequence: int) -> bool:
        """Whether the block of a sequence is full, and neither in the queue nor stored."""
        if sequence >= len(self.rows):
            return False
        return bool(self.rows[sequence, column.PLACE] == self.block_frames and not self.rows[sequence, column.QUEUED])

    def mark_stored(self, sequence: int) -> None:
        """Note that the full block of a sequence is stored."""
        self.rows[sequence, column.QUEUED] = 1

    def contents(self, numbers: Ints) -> Segments:
        """Copies of blocks that are open or in a queue, of version 0.

        Raises:
            CorruptStream: a block is neither.
        """
        nbytes = most_nbytes(numbers, self.rows, *self.queues)
        if nbytes < 0:
            raise CorruptStream("a block is neither stored nor open")
        out, lengths = np.empty(nbytes, np.uint8), np.empty(len(numbers), np.int64)
        write_contents(numbers, self.rows, *self.queues, out, lengths)
        return Segments.packed(out, lengths)

    def __getstate__(self) -> dict[str, object]:
        """Copies of what is used."""
        rooms: list[tuple[Bytes, ...]] = []
        frames = [self.references[: self.n_references]]
        for row, (runs, literals, recent) in zip(self.rows, self._rooms, strict=True):
            rooms.append((runs[: row[column.RUNS_NBYTES]].copy(), literals[: row[column.LITERALS_NBYTES]].copy()))
            frames.append(recent[: row[column.N_RECENT] * self.nbytes].reshape(-1, self.nbytes))
        return {**vars(self), "tables": self.rows.copy(), "_rooms": rooms, "frames": pack(frames)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        references, *recent = unpack(state.pop("frames"), max_bytes=sys.maxsize)
        vars(self).update(state)
        rows, rooms = state["tables"], self._rooms
        self.tables = self._new_tables(rows[:0], len(references))
        self.references[: len(references)] = references
        self._rooms = []
        self.add_sequences(len(rows))
        self.rows[:] = rows
        for row, room, filled, frames in zip(self.rows, self._rooms, rooms, recent, strict=True):
            for memory, content in zip(room, (*filled, frames.reshape(-1)), strict=True):
                memory[: len(content)] = content
            self._point(row, room)

    def _new_tables(self, rows: npt.NDArray[np.int64], n_references: int) -> OpenTables:
        references, tally = new_table((MAX_REFERENCES, self.nbytes), np.uint8), np.array([n_references])
        return rows, references, tally, self.queue.table, self.block_frames, self.stack

    @staticmethod
    def _point(row: npt.NDArray[np.int64], room: tuple[Bytes, Bytes, Bytes]) -> None:
        runs, literals, recent = room
        row[column.RUNS] = runs.ctypes.data if len(runs) else 0
        row[column.LITERALS] = literals.ctypes.data
        row[column.RECENT] = recent.ctypes.data
