"""FrameStore: each frame stored once, in blocks of consecutive frames that are patches of each other."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_option, check_kind, says_arguments
from obscodec.devices import FrameReader, backend, check_place, decoding_device
from obscodec.errors import ShapeError
from obscodec.fixed import Fixed
from obscodec.frames import NO_BLOCKS, FrameLog, FullBlocks, StepWriter, announce, new_coder
from obscodec.layout import Layout
from obscodec.runtime import as_threads, new_chunk
from obscodec.segments import Ints
from obscodec.state import State
from obscodec.stats import StoreStats
from obscodec.stores.ids import last_frame_id
from obscodec.stores.store import MAKE_ANOTHER, Store

DEFAULT_BLOCK_FRAMES = 16


@says_arguments
class FrameStore(Store):
    """Frames of one layout, each stored once.

    A frame that equals one of the last frames of its sequence, byte for byte, gets the id of that frame. A new frame
    joins the open block of its sequence; a full block is encoded as one stream in a heap. With the codec ``delta-rle``,
    a frame becomes a patch of the frame before it as soon as it is appended.

    References to frames are counted. A frame goes when all references that :meth:`append` gave are released, a block
    with its last frame. Safe to use from several threads.

    Args:
        layout: shape and dtype of one frame.
        codec: how blocks are encoded: ``delta-rle``, ``delta-rle|zstd:3`` or any other spec.
        block_frames: how many frames a block has; 1 for codecs that gain nothing from neighbours.
        stack: how many frames come together in one observation: the likely distance to a repetition.
        recent: how many of the last frames of its sequence a frame is compared with, None for ``stack + 2``.
        first_id: the least id to give out, 1 or more.
        max_bytes: the most bytes to reserve for blocks, None for no limit.
        threads: how many threads share the work on a large batch, None for half of the usable processors.
        device: where frames are decoded: ``"cpu"``, or a GPU such as ``"cuda"``. If it can't decode the codec, the CPU
            decodes, and a warning says so.
        heap: where a GPU reads the blocks: from a copy in its own memory, ``"device"``, or from the host's, which is
            ``"pinned"`` then.

    Attributes:
        log: the frames.
        reader: decodes frames on the device; None if the CPU decodes.

    Raises:
        ShapeError: frames have no bytes, or a number is out of range.
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
    log: FrameLog
    reader: FrameReader | None

    def __init__(
        self,
        layout: Layout,
        *,
        codec: str = "delta-rle",
        block_frames: int = DEFAULT_BLOCK_FRAMES,
        stack: int = 1,
        recent: int | None = None,
        first_id: int = 1,
        max_bytes: int | None = None,
        threads: int | None = None,
        device: str = "cpu",
        heap: str = "device",
    ) -> None:
        check_kind("layout", layout, Layout, "a Layout, such as Layout((84, 84), 'uint8')")
        if layout.nbytes == 0:
            raise ShapeError(f"a frame has at least one byte, got {layout}")
        block_frames, stack = as_count("block_frames", block_frames), as_count("stack", stack)
        n_recent = as_option("recent", recent) or stack + 2
        first_id = as_count("first_id", first_id)
        check_place(device, heap)
        announce()
        self.layout = layout
        self.device, self._heap = device, heap
        self.block_frames = block_frames
        self.threads = as_threads(threads)
        coder = new_coder(codec, layout, block_frames)
        decoding = decoding_device(device, coder.spec, block_frames, f"frames of the codec {coder.spec!r}")
        self.log = FrameLog(
            coder,
            layout.nbytes,
            block_frames=block_frames,
            stack=stack,
            n_recent=n_recent,
            first_id=first_id,
            last_id=last_frame_id(stack),
            max_bytes=max_bytes,
            allocate=backend(device).pinned(device) if decoding != "cpu" and heap == "pinned" else new_chunk,
        )
        self.reader = None if decoding == "cpu" else self._new_reader()

    @property
    def codec(self) -> str:
        """The spec of the codec of the blocks."""
        return self.log.coder.spec

    def mean_frame_bytes(self, before: FullBlocks = NO_BLOCKS) -> float:
        """Bytes for each frame in the blocks that are full since ``before``; in the open ones if there are none."""
        return self.log.mean_frame_bytes(before)

    def train(self) -> FullBlocks:
        """Train the dictionaries of the codec on the frames so far, without waiting for more; the full blocks so far.

        A codec without dictionaries stays as it is, as does one that can't learn from so few frames.
        """
        return self.log.train()

    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """See ``Store.take_in``."""
        self.log.take_in(
            self.layout.rows(tensors if type(tensors) is np.ndarray else self.to_host(tensors)), sequences, which, ids
        )

    def step_writer(self, n: int) -> StepWriter:
        """See ``Store.step_writer``."""
        return StepWriter(self.log, self.layout, None, n, channels_last=False)

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """See ``Store.read_into``. Decodes each block once, each frame straight into its places."""
        if isinstance(out, np.ndarray):
            self.log.read(ids, self.layout.rows(out), self.threads)
        elif self.reader is None:
            self.read_via_host(ids, out)
        else:
            self.reader.read(ids, out, frames=ids)

    def device_reader(self) -> FrameReader:
        """See ``Store.device_reader``."""
        return self.reader or super().device_reader()

    def give_back(self, ids: Ints) -> None:
        """See ``Store.give_back``."""
        self.log.give_back(ids)

    def _stats(self) -> StoreStats:
        """See ``Store.stats``."""
        return replace(self.log.stats(), codec=self.codec, block_frames=self.block_frames)

    @property
    def memory_bytes(self) -> int:
        """See ``Store.memory_bytes``."""
        return self.log.memory_bytes

    def spill(self, folder: str, nbytes: int) -> int:
        """See ``Store.spill``."""
        return self.log.heap.spill(folder, nbytes)

    def _new_reader(self) -> FrameReader:
        return backend(self.device).frame_reader(self.device, self._heap, self.layout, self.log)

    def arguments(self) -> State:
        """See ``Store.arguments``."""
        return {
            "layout": self.layout,
            "codec": self.codec,
            "block_frames": self.block_frames,
            "stack": self.log.open.stack,
            "recent": self.log.open.n_recent,
            "first_id": self.log.first * self.block_frames,
            "max_bytes": self.log.heap.max_bytes,
            "threads": self.threads,
            "device": self.device,
            "heap": self._heap,
        }

    def _state(self) -> State:
        return self.log.state()

    def _restore(self, state: State) -> None:
        """See ``Store.restore``."""
        self.log.restore(state)

    def __repr__(self) -> str:
        return f"FrameStore({self.codec!r}, {self.layout}, block_frames={self.block_frames}, {self.stats()})"
