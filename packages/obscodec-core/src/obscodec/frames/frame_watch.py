"""FrameWatch: finds what changed in the blocks of a FrameStore, for a copy of its tables on a device."""

import numpy as np

from obscodec.codecs import BytesCodec, Codec
from obscodec.devices import FrameChanges
from obscodec.frames.block_coder import BlockCoder
from obscodec.frames.open_blocks import OpenBlocks
from obscodec.frames.tables import FrameTables
from obscodec.heap import SlotHeap
from obscodec.segments import Ints, Segments


class FrameWatch:
    """Looks at blocks from time to time. The first look finds all blocks changed.

    Appending a frame notes nothing: the heap knows which streams it got, lost or moved, and the table of sequences
    tells which open blocks have changed.
    """

    def __init__(
        self, coder: BlockCoder[BytesCodec] | BlockCoder[Codec], heap: SlotHeap, open_blocks: OpenBlocks
    ) -> None:
        heap.watch()
        self._coder = coder
        self._heap = heap
        self._open = open_blocks
        self._filled = np.zeros((0, 3), np.int64)  # see OpenBlocks.filled
        self._n_references = 1
        self._noted: set[int] = set()
        self._has_looked = False

    def note(self, blocks: Ints) -> None:
        """Let the next look find ``blocks`` changed."""
        self._noted.update(blocks.tolist())

    def sees_changes(self) -> bool:
        """Whether anything has changed since the last look; takes less time than a look."""
        if not self._has_looked or self._noted or self._heap.has_changed:
            return True
        if self._open.n_references != self._n_references:
            return True
        return not np.array_equal(self._open.filled(), self._filled)

    def look(self, tables: FrameTables) -> FrameChanges:
        """What changed since the last look."""
        self._has_looked = True
        now = self._open.filled()
        before, self._filled = self._filled, now
        changed = np.ones(len(now), bool)
        changed[: len(before)] = (now[: len(before)] != before).any(axis=1)
        noted = np.array(list(self._noted), np.int64)
        found = np.concatenate([self._heap.changed(), noted, before[:, 0], now[changed, 0]])
        still_open = now[: len(before)][~changed[: len(before)], 0]
        blocks = np.setdiff1d(found, np.append(0, still_open))
        of_sequences = np.flatnonzero(changed & (now[:, 0] != 0))
        self._noted = set()
        first_reference, self._n_references = self._n_references, self._open.n_references
        places = self._heap.place(blocks)
        return FrameChanges(
            n_blocks=len(tables.live),
            blocks=blocks,
            addresses=places.addresses,
            lengths=places.lengths,
            previous=tables.previous.reshape(len(tables.live), -1)[blocks],
            opened=np.searchsorted(blocks, now[of_sequences, 0]),
            of_sequences=of_sequences,
            contents=Segments.of(
                [self._coder.open(self._open.content(block)) for block in now[of_sequences, 0].tolist()]
            ),
            first_reference=first_reference,
            references=self._open.references[first_reference : self._n_references],
            memories=places.memories,
        )
