"""OpenBlocks: the block that each sequence fills, the full ones in a queue, and the frames to compare new ones with."""

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream
from obscodec.frames.block_queue import BlockQueue
from obscodec.frames.kernels import sequences as field
from obscodec.frames.kernels.append import OpenTables
from obscodec.frames.kernels.queue import Queue, write_content
from obscodec.layout import Rows
from obscodec.runtime import in_pages, new_chunk, new_table
from obscodec.segments import Bytes, Ints, Segments, segments_of
from obscodec.state import State, array_of, check_range
from obscodec.streams import MAX_REFERENCES, runs_bound
from obscodec.varint import MAX_VARINT_NBYTES

_MOST_RECENT = 1 << 16


class OpenBlocks:
    """One open block for each sequence. Not safe to use from several threads: its FrameLog locks.

    With ``patches``, a frame is kept as a patch of the one before it, else as it is. Kernels change ``tables``, and put
    full blocks into the queue; with ``queues`` False, it has no room for any.

    Attributes:
        queue: the full blocks.
        leaving: full blocks that are compressed; those that come go to the other queue.
        uses: ``i64[max_references]``, how many blocks that are stored begin with a patch of each reference frame.
    """

    def __init__(
        self, nbytes: int, *, block_frames: int, stack: int, n_recent: int, patches: bool, queues: bool
    ) -> None:
        self.nbytes = nbytes
        self.block_frames = block_frames
        self.stack = stack
        self.n_recent = n_recent
        self.patches = patches
        rows = np.zeros((0, field.RECENT_IDS + 2 * n_recent), np.int64)
        bound = 3 * MAX_VARINT_NBYTES + block_frames * (nbytes + patches * runs_bound(nbytes))
        self.queue, self.leaving = BlockQueue(bound, queues), BlockQueue(bound, queues)
        self.tables = self._new_tables(rows, 1)
        self.uses = np.zeros(MAX_REFERENCES, np.int64)
        self._memories: list[tuple[Bytes, Bytes, Bytes]] = []

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """``i64[n_sequences, n_fields]``, see ``kernels.append``."""
        return self.tables[0]

    @property
    def reference_frames(self) -> Rows:
        """``u8[max_references, nbytes]``, the reference frames; the first one is zeros."""
        return self.tables[1]

    @property
    def n_reference_frames(self) -> int:
        """How many reference frames there are, with the frame of zeros."""
        return int(self.tables[2][0])

    @property
    def reference_bytes(self) -> int:
        """Bytes of the reference frames, without the frame of zeros."""
        return (self.n_reference_frames - 1) * self.nbytes

    def lone_references(self, *, of_stored: bool) -> Ints:
        """Which reference frames one block alone begins with, of those that are stored or of the others.

        A block costs its reference frame nothing. As many blocks of those to come are as far from all reference frames
        as there are such blocks (Good and Turing's estimate), and when there is no place for more, they cost something.
        """
        opened = self.rows[(self.rows[:, field.QUEUED] == 0) & (self.rows[:, field.PLACE] > 0), field.REFERENCE]
        uses = self.uses if of_stored else np.bincount(opened, minlength=MAX_REFERENCES)
        lone: Ints = np.flatnonzero(uses[1 : self.n_reference_frames] == 1) + 1
        return lone

    def count_uses(self, blocks: Segments) -> None:
        """Count which reference frames blocks of version 0 begin with; they are stored now."""
        if self.patches:
            first = np.array([block[1] for block in blocks])  # behind the version
            self.uses += np.bincount(first[first < MAX_REFERENCES], minlength=MAX_REFERENCES)

    @property
    def memory_bytes(self) -> int:
        """Memory of the open blocks and the recent frames, in whole pages, and of the queues."""
        written = self.rows[:, [field.RUNS_NBYTES, field.LITERALS_NBYTES, field.N_RECENT]]
        written[:, 2] *= self.nbytes
        tried = [int(self.patches), 1, 1]  # the first patch of a block is written before a better one may replace it
        return (
            int(in_pages(np.maximum(written, tried)).sum()) + self.rows.nbytes + self.queue.nbytes + self.leaving.nbytes
        )

    @property
    def n_frames(self) -> int:
        """How many frames are in blocks that are not full."""
        return int(self.rows[self.rows[:, field.QUEUED] == 0, field.PLACE].sum())

    @property
    def mean_frame_bytes(self) -> float:
        """Bytes for each frame in the open blocks."""
        n_frames = int(self.rows[:, field.PLACE].sum())
        nbytes = int(self.rows[:, [field.RUNS_NBYTES, field.LITERALS_NBYTES]].sum())
        return nbytes / n_frames if n_frames else float(self.nbytes)

    @property
    def blocks(self) -> Ints:
        """``i64[n_sequences]``, the number of the open block of each sequence, 0 for none."""
        return self.rows[:, field.BLOCK]

    def add_sequences(self, n: int) -> None:
        """Make sure that there are ``n`` sequences."""
        n_before = len(self.rows)
        if n <= n_before:
            return
        added, memories = np.zeros((n - n_before, self.rows.shape[1]), np.int64), self._memories[:n_before]
        for row in added:
            runs = new_chunk(self.block_frames * runs_bound(self.nbytes)) if self.patches else np.empty(0, np.uint8)
            parts = runs, new_chunk(self.block_frames * self.nbytes), new_chunk(self.n_recent * self.nbytes)
            memories.append(parts)
            row[field.RUNS] = runs.ctypes.data if len(runs) else 0
            row[field.LITERALS], row[field.RECENT] = (memory.ctypes.data for memory in parts[1:])
        tables = (np.concatenate([self.rows, added]), *self.tables[1:])
        self._memories, self.tables = memories, tables

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
        return bool(self.rows[sequence, field.PLACE] == self.block_frames and not self.rows[sequence, field.QUEUED])

    def content(self, number: int) -> Bytes:
        """A copy of a block that is open or in a queue, of version 0."""
        out = np.empty(write_content(number, self.rows, self.queues, 0, 0), np.uint8)
        return out[: write_content(number, self.rows, self.queues, out.ctypes.data, len(out))]

    def state(self) -> State:
        """The open blocks, recent frames and reference frames, not the queues: see ``obscodec.state``."""
        runs, literals, frames = [], [], []
        for row, (of_runs, of_literals, recent) in zip(self.rows, self._memories, strict=True):
            runs.append(of_runs[: row[field.RUNS_NBYTES]])
            literals.append(of_literals[: row[field.LITERALS_NBYTES]])
            frames.append(recent[: row[field.N_RECENT] * self.nbytes].reshape(-1, self.nbytes))
        sequences = self.rows.copy()
        sequences[:, [field.RUNS, field.LITERALS, field.RECENT]] = 0  # addresses
        return {
            "sequences": sequences,
            "runs": Segments.of(runs).state(),
            "literals": Segments.of(literals).state(),
            "frames": np.concatenate([*frames, self.reference_frames[: self.n_reference_frames]]),
            "uses": self.uses[: self.n_reference_frames].copy(),
        }

    def restore(self, state: State) -> None:
        """Fill these open blocks, which are empty.

        Raises:
            CorruptStream: none have such a state.
        """
        rows, n_before = array_of(state, "sequences", np.int64, (None, None)), field.RECENT_IDS
        runs, literals = segments_of(state, "runs"), segments_of(state, "literals")
        n_recent = (rows.shape[1] - n_before) // 2
        if rows.shape[1] != n_before + 2 * n_recent or not 1 <= n_recent <= _MOST_RECENT:
            raise CorruptStream(f"a sequence has {n_before} numbers and two for each recent frame, got {rows.shape[1]}")
        if not len(rows) == len(runs) == len(literals):
            raise CorruptStream("open blocks are not as many as sequences")
        self._check_rows(rows, n_recent, runs.lengths, literals.lengths)
        frames = array_of(state, "frames", np.uint8, (None, self.nbytes))
        *recent, references = np.split(frames, np.cumsum(rows[:, field.N_RECENT]))
        if not 1 <= len(references) <= MAX_REFERENCES or references[0].any():
            raise CorruptStream(f"there are 1..{MAX_REFERENCES} reference frames, the first one zeros")
        check_range("reference", rows[:, field.REFERENCE], 0, len(references) - 1)
        self.n_recent = n_recent
        self.tables = self._new_tables(np.zeros((0, rows.shape[1]), np.int64), len(references))
        self.reference_frames[: len(references)] = references
        self.uses[: len(references)] = array_of(state, "uses", np.int64, (len(references),))
        self.add_sequences(len(rows))
        addresses = [field.RUNS, field.LITERALS, field.RECENT]
        rows[:, addresses] = self.rows[:, addresses]
        self.rows[:] = rows
        for parts, *contents in zip(self._memories, runs, literals, recent, strict=True):
            for memory, content in zip(parts, contents, strict=True):
                memory[: content.size] = content.reshape(-1)

    def _check_rows(self, rows: npt.NDArray[np.int64], n_recent: int, runs: Ints, literals: Ints) -> None:
        """Refuse a table of sequences by which a kernel would leave its memory."""
        places = rows[:, field.PLACE]
        check_range("place", places, 0, self.block_frames)
        for name, numbers in (("newest", field.NEWEST), ("matched", field.MATCHED), ("begin", field.BEGIN)):
            check_range(name, rows[:, numbers], 0, n_recent - 1)
        check_range("n_recent", rows[:, field.N_RECENT], 0, n_recent)
        check_range("queued", rows[:, field.QUEUED], 0, 1)
        most_runs, most_literals = places * runs_bound(self.nbytes) * self.patches, places * self.nbytes
        fits = (runs == rows[:, field.RUNS_NBYTES]) & (literals == rows[:, field.LITERALS_NBYTES])
        fits &= (runs <= most_runs) & (literals <= most_literals)
        fits &= (rows[:, field.BLOCK] != 0) | (places == 0)
        if not fits.all():
            raise CorruptStream("an open block has more bytes than its frames can have")

    def _new_tables(self, rows: npt.NDArray[np.int64], n_references: int) -> OpenTables:
        references, tally = new_table((MAX_REFERENCES, self.nbytes), np.uint8), np.array([n_references])
        return rows, references, tally, self.queue.table, self.block_frames, self.stack
