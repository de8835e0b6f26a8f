"""FrameReader: decodes the frames of a store on a device, and the changes that the store tells it."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.layout import FrameStack, Layout, Rows
from obscodec.segments import Ints, Segments


class FrameForm(NamedTuple):
    """What all blocks of a FrameStore have in common.

    Attributes:
        layout: of a frame.
        block_frames: how many frames a block has.
        codec: of the blocks: ``"delta-rle"`` makes patches, any other codec compresses the frames one behind the other.
    """

    layout: Layout
    block_frames: int
    codec: str


class FrameChanges(NamedTuple):
    """What is new in the blocks of a FrameStore since the last look.

    Attributes:
        n_blocks: how many rows a table of blocks needs; never fewer than before.
        blocks: ``i64[n]``, the numbers of the blocks that changed, rising.
        addresses: ``u64[n]``, where each changed block is in the memory of the heap; 0 if it is not there.
        lengths: ``i64[n]``, the bytes of each changed block.
        previous: ``i32[n, block_frames]``, the id of the frame before each of their frames; see ``FrameTables``.
        opened: ``i64[m]``, which of ``blocks`` are open.
        of_sequences: ``i64[m]``, the sequence of frames that each open block belongs to; a sequence has one.
        contents: the streams of the open blocks, of version 0.
        first_reference: the number of the first of ``references``.
        references: ``u8[k, nbytes]``, the new reference frames, a view.
        memories: see ``Places.memories``.
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
        n_rows: how many rows a table of stacks needs; never fewer than before.
        rows: ``i64[n]``, the numbers of the rows that changed, rising.
        frames: ``i32[n, depth]``, the frames of each changed row, oldest first; the first is -1 in a free row.
    """

    n_rows: int
    rows: Ints
    frames: npt.NDArray[np.int32]


class FrameReader(ABC):
    """Decodes the frames of one FrameStore on a device, with copies of its tables there.

    The store calls it under its lock. Work is queued on the current stream; the work of one call begins when that of
    the call before it is done, on whichever streams the two are.
    """

    @abstractmethod
    def on_stream_of(self, out: Any) -> AbstractContextManager[None]:
        """Make the stream on which the library of an array works the current one."""

    @abstractmethod
    def takes(self, stack: FrameStack) -> bool:
        """Whether :meth:`read` reads such stacks."""

    @abstractmethod
    def update(self, changes: FrameChanges, listed: ListedChanges | None = None, *, hold: bool = False) -> None:
        """Bring the copies up to date. Work that was queued before sees them as they were.

        Args:
            changes: in the blocks since the last call; at the first call, all blocks.
            listed: the same for the stacks of the StackStore, None if nobody reads stacks.
            hold: keep the memory at the addresses until the next call, for kernels that others queue.

        Raises:
            HeapFull: the device has not enough memory; the next call passes all blocks again.
        """

    @abstractmethod
    def read(self, ids: Ints, out: Any, stack: FrameStack | None = None) -> None:
        """Decode frames, or stacks of frames.

        Args:
            ids: ``i64[n]`` on the host, each known at the last update.
            out: ``[n, *shape]`` in the memory of the device, an array of any library; contiguous.
            stack: how observations are made of frames, None to read frames.

        Raises:
            DTypeError: ``out`` has another dtype, or is in other memory.
            ShapeError: ``out`` has another shape.
            CorruptStream: an earlier call found a damaged block; the frames that it wrote are of no use.
        """

    @abstractmethod
    def wait(self) -> None:
        """Wait until all queued work is done."""
