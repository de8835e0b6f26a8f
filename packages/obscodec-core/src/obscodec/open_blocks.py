"""OpenBlocks: for each stream of frames, the block that is being filled, and what new frames are compared with."""

from __future__ import annotations

import sys
from collections.abc import KeysView
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from obscodec.chunk import doubled, new_chunk, new_table
from obscodec.errors import CorruptStream
from obscodec.kernels import frame_streams as column
from obscodec.kernels.frames import replace_frames
from obscodec.kernels.patch import runs_bound
from obscodec.layout import Rows
from obscodec.packing import pack, unpack
from obscodec.reference_frames import MAX_REFERENCES
from obscodec.segments import Bytes, Ints


class FrameTables:
    """What is known of each frame and block. What was never used takes no memory.

    Attributes:
        counts: ``i32[n_blocks * block_frames]``, references to each frame, by id; see ``kernels.counts``.
        previous: likewise, the frame before it in the observation that it came with first.
        live: ``i32[n_blocks]``, frames with references.
    """

    def __init__(self, n_blocks: int, block_frames: int) -> None:
        self.counts = new_table((n_blocks * block_frames,), np.int32)
        self.previous = new_table((n_blocks * block_frames,), np.int32)
        self.live = new_table((n_blocks,), np.int32)

    def grow(self) -> None:
        """Make room for twice as many blocks."""
        for name, table in vars(self).items():
            setattr(self, name, doubled(table))

    def __getstate__(self) -> dict[str, object]:
        """Without the zeros around what is used: of a store with few frames they would be most of a pickle."""
        state: dict[str, object] = {}
        for name, table in vars(self).items():
            used = np.trim_zeros(table, "f")
            state[name] = len(table), len(table) - len(used), np.trim_zeros(used, "b")
        return state

    def __setstate__(self, state: dict[str, tuple[int, int, npt.NDArray[np.int32]]]) -> None:
        for name, (n, begin, used) in state.items():
            table = new_table((n,), np.int32)
            table[begin : begin + len(used)] = used
            setattr(self, name, table)
        n, _, used = state["previous"]
        least, most = int(used.min(initial=0)), int(used.max(initial=0))
        if least < 0 or most >= n:  # kernels go from frame to frame by it
            raise CorruptStream(f"frames follow those of ids 0..{n - 1}, got {least}..{most}")


class BlockContent(NamedTuple):
    """The frames of a block that is not encoded yet.

    Attributes:
        reference: what the first frame is a patch of.
        runs: ``u8[:]``, the runs of all patches; empty if the frames are kept as they are.
        literals: ``u8[:]``, the literals of all patches, or the frames.
    """

    reference: int
    runs: Bytes
    literals: Bytes


class OpenBlocks:
    """One open block for each stream. Not safe to use from several threads: its FrameStore locks.

    Args:
        nbytes: of a frame.
        block_frames: how many frames a block takes.
        stack: how many frames come from one observation.
        n_recent: with how many of the last frames of its stream a frame is compared.
        patches: keep frames as patches of each other; else as they are.

    Attributes:
        references: ``u8[max_references, nbytes]``, the reference frames, the first one zeros.
        reference_count: ``i64[1]``, how many there are; kernels change it.
        rows: ``i64[n_streams, n_columns]``, see ``kernels.frame_streams``; kernels change it.
        n_recent: with how many of the last frames of its stream a frame is compared.
    """

    def __init__(self, nbytes: int, *, block_frames: int, stack: int, n_recent: int, patches: bool) -> None:
        self.nbytes = nbytes
        self.block_frames = block_frames
        self.stack = stack
        self.n_recent = n_recent
        self.patches = patches
        self.references = new_table((MAX_REFERENCES, nbytes), np.uint8)
        self.reference_count = np.ones(1, np.int64)
        self.rows = np.zeros((0, column.RECENT_IDS + 2 * n_recent), np.int64)
        self._rooms: list[tuple[Bytes, Bytes, Bytes]] = []
        self._row_of: dict[int, int] = {}
        self._n_begun = np.zeros(0, np.int64)  # blocks, of each stream: a number may come again

    @property
    def n_references(self) -> int:
        """How many reference frames there are, the one of zeros included."""
        return int(self.reference_count[0])

    @property
    def memory_bytes(self) -> int:
        """Memory of the open blocks and the recent frames."""
        recent = int(self.rows[:, column.N_RECENT].sum()) * self.nbytes
        return recent + int(self.rows[:, [column.RUNS_NBYTES, column.LITERALS_NBYTES]].sum()) + self.rows.nbytes

    @property
    def mean_frame_bytes(self) -> float:
        """Bytes for each frame in the open blocks."""
        n_frames = int(self.rows[:, column.PLACE].sum())
        nbytes = int(self.rows[:, [column.RUNS_NBYTES, column.LITERALS_NBYTES]].sum())
        return nbytes / n_frames if n_frames else float(self.nbytes)

    @property
    def blocks(self) -> KeysView[int]:
        """The numbers of the open blocks."""
        return self._row_of.keys()

    def add_streams(self, n: int) -> None:
        """Make sure that there are ``n`` streams."""
        added = np.zeros((max(0, n - len(self.rows)), self.rows.shape[1]), np.int64)
        for row in added:
            runs = new_chunk(self.block_frames * runs_bound(self.nbytes)) if self.patches else np.empty(0, np.uint8)
            room = runs, new_chunk(self.block_frames * self.nbytes), new_chunk(self.n_recent * self.nbytes)
            self._rooms.append(room)
            self._point(row, room)
        self.rows = np.concatenate([self.rows, added])
        self._n_begun = np.append(self._n_begun, np.zeros(len(added), np.int64))

    def replace(
        self, rows: Rows, old: Ints, first: int, streams: Ints, tables: FrameTables, ids: Ints, dead: Ints
    ) -> tuple[int, int, int]:
        """Take frames in, from the row ``first`` on, then release ``old``; see ``kernels.frames.replace_frames``."""
        return replace_frames(
            old,
            rows,
            first,
            streams,
            self.rows,
            self.block_frames,
            self.stack,
            self.references,
            self.reference_count,
            tables.counts,
            tables.live,
            tables.previous,
            ids,
            dead,
        )

    def block_of(self, stream: int) -> int:
        """The number of the open block of a stream, 0 for none."""
        return int(self.rows[stream, column.BLOCK])

    def filled(self) -> Ints:
        """``i64[n_streams, 3]``, of each stream: its open block, 0 for none; frames in it; how many blocks it began."""
        return np.column_stack([self.rows[:, [column.BLOCK, column.PLACE]], self._n_begun])

    def content(self, block: int) -> BlockContent:
        """A view of the frames of an open block; it changes when frames are added.

        Raises:
            CorruptStream: it is not open.
        """
        if block not in self._row_of:
            raise CorruptStream(f"block {block} is neither stored nor open")
        row = self.rows[self._row_of[block]]
        runs, literals, _ = self._rooms[self._row_of[block]]
        return BlockContent(
            int(row[column.REFERENCE]), runs[: row[column.RUNS_NBYTES]], literals[: row[column.LITERALS_NBYTES]]
        )

    def start(self, stream: int, block: int) -> None:
        """Begin the empty block ``block`` in place of the one that is open in a stream."""
        row = self.rows[stream]
        self._row_of.pop(int(row[column.BLOCK]), None)
        self._row_of[block] = stream
        self._n_begun[stream] += 1
        row[[column.PLACE, column.REFERENCE, column.RUNS_NBYTES, column.LITERALS_NBYTES]] = 0
        row[column.BLOCK] = block

    def __getstate__(self) -> dict[str, object]:
        rooms: list[tuple[Bytes, ...]] = []
        frames = [self.references[: self.n_references]]
        for row, (runs, literals, recent) in zip(self.rows, self._rooms, strict=True):
            rooms.append((runs[: row[column.RUNS_NBYTES]], literals[: row[column.LITERALS_NBYTES]]))
            frames.append(recent[: row[column.N_RECENT] * self.nbytes].reshape(-1, self.nbytes))
        return {**vars(self), "references": pack(frames), "_rooms": rooms}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        table, rooms = self.rows, self._rooms
        references, *recent = unpack(cast("bytes", state["references"]), max_bytes=sys.maxsize)
        self.references = new_table((MAX_REFERENCES, self.nbytes), np.uint8)
        self.references[: len(references)] = references
        self.rows, self._rooms, self._n_begun = table[:0], [], self._n_begun[:0]
        self.add_streams(len(table))
        self.rows = table.copy()
        for row, room, filled, frames in zip(self.rows, self._rooms, rooms, recent, strict=True):
            for memory, content in zip(room, (*filled, frames.reshape(-1)), strict=True):
                memory[: len(content)] = content
            self._point(row, room)

    @staticmethod
    def _point(row: npt.NDArray[np.int64], room: tuple[Bytes, Bytes, Bytes]) -> None:
        runs, literals, recent = room
        row[column.RUNS] = runs.ctypes.data if len(runs) else 0
        row[column.LITERALS] = literals.ctypes.data
        row[column.RECENT] = recent.ctypes.data
