"""FrameReader: what decodes the frames of a store on a device, and what it has to know of them."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.layout import FrameStack, Layout, Rows
from obscodec.segments import Ints, Segments


class FrameForm(NamedTuple):
    """What stays the same in all blocks of a FrameStore.

    Attributes:
        layout: of a frame.
        block_frames: how many frames a block has.
        codec: of the blocks: ``"delta-rle"``, patches; another one compresses frames that lie one behind the other.
    """

    layout: Layout
    block_frames: int
    codec: str


class FrameChanges(NamedTuple):
    """What is new in the blocks of a FrameStore since the last look. All that is no view of its tables is a copy.

    Attributes:
        n_blocks: how many rows a table of blocks needs; it never gets smaller.
        blocks: ``i64[n]``, the numbers of the blocks that changed, rising.
        addresses: ``u64[n]``, where their streams are in the memory of the heap; 0 for one that has none there.
        lengths: ``i64[n]``, the bytes of these.
        previous: ``i32[n, block_frames]``, for each of their frames the one before it, see ``FrameStore.previous``.
        opened: ``i64[m]``, which of ``blocks`` are open.
        of_sequences: ``i64[m]``, the sequence of frames of each of these; a sequence has one open block.
        contents: their streams, blocks of version 0.
        first_reference: the number of the first one of ``references``.
        references: ``u8[k, nbytes]``, reference frames that joined.
        memories: whoever uses the addresses holds this as long.
    """

    n_blocks: int
    blocks: Ints
    addresses: npt.NDArray[np.uint64]
    lengths: Ints
    previous: npt.NDArray[np.int32]
    opened: Ints
    of_sequences: Ints
    contents: Segments
    first_reference: int
    references: Rows
    memories: object


class ListedChanges(NamedTuple):
    """What is new in the stacks that a StackStore lists.

    Attributes:
        n_rows: how many rows a table of them needs; it never gets smaller.
        rows: ``i64[n]``, the numbers of the rows that changed, rising.
        frames: ``i32[n, depth]``, the frames of each, oldest first; -1 in a row that is free.
    """

    n_rows: int
    rows: Ints
    frames: npt.NDArray[np.int32]


class FrameReader(ABC):
    """Decodes the frames of one FrameStore on a device, with copies of its tables there.

    Everything is queued on the current stream, in the order of the calls, on whichever streams they are. The store
    calls it under its lock.
    """

    @abstractmethod
    def on_stream_of(self, out: Any) -> AbstractContextManager[None]:
        """Make the stream that the library of an array works on the current one."""

    @abstractmethod
    def takes(self, stack: FrameStack) -> bool:
        """Whether :meth:`read` reads such stacks."""

    @abstractmethod
    def update(self, changes: FrameChanges, listed: ListedChanges | None = None, *, hold: bool = False) -> None:
        """Bring the copies up to date. What was queued before sees them as they were.

        Args:
            changes: since the last call, or all that there is.
            listed: likewise for the stacks of the StackStore, None if nobody has asked for one.
            hold: keep what the addresses point to until the next call, for kernels that are queued by others.

        Raises:
            HeapFull: the device has not enough memory; the next call brings all that there is.
        """

    @abstractmethod
    def read(self, ids: Ints, out: Any, stack: FrameStack | None = None) -> None:
        """Decode frames, or stacks of them.

        Args:
            ids: ``i64[n]`` on the host, each known at the last update.
            out: ``[n, *shape]`` in the memory of the device, an array of any library; contiguous.
            stack: how observations are made of frames, None to read frames.

        Raises:
            DTypeError: ``out`` has another dtype, or is in other memory.
            ShapeError: it has another shape.
            CorruptStream: an earlier call found a damaged block; what it wrote is of no use.
        """

    @abstractmethod
    def wait(self) -> None:
        """Wait until all is done that was queued."""
