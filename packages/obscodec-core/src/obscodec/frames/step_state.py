"""StepState: what the kernel that stores steps works with, by address."""

import numpy as np
import numpy.typing as npt

from obscodec.columns import Column
from obscodec.frames.kernels import steps as word
from obscodec.frames.kernels.append import OpenTables
from obscodec.frames.kernels.counts import Tables
from obscodec.frames.kernels.stacks import StackTables
from obscodec.runtime import new_table
from obscodec.segments import Bytes, Ints

_MANY_IDS = 512  # replaced; giving them back together takes little longer than giving back a few
_MIN_REPLACED = 64

Ids = npt.NDArray[np.signedinteger]
Numbers = npt.NDArray[np.generic]


class StepState:
    """The words that ``exchange_step`` gets for stacks of ``n`` sequences, and the arrays whose addresses they are.

    Attributes:
        words: see ``kernels.steps``.
        held: ``i64[2 * n * depth]``, frames with a reference each; zeros between calls.
        picked: ``i64[2, n]``, the steps and the sequences, counted from :attr:`first`, that a call for some is for.
        replaced_rows: ``i64[n_rows, n]``, the replaced ids that wait to be given back; zeros elsewhere.
        tables: those that are bound, None for none.
        pair: the arrays of ids that are bound.
        parts_channels: False if no stacks are parted into channels.
        first: the first sequence; the others follow.
    """

    def __init__(self, n: int, nbytes: int, depth: int) -> None:
        self.words = np.zeros(word.N_WORDS, np.int64)
        self._stack = np.empty(nbytes, np.uint8)
        self._scratch = np.zeros(2 * n * (depth + 2), np.int64)
        self.held = self._scratch[: 2 * n * depth]
        self.picked = np.zeros((2, n), np.int64)
        self._most = most = max(_MIN_REPLACED, _MANY_IDS // n)
        self.replaced_rows, self._where = new_table((most, n), np.int64), new_table((most, 3), np.int64)
        self.pair: tuple[Ids, Ids] | None = None
        self.parts_channels = False
        self.first = 0
        self._known: dict[int, tuple[Ids, int]] = {}  # arrays of ids by their ``id()``, and their addresses
        self.n_columns = 0
        self._columns: list[tuple[Column, Numbers, Bytes]] = []
        self.tables: tuple[OpenTables, Tables, StackTables] | None = None
        words = self.words
        words[word.N], words[word.NBYTES], words[word.MOST_REPLACED] = n, nbytes, most
        words[word.STACK], words[word.SCRATCH] = self._stack.ctypes.data, self._scratch.ctypes.data
        words[word.REPLACED], words[word.WHERE] = self.replaced_rows.ctypes.data, self._where.ctypes.data
        words[word.PICKED] = self.picked.ctypes.data
        self.undo(0)  # nothing yet: it loads the kernel, for which a failed allocation may leave no memory

    def bind_tables(self, open_blocks: OpenTables, tables: Tables, stacks: StackTables, is_one: bool) -> None:
        """Work with these tables from now on; :attr:`tables` has them then. ``is_one``: all sequences are the first."""
        words = self.words
        words[word.FIRST], words[word.STRIDE] = (0, 0) if is_one else (self.first, 1)
        sequences, references, n_references, queue, block_frames, _ = open_blocks
        for at, table in (
            (word.SEQUENCES, sequences),
            (word.REFERENCES, references),
            (word.QUEUE, queue),
            (word.LISTED_ROWS, stacks[0]),
        ):
            words[at : at + 3] = table.ctypes.data, *table.shape
        words[word.N_REFERENCES], words[word.BLOCK_FRAMES] = n_references.ctypes.data, block_frames
        frames, blocks, dead, tallies = tables
        words[word.FRAMES : word.FRAMES + 2] = frames.ctypes.data, frames.shape[1]
        words[word.BLOCKS : word.BLOCKS + 2] = blocks.ctypes.data, blocks.shape[1]
        words[word.DEAD], words[word.TALLIES] = dead.ctypes.data, tallies.ctypes.data
        _, free_rows, changed, stack_tallies = stacks
        words[word.FREE_ROWS], words[word.CHANGED_ROWS] = free_rows.ctypes.data, changed.ctypes.data
        words[word.STACK_TALLIES] = stack_tallies.ctypes.data
        self.tables = open_blocks, tables, stacks

    def bind_ids(self, pair: tuple[Ids, Ids]) -> None:
        """Have the first and the second array of ids, ``[n_steps, n]``, contiguous, be these."""
        self.pair = None
        for which, ids in enumerate(pair):
            _, at = self._known.get(id(ids)) or self._known.setdefault(id(ids), (ids, ids.ctypes.data))
            self.words[word.IDS + which], self.words[word.ID_NBYTES + which] = at, ids.itemsize
        self.pair = pair

    def set_channels(self, which: int, n_channels: int) -> None:
        """Have stacks of the first or the second array be parted into so many channels; 0 for none."""
        self.parts_channels = True  # first: an interrupt may leave nothing else
        self.words[word.CHANNELS + which] = n_channels
        self.parts_channels = bool(self.words[word.CHANNELS : word.CHANNELS + 2].any())

    def bind_columns(self, columns: list[tuple[Column, Numbers]]) -> None:
        """Have new rows be exchanged with those of columns, if a call asks for it, in the same step as ids.

        There are at most ``MAX_COLUMNS``, contiguous, each with its new row.
        """
        self.n_columns = 0
        self._columns = [(array, row, np.zeros(row.nbytes, np.uint8)) for array, row in columns]
        for c, (array, row, items) in enumerate(self._columns):
            at = word.COLUMNS + 3 * c
            self.words[at : at + 3] = array.words.ctypes.data, row.ctypes.data, items.ctypes.data
        self.n_columns = len(columns)

    def learn(self) -> None:
        """Have the columns learn the numbers of their new rows."""
        for array, row, _ in self._columns:
            array.learn(row)

    @property
    def nbytes(self) -> int:
        """Bytes of its memory."""
        arrays = self.words, self._stack, self._scratch, self.picked, self.replaced_rows, self._where
        return sum(array.nbytes for array in arrays)

    @property
    def has_replaced(self) -> bool:
        """Whether there are replaced ids."""
        return bool(self.words[word.N_REPLACED])

    def begin(self, n_arrays: int) -> bool:
        """Begin a step of so many arrays, to be undone by :meth:`undo`; False if there is no room for replaced ids."""
        self.words[word.N_BEGUN] = self.words[word.N_REPLACED]
        return bool(self.words[word.N_REPLACED] + n_arrays <= self._most)

    def undo(self, step: int) -> None:
        """Put the ids back that rows of this number had at :meth:`begin`."""
        word.undo_step(step, self.words)

    def drop(self, ids: Ids) -> None:
        """Undo nothing any more if an array of ids that is gone has rows that :meth:`undo` would change."""
        if id(ids) in self._known:
            self.words[word.N_BEGUN] = self._most

    def replaced(self) -> Ints:
        """All replaced ids; whoever gives them back, sets them to 0, and calls :meth:`forget_replaced`."""
        self.words[word.N_BEGUN] = self._most  # nothing can be undone any more
        return self.replaced_rows[: self.words[word.N_REPLACED]].reshape(-1)

    def forget_replaced(self) -> None:
        """Note that all replaced ids were given back."""
        self.words[word.N_REPLACED] = 0
        self.pair = None  # first: what is bound is known
        self._known = {}
