"""FrameStore: each frame stored once, in blocks of consecutive frames that are patches of each other.

Nearly every stack of frames is a frame and the frames that came before it. So the store remembers the frame before each
frame, and the id of a stack tells its newest frame and how often the stack ends in it. A table lists all other stacks,
under negative ids.
"""

from dataclasses import replace
from inspect import signature

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_flag, as_option, says_arguments, warn
from obscodec.devices import FrameReader, backend, check_place, decoding_device
from obscodec.errors import ShapeError
from obscodec.fixed import Fixed
from obscodec.frames import FrameLog, Portion, StepWriter, WatchedLog, new_coder
from obscodec.kernels import compiled
from obscodec.layout import FrameStack, Layout, Rows
from obscodec.runtime import as_threads, new_chunk
from obscodec.segments import Ints
from obscodec.state import State
from obscodec.stats import StoreStats
from obscodec.stores.batch_memory import BATCH_MEMORY
from obscodec.stores.ids import last_frame_id
from obscodec.stores.store import MAKE_ANOTHER, Store
from obscodec.stores.stored_part import StoredPart

DEFAULT_BLOCK_FRAMES = 16


@says_arguments
class FrameStore(Store):
    """Frames of one layout, or stacks of frames, with each frame stored once.

    A frame that equals one of the last frames of its sequence, byte for byte, gets the id of that frame. A new frame
    joins the open block of its sequence; a full block is encoded as one stream in a heap. With the codec ``delta-rle``,
    a frame becomes a patch of the frame before it as soon as it is appended.

    References to frames are counted. A frame goes when all references that :meth:`append` gave are released, a block
    with its last frame. Safe to use from several threads.

    Args:
        layout: shape and dtype of one frame, or of one stack.
        frame_stack: how a tensor is made of frames, None if it is a frame; a number for so many along axis 0.
        codec: how blocks are encoded: ``delta-rle``, ``delta-rle|zstd:3`` or any other spec.
        block_frames: how many frames a block has; 1 for codecs that gain nothing from neighbours.
        recent: how many of the last frames of its sequence a frame is compared with, None for its depth + 2.
        interleaved: whether all sequences are one, for many of them with few frames each: a block for each would mostly
            stay open, uncompressed. Only for tensors that are one frame.
        first_id: the least id of a frame to give out, 1 or more.
        first_row: the least row for a stack that is listed, whose id is ``-1 - row``.
        max_bytes: the most bytes to reserve for blocks, None for no limit.
        threads: how many threads share the work on a large batch, None for half of the usable processors.
        device: where tensors are decoded: ``"cpu"``, or a GPU such as ``"cuda"``. If it can't decode the codec, or such
            stacks, the CPU decodes, and a warning says so.
        heap: where a GPU reads the blocks: from a copy in its own memory, ``"device"``, or from the host's, which is
            ``"pinned"`` then.

    Attributes:
        log: the frames.
        reader: decodes tensors on the device; None if the CPU decodes.

    Raises:
        ShapeError: frames have no bytes, tensors don't divide into such a frame stack, or a number is out of range.
        DTypeError: an argument has another type.
        SpecError: the spec names no codec that can encode blocks; or there is no such device or heap.
        BackendUnavailable: the device can't be used; the text names what is missing.

    Example:
        >>> import numpy as np
        >>> store = FrameStore(Layout((84, 84), np.uint8))
        >>> grey, white = np.full((84, 84), 127, np.uint8), np.full((84, 84), 255, np.uint8)
        >>> a, b, c = store.append(np.stack([grey, white, grey]))
        >>> bool(a == c), store.stats().n_tensors
        (True, 2)
        >>> store.read([b]).max()
        np.uint8(255)
    """

    block_frames: Fixed[int] = Fixed(MAKE_ANOTHER)
    frame_stack: Fixed[FrameStack | None] = Fixed(MAKE_ANOTHER)
    recent: Fixed[int] = Fixed(MAKE_ANOTHER)
    first_id: Fixed[int] = Fixed(MAKE_ANOTHER)
    first_row: Fixed[int] = Fixed(MAKE_ANOTHER)
    max_bytes: Fixed[int | None] = Fixed(MAKE_ANOTHER)
    heap: Fixed[str] = Fixed(MAKE_ANOTHER)
    interleaved: Fixed[bool] = Fixed(MAKE_ANOTHER)
    log: FrameLog
    reader: FrameReader | None

    def __init__(
        self,
        layout: Layout,
        *,
        frame_stack: FrameStack | int | None = None,
        codec: str = "delta-rle",
        block_frames: int = DEFAULT_BLOCK_FRAMES,
        recent: int | None = None,
        first_id: int = 1,
        first_row: int = 0,
        max_bytes: int | None = None,
        threads: int | None = None,
        device: str = "cpu",
        heap: str = "device",
        interleaved: bool = False,
    ) -> None:
        Layout.require(layout)
        stack = FrameStack.of(frame_stack)
        self._frame, self._depth = (stack.frame_layout(layout), stack.depth) if stack else (layout, 1)
        self._last = stack if stack and stack.axis == -1 else None  # with the frames in the last axis
        if self._frame.nbytes == 0:
            raise ShapeError(f"a frame has at least one byte, got {self._frame}")
        self.block_frames, self.first_id = as_count("block_frames", block_frames), as_count("first_id", first_id)
        self.first_row = as_count("first_row", first_row, 0)
        self.recent = as_option("recent", recent) or self._depth + 2
        self.interleaved = as_flag("interleaved", interleaved)
        if self.interleaved and self._depth > 1:
            raise ShapeError(f"interleaved sequences have single frames, got stacks of {self._depth}")
        check_place(device, heap)
        self.layout, self.frame_stack = layout, stack
        self.device, self.heap = device, heap
        self.threads = as_threads(threads)
        coder = new_coder(codec, self._frame, self.block_frames)
        decoding = decoding_device(device, coder.spec, self.block_frames, f"frames of the codec {coder.spec!r}")
        self.log = FrameLog(
            coder,
            self._frame.nbytes,
            block_frames=self.block_frames,
            stack=self._depth,
            n_recent=self.recent,
            interleaved=self.interleaved,
            first_id=self.first_id,
            first_row=self.first_row,
            last_id=last_frame_id(self._depth),
            max_bytes=max_bytes,
            allocate=backend(device).pinned(device) if decoding != "cpu" and heap == "pinned" else new_chunk,
        )
        self.max_bytes = self.log.heap.max_bytes
        self.reader = None
        if decoding != "cpu":
            self.reader = backend(device).frame_reader(device, heap, layout, stack, WatchedLog(self.log))
            if self.reader is None:
                warn(f"tensors of {stack or layout} are assembled on the CPU and copied to {device!r}")

    @property
    def codec(self) -> str:
        """The spec of the codec of the blocks."""
        return self.log.coder.spec

    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """See ``Store.take_in``."""
        tensors = tensors if type(tensors) is np.ndarray else self._to_host(tensors)
        self.log.take_in(self._rows(tensors), sequences, which, ids)

    def step_writer(self, n: int) -> StepWriter:
        """See ``Store.step_writer``."""
        return StepWriter(self, self.layout, n, channels_last=self._last is not None)

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """See ``Store.read_into``. Decodes each block once, and a frame once, however many stacks share it."""
        if not isinstance(out, np.ndarray):
            if self.reader is None:
                self._read_via_host(ids, out)
            else:
                self.reader.read(ids, out)
        elif self._last is None:
            self.log.read(ids, self._rows(out), self.threads)
        else:
            read = BATCH_MEMORY.array(len(ids) * self._depth, self._frame)
            self.log.read(ids, self._frame.rows(read), self.threads)
            self._join(read, self._last, out)

    def parts(self, ids: Ints) -> list[StoredPart]:
        """See ``Store.parts``."""
        return [StoredPart(np.arange(len(ids)), None, self.frame_stack, Portion.of(self.log, self._frame, ids))]

    @property
    def has_device_reader(self) -> bool:
        """See ``Store.has_device_reader``."""
        return self.reader is not None

    def device_reader(self, ids: Ints) -> tuple[FrameReader, Ints]:
        """See ``Store.device_reader``."""
        return (self.reader, ids) if self.reader else super().device_reader(ids)

    def _give_back(self, ids: Ints) -> None:
        self.log.give_back(ids)

    def refuse(self, ids: Ints) -> None:
        """Raise the ``SlotError`` of giving back ``ids``, if there is one to raise; nothing is done."""
        self.log.give_back(ids, only_looks=True)

    def _stats(self) -> StoreStats:
        stats = replace(self.log.stats(), codec=self.codec, block_frames=self.block_frames)
        if self.frame_stack is None:
            return stats
        n_stacks = self.log.stacks.n_stacks
        return replace(stats, n_tensors=n_stacks, raw_bytes=n_stacks * self.layout.nbytes)

    @property
    def memory_bytes(self) -> int:
        """See ``Store.memory_bytes``."""
        return self.log.memory_bytes

    def spill(self, folder: str, nbytes: int) -> int:
        """See ``Store.spill``."""
        return self.log.heap.spill(folder, nbytes)

    def arguments(self) -> State:
        """See ``Store.arguments``."""
        return {name: getattr(self, name) for name in signature(FrameStore).parameters}

    def _state(self) -> State:
        return self.log.state()

    def _restore(self, state: State) -> None:
        self.log.restore(state)

    def _rows(self, tensors: npt.NDArray[np.generic]) -> Rows:
        """The frames of tensors, ``u8[n * depth, nbytes]``."""
        if self._last is None:
            layout, shape = self.layout, tensors.shape[1:] if tensors.ndim else None
            if tensors.dtype != layout.dtype or shape != layout.shape or not tensors.flags.c_contiguous:
                tensors = layout.rows(tensors)
            return tensors.view(np.uint8).reshape(-1, self._frame.nbytes)
        self.layout.check(tensors)  # an error tells the shape of a stack, not of a frame
        return self._frame.rows(self._last.split(tensors))

    def _join(self, frames: npt.NDArray[np.generic], stack: FrameStack, out: npt.NDArray[np.generic]) -> None:
        """``out[...] = stack.join(frames)``, faster where a pixel has one byte of each frame."""
        depth = stack.depth
        if depth in (2, 4, 8) and frames.itemsize * frames.shape[1] == 1:
            pixels = out.reshape(len(out), self._frame.nbytes * depth).view(f"u{depth}")
            _interleave(frames.reshape(len(out), depth, self._frame.nbytes).view(np.uint8), pixels)
        else:
            out[...] = stack.join(frames)

    def __repr__(self) -> str:
        stack = f", {self.frame_stack}" if self.frame_stack else ""
        size = self.stats().summary
        return f"FrameStore({self.codec!r}, {self.layout}{stack}, block_frames={self.block_frames}, {size})"


@compiled
def _interleave(frames: npt.NDArray[np.uint8], pixels: npt.NDArray[np.unsignedinteger]) -> None:
    """Put stacks of frames together pixel by pixel, the oldest frame in the lowest byte.

    There is a pass for each frame, because LLVM makes vector instructions of it.

    Args:
        frames: ``u8[n, depth, size]``, contiguous.
        pixels: ``[n, size]``, integers of ``depth`` bytes, contiguous; filled.
    """
    for i in range(len(frames)):
        row = pixels[i]
        for k in range(frames.shape[1]):
            frame = frames[i, k]
            for p in range(len(row)):
                pixel = row.dtype.type(frame[p]) << row.dtype.type(8 * k)
                row[p] = pixel if k == 0 else row[p] | pixel
