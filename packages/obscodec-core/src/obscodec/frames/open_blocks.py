"""OpenBlocks: for each sequence of frames, the block that is being filled, and the frames to compare new ones with."""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.codecs import pack, unpack
from obscodec.codecs.formats.delta_rle import MAX_REFERENCES, MAX_VARINT_NBYTES, runs_bound
from obscodec.errors import CorruptStream
from obscodec.frames.kernels import append as column
from obscodec.frames.kernels.append import OpenTables
from obscodec.layout import Rows
from obscodec.runtime import new_chunk, new_table
from obscodec.segments import Bytes, Ints, Segments


class OpenBlocks:
    """One open block for each sequence. Not safe to use from several threads: its FrameLog locks.

    With ``patches``, a frame is kept as a patch of the one before it, else as it is. Kernels change ``tables``.
    """

    def __init__(self, nbytes: int, *, block_frames: int, stack: int, n_recent: int, patches: bool) -> None:
        self.nbytes = nbytes
        self.block_frames = block_frames
        self.stack = stack
        self.n_recent = n_recent
        self.patches = patches
        rows = np.zeros((0, column.RECENT_IDS + 2 * n_recent), np.int64)
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
    def n_full(self) -> int:
        """How many blocks became full since this was set to 0."""
        return int(self.tables[2][column.N_FULL])

    @n_full.setter
    def n_full(self, n: int) -> None:
        self.tables[2][column.N_FULL] = n

    @property
    def reference_bytes(self) -> int:
        """Bytes of the reference frames, without the frame of zeros."""
        return (self.n_references - 1) * self.nbytes

    @property
    def memory_bytes(self) -> int:
        """Memory of the open blocks and the recent frames."""
        return int(self.rows[:, column.N_RECENT].sum()) * self.nbytes + self._content_nbytes + self.rows.nbytes

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

    def full(self, live: npt.NDArray[np.int32]) -> Ints:
        """The sequences whose open block is full, has frames that are counted in ``live``, and is not stored."""
        full = (self.rows[:, column.PLACE] == self.block_frames) & (self.rows[:, column.STORED] == 0)
        return np.flatnonzero(full & (live[self.blocks] > 1))

    def copies(self, which: Ints) -> Segments:
        """Copies of the open blocks of the sequences ``which``, each of version 0."""
        lengths = np.empty(len(which), np.int64)
        nbytes = self.rows[which][:, [column.RUNS_NBYTES, column.LITERALS_NBYTES]].sum()
        out = np.empty(int(nbytes) + 3 * MAX_VARINT_NBYTES * len(which), np.uint8)
        column.write_blocks(which, self.rows, out, lengths)
        return Segments.packed(out, lengths)

    def mark_stored(self, which: Ints) -> None:
        """Note that the full blocks of the sequences ``which`` are stored."""
        self.rows[which, column.STORED] = 1

    def block(self, number: int) -> Bytes:
        """A copy of an open block, of version 0.

        Raises:
            CorruptStream: the block is not open.
        """
        found = np.flatnonzero(self.blocks == number)
        if len(found) == 0 or number == 0:
            raise CorruptStream(f"block {number} is neither stored nor open")
        return self.copies(found)[0]

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
        references, tallies = new_table((MAX_REFERENCES, self.nbytes), np.uint8), np.array([n_references, 0])
        return rows, references, tallies, self.block_frames, self.stack

    @staticmethod
    def _point(row: npt.NDArray[np.int64], room: tuple[Bytes, Bytes, Bytes]) -> None:
        runs, literals, recent = room
        row[column.RUNS] = runs.ctypes.data if len(runs) else 0
        row[column.LITERALS] = literals.ctypes.data
        row[column.RECENT] = recent.ctypes.data
