"""StackStore: observations that are stacks of frames, with each frame stored once.

Nearly every stack is a frame and the frames that came before it. So a FrameStore remembers the frame before each frame,
and the id of a stack tells its newest frame and how often the stack ends in it. A table lists all other stacks, under
negative ids.
"""

import warnings
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from obscodec.arguments import check_kind, says_arguments
from obscodec.devices import FrameReader
from obscodec.errors import ShapeError
from obscodec.fixed import Fixed
from obscodec.frames import StackTable, StepWriter, interleave
from obscodec.layout import FrameStack, Layout, Rows
from obscodec.segments import Ints
from obscodec.state import State
from obscodec.stats import StoreStats
from obscodec.stores.batch_memory import BATCH_MEMORY
from obscodec.stores.frame_store import FrameStore
from obscodec.stores.store import MAKE_ANOTHER, Store


@says_arguments
class StackStore(Store):
    """Stacks of frames, each frame stored once. Safe to use from several threads.

    Args:
        frames: the store of the frames, used by this store alone.
        layout: shape and dtype of one observation.
        frame_stack: how an observation is made of frames.

    Raises:
        ShapeError: the store of frames has another layout.
        DTypeError: an argument has another type.

    Example:
        >>> stack, layout = FrameStack(depth=4), Layout((4, 84, 84), np.uint8)
        >>> store = StackStore(FrameStore(stack.frame_layout(layout), stack=4), layout, stack)
        >>> observations = np.arange(5, dtype=np.uint8)[:, None, None].repeat(84, 1).repeat(84, 2)
        >>> ids = store.append(np.stack([observations[:4], observations[1:]]))
        >>> bool((store.read(ids)[1] == observations[1:]).all())
        True
    """

    frames: Fixed[FrameStore] = Fixed(MAKE_ANOTHER)
    frame_stack: Fixed[FrameStack] = Fixed(MAKE_ANOTHER)

    def __init__(self, frames: FrameStore, layout: Layout, frame_stack: FrameStack) -> None:
        check_kind("frames", frames, FrameStore, "a FrameStore")
        check_kind("layout", layout, Layout, "a Layout, such as Layout((4, 84, 84), 'uint8')")
        check_kind("frame_stack", frame_stack, FrameStack, "a FrameStack, such as FrameStack(4)")
        if frames.layout != frame_stack.frame_layout(layout):
            raise ShapeError(f"the frames are {frame_stack.frame_layout(layout)}, the store is for {frames.layout}")
        self._takes_stacks = frames.reader is not None and frames.reader.takes(frame_stack)
        if frames.reader is not None and not self._takes_stacks:
            warnings.warn(f"{frame_stack} is put together on the CPU and copied to {frames.device!r}", stacklevel=2)
        self.frames = frames
        self.layout = layout
        self.device = frames.device
        self.frame_stack = frame_stack
        frames.log.stacks = StackTable(frame_stack.depth)

    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """See ``Store.take_in``."""
        tensors = tensors if type(tensors) is np.ndarray else self.to_host(tensors)
        rows = self.layout.rows(tensors) if self.frame_stack.axis == 0 else self._rows(tensors)
        rows, log = rows.reshape(len(tensors) * self.frame_stack.depth, self.frames.layout.nbytes), self.frames.log
        log.take_in(rows, sequences.repeat(self.frame_stack.depth), which, ids, log.stacks)

    def step_writer(self, n: int) -> StepWriter:
        """See ``Store.step_writer``."""
        log = self.frames.log
        return StepWriter(log, self.layout, log.stacks, n, channels_last=self.frame_stack.axis != 0)

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """See ``Store.read_into``. Decodes a frame once, however many stacks share it."""
        if not (isinstance(out, np.ndarray) or self._reader):
            self.read_via_host(ids, out)
            return
        log, frames = self.frames.log, self.frames.layout
        if self._reader and not isinstance(out, np.ndarray):
            self._reader.read(ids, out, frames=log.expand(ids, self.listed).reshape(-1), stack=self.frame_stack)
            return
        n_frames = len(ids) * self.frame_stack.depth
        if self.frame_stack.axis == 0:
            rows = self.layout.rows(out).reshape(n_frames, frames.nbytes)
            log.read(ids, rows, self.frames.threads, self.listed)
        else:
            read = BATCH_MEMORY.array(n_frames, frames)
            log.read(ids, frames.rows(read), self.frames.threads, self.listed)
            self._join(read, out)

    def device_reader(self) -> FrameReader:
        """See ``Store.device_reader``."""
        return self._reader or super().device_reader()

    def give_back(self, ids: Ints) -> None:
        """See ``Store.give_back``."""
        self.frames.log.give_back(ids, self.listed)

    def _stats(self) -> StoreStats:
        """See ``Store.stats``."""
        frames = self.frames.stats()
        return replace(
            frames,
            n_tensors=self.listed.n_stacks,
            raw_bytes=self.listed.n_stacks * self.layout.nbytes,
            table_bytes=frames.table_bytes + self.listed.nbytes,
            growing_bytes=frames.growing_bytes + self.listed.nbytes,
        )

    @property
    def parts(self) -> tuple[Store, ...]:
        """See ``Store.parts``."""
        return (self.frames,)

    @property
    def memory_bytes(self) -> int:
        """See ``Store.memory_bytes``."""
        return self.frames.memory_bytes + self.listed.nbytes

    def arguments(self) -> State:
        """See ``Store.arguments``."""
        return {"frames": self.frames.description(), "layout": self.layout, "frame_stack": self.frame_stack}

    def _state(self) -> State:
        return self.frames.state()

    def _restore(self, state: State) -> None:
        """See ``Store.restore``."""
        self.frames.restore(state)

    @property
    def listed(self) -> StackTable:
        """The stacks that do not follow from their newest frame; the log of the frames has them."""
        return self.frames.log.stacks

    @property
    def _reader(self) -> FrameReader | None:
        return self.frames.reader if self._takes_stacks else None

    def _join(self, frames: npt.NDArray[np.generic], out: npt.NDArray[np.generic]) -> None:
        """``out[...] = self.frame_stack.join(frames)``, faster where a pixel has one byte of each frame."""
        depth = self.frame_stack.depth
        if depth in (2, 4, 8) and frames.itemsize * frames.shape[1] == 1:
            size = self.frames.layout.nbytes
            pixels = out.reshape(len(out), size * depth).view(f"u{depth}")
            interleave(frames.reshape(len(out), depth, size).view(np.uint8), pixels)
        else:
            out[...] = self.frame_stack.join(frames)

    def _rows(self, tensors: npt.NDArray[np.generic]) -> Rows:
        self.layout.check(tensors)  # an error tells the shape of a stack, not of a frame
        return self.frames.layout.rows(self.frame_stack.split(tensors))

    def __repr__(self) -> str:
        return f"StackStore({self.frames!r}, {self.layout}, {self.frame_stack})"
