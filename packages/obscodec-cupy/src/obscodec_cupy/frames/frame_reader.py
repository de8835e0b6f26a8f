"""CudaFrameReader: reads the frames of one store on a GPU."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from obscodec import BackendUnavailable, CorruptStream, FrameStack, Layout, LayoutError
from obscodec.devices import FrameChanges, FrameForm, FrameReader, ListedChanges

from obscodec_cupy.device.array import DeviceArray, checked
from obscodec_cupy.frames.device_tables import DeviceTables
from obscodec_cupy.frames.gather import Gather, Source
from obscodec_cupy.memory.heap_memory import CudaHeapMemory


class CudaFrameReader(FrameReader):
    """See ``FrameReader``.

    Args:
        form: what the blocks of the store are.
        memory: where they are.
        lock: of their heap.

    Attributes:
        device: where frames are decoded.
        header: see ``Gather.launch``.
    """

    def __init__(self, form: FrameForm, memory: CudaHeapMemory[Any], lock: AbstractContextManager[object]) -> None:
        self.form = form
        self.device = memory.device
        self._memory = memory
        self._lock = lock
        self._process = os.getpid()
        with lock, memory.order:
            self._mirror = DeviceTables(form, memory)
        self._gathers: dict[FrameStack | None, Gather] = {}

    @property
    def header(self) -> DeviceArray:
        """``u64[16]``, see ``Gather.launch``; always the same."""
        return self._mirror.header

    def on_stream_of(self, out: Any) -> AbstractContextManager[None]:
        """See ``FrameReader.on_stream_of``."""
        return self.device.on_stream_of(out)

    def takes(self, stack: FrameStack) -> bool:
        """See ``FrameReader.takes``."""
        try:
            self.gather(stack)
        except LayoutError:
            return False
        return True

    @contextmanager
    def working(self) -> Iterator[None]:
        """Work with the copies, after what other streams did with them.

        Raises:
            BackendUnavailable: this process was forked from the one that made this reader.
        """
        if os.getpid() != self._process:
            raise BackendUnavailable(
                f"a forked process can't use {self.device.name} as the process before it does: start it with 'spawn', "
                "and pickle the store"
            )
        with self._lock, self._memory.order:
            yield

    def check(self) -> None:
        """Complain of what earlier reads found wrong, as far as they are done; once.

        Raises:
            CorruptStream: a block is damaged.
            SlotError: an id is of no frame.
        """
        try:
            self._mirror.check()
        except CorruptStream as error:
            raise CorruptStream(f"an earlier read found damage, its tensors are of no use: {error}") from error

    def update(self, changes: FrameChanges, listed: ListedChanges | None = None, *, hold: bool = False) -> None:
        """See ``FrameReader.update``."""
        with self.working():
            self._mirror.update(changes, listed, hold=hold)

    def read(self, ids: npt.NDArray[np.int64], out: Any, stack: FrameStack | None = None) -> None:
        """See ``FrameReader.read``."""
        self.check()
        gather = self._gathers.get(stack) or self._gathers.setdefault(stack, self.gather(stack))
        layout = self.layout(stack)
        target = checked("out", self.device.view(out), (len(ids), *layout.shape), layout.dtype.name)
        with self.working():
            scratch_nbytes = gather.scratch_nbytes(len(ids))
            scratch = self.device.empty((scratch_nbytes,), np.uint8) if scratch_nbytes else None
            source = Source(self.device.upload(ids.astype(np.int32)), target)
            gather.launch(self.header, len(ids), [source], scratch=scratch)

    def wait(self) -> None:
        """See ``FrameReader.wait``."""
        with self.working():
            done = self.device.mark()
        done.wait()

    def layout(self, stack: FrameStack | None) -> Layout:
        """Of frames, or of stacks of them."""
        frame = self.form.layout
        if stack is None:
            return frame
        channels, *rest = frame.shape
        length = stack.depth * channels
        return Layout((length, *rest) if stack.axis == 0 else (*rest, length), frame.dtype)

    def gather(
        self,
        stack: FrameStack | None,
        *,
        dtype: str | None = None,
        scale: float = 1.0,
        shifted_axes: tuple[int, int] | None = None,
    ) -> Gather:
        """What reads frames, or stacks of them, by :attr:`header`; see :class:`Gather`."""
        return Gather(
            self.device,
            self.layout(stack),
            self.form.block_frames,
            frame_stack=stack,
            codec=self.form.codec,
            dtype=dtype,
            scale=scale,
            shifted_axes=shifted_axes,
        )
