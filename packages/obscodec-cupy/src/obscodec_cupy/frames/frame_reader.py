"""CudaFrameReader: reads the frames of one store on a GPU."""

from typing import Any

import numpy as np
from obscodec import CorruptStream, FrameStack, HeapFull, Layout, LayoutError
from obscodec.devices import FrameReader
from obscodec.frames import FrameLog
from obscodec.runtime import LockOrder, PicklableLock
from obscodec.segments import Ints

from obscodec_cupy.device.array import checked
from obscodec_cupy.device.device import Device
from obscodec_cupy.device.writes import Writes
from obscodec_cupy.frames.gather import Gather, Source
from obscodec_cupy.frames.mirror import Mirror


class CudaFrameReader(FrameReader):
    """See ``FrameReader``.

    Args:
        device: where frames are decoded.
        layout: of a frame.
        log: the frames.
        pinned: whether the device reads the chunks of the log in place.

    Attributes:
        log: the frames.
        mirror: the copy of them on the device.
        lock: held while somebody works with the mirror.
        order: of all launches that read or write the mirror.
        n_syncs: how often the mirror was brought up to date.
    """

    def __init__(self, device: Device, layout: Layout, log: FrameLog, *, pinned: bool) -> None:
        self.device, self.layout, self.log = device, layout, log
        self.lock = PicklableLock(LockOrder.MIRROR)
        self.n_syncs = 0
        self.order = device.order()
        with self.order:
            self.mirror = Mirror(device, layout, log, pinned=pinned)
        self._gathers: dict[FrameStack | None, Gather] = {}
        device.park_with(self, self.mirror.memories, self.order)

    def takes(self, stack: FrameStack) -> bool:
        """See ``FrameReader.takes``."""
        try:
            self.gather(stack)
        except LayoutError:
            return False
        return True

    def check(self) -> None:
        """Complain of what earlier reads found wrong, as far as they are done; once.

        Raises:
            CorruptStream: a block is damaged.
            SlotError: an id is of no frame.
        """
        try:
            self.mirror.check()
        except CorruptStream as error:
            raise CorruptStream(
                f"an earlier read found damage, its tensors are of no use: {error}; or a BatchReader has read items "
                "that were assigned after its last sync"
            ) from error

    def read(self, ids: Ints, out: Any, *, frames: Ints, stack: FrameStack | None = None) -> None:
        """See ``FrameReader.read``."""
        self.device.require_process()
        self.check()
        gather = self._gathers.get(stack) or self._gathers.setdefault(stack, self.gather(stack))
        layout = stacked(self.layout, stack)
        with self.lock, self.device.on_stream_of(out), self.order:
            view = self.device.writable_view("out", out)
            target = checked("out", view, (len(ids), *layout.shape), layout.dtype.name)
            source = Source(self.device.upload(ids.astype(np.int32)), target)
            try:
                self.sync(Writes(self.device), frames=frames)
            except HeapFull:
                self.sync(Writes(self.device), frames=frames)  # what was replaced has been given back now
            scratch_nbytes = gather.scratch_nbytes(len(ids))
            scratch = self.device.empty((scratch_nbytes,), np.uint8) if scratch_nbytes else None
            gather.prepared(self.mirror.header, len(ids), [source], scratch=scratch)()

    def sync(self, writes: Writes, n_items: int = 0, *, frames: Ints | None = None) -> int:
        """Have the device know what is in the log, and what has been added to ``writes``; returns :attr:`n_syncs`.

        Args:
            writes: of no use if this raises.
            n_items: see ``Mirror.sync``.
            frames: frames that must be there, ``i64[n]``, or None.

        Raises:
            SlotError: one of ``frames`` is not there.
            HeapFull: the device has not enough memory.
        """
        with self.lock, self.order:
            try:
                with self.log.lock:
                    if frames is not None:
                        self.log.check(frames)
                    if self.mirror.n_changes != self.log.n_changes:
                        self.n_syncs += 1
                        self.mirror.sync(writes, n_items)
                    writes.launch()
            except HeapFull:
                self.mirror.give_up()
                raise
            except BaseException:
                self.mirror.forget()
                raise
            if self.mirror.retired:
                self.device.keep(tuple(self.mirror.retired))
                self.mirror.retired.clear()
            return self.n_syncs

    def gather(self, stack: FrameStack | None, **options: Any) -> Gather:
        """What reads frames, or stacks of them, from the mirror; ``options`` are those of :class:`Gather`."""
        return Gather(
            self.device,
            stacked(self.layout, stack),
            self.log.block_frames,
            frame_stack=stack,
            codec=self.log.coder.spec,
            **options,
        )


def stacked(frame: Layout, stack: FrameStack | None) -> Layout:
    """Of frames, or of stacks of them."""
    if stack is None:
        return frame
    channels, *rest = frame.shape
    length = stack.depth * channels
    return Layout((length, *rest) if stack.axis == 0 else (*rest, length), frame.dtype)
