"""BlockQueue: full blocks that wait until they are compressed together."""

import numpy as np

from obscodec.frames.kernels import queue as field
from obscodec.frames.kernels.queue import Queue
from obscodec.runtime import new_chunk, new_table
from obscodec.segments import Ints, Segments

_MIN_ROOM_NBYTES = 1 << 20
_MOST_BLOCKS = 96
_MANY_BLOCKS = 16, 64  # for few sequences, and for many
_MEAN_NBYTES = 1 << 12  # larger blocks are not kept waiting for so many others


class BlockQueue:
    """Full blocks of version 0, by number. Not safe to use from several threads: its FrameLog locks.

    Args:
        bound: the most bytes of a block.
        is_open: whether it has room.

    Attributes:
        table: see ``kernels.queue``.
    """

    def __init__(self, bound: int, is_open: bool) -> None:
        self._bound = bound
        self.is_open = is_open
        self._memory = new_chunk(max(_MIN_ROOM_NBYTES, bound))  # takes memory as far as it is written
        self.table: Queue = new_table((1 + _MOST_BLOCKS, 6), np.int64)
        self.table[0, field.MEMORY] = self._memory.ctypes.data
        self.table[0, field.ROOM_NBYTES] = len(self._memory) * is_open
        self.clear()

    @property
    def is_due(self) -> bool:
        """Whether its blocks are many."""
        return field.is_due(self.table)

    @property
    def nbytes(self) -> int:
        """Bytes of its blocks."""
        return int(self.table[0, field.USED_NBYTES])

    def __len__(self) -> int:
        return int(self.table[0, field.N_BLOCKS])

    def numbers(self) -> Ints:
        """``i64[n]``, the numbers of the blocks, 0 for one that is not wanted any more."""
        return self.table[1 : 1 + len(self), field.NUMBER].copy()

    def blocks(self) -> Segments:
        """The blocks, in place; they stay until :meth:`clear`."""
        offsets, lengths = self.table[1 : 1 + len(self), field.OFFSET : field.LENGTH + 1].T.copy()
        return Segments((self._memory,), np.zeros(len(offsets), np.int64), offsets, lengths)

    def postpone(self) -> None:
        """Have :attr:`is_due` be False until there are more blocks."""
        self.table[0, field.DUE_BLOCKS :] = len(self) + 1, self.nbytes + 1

    def clear(self, n_sequences: int = 1) -> None:
        """Forget all blocks; so many sequences fill the queue next."""
        many = min(max(2 * n_sequences, _MANY_BLOCKS[0]), _MANY_BLOCKS[1])
        self.table[0, field.USED_NBYTES :] = 0, 0, many, many * _MEAN_NBYTES
