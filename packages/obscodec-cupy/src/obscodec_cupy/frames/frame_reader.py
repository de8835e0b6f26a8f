"""CudaFrameReader: reads the frames of one store on a GPU."""

from typing import Any

import numpy as np
from obscodec import CorruptStream, FrameStack, HeapFull, Layout
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
    """See ``FrameReader``. With ``pinned``, the device reads the chunks of the log in place.

    ``lock`` is held while somebody works with ``mirror``, the copy of the frames on the device. All launches that read
    or write it are in one ``order``.
    """

    def __init__(
        self, device: Device, layout: Layout, frame_stack: FrameStack | None, log: FrameLog, *, pinned: bool
    ) -> None:
        self.device, self.layout, self.frame_stack, self.log = device, layout, frame_stack, log
        self.lock = PicklableLock(LockOrder.MIRROR)
        self.n_syncs = 0  # how often the mirror was brought up to date
        self.order = device.order()
        with self.order:
            self.mirror = Mirror(device, log, pinned=pinned)
        self._gather: Gather | None = None
        device.park_with(self, self.mirror.memories, self.order)

    def check(self) -> None:
        """See ``Mirror.check``, for reads that are done."""
        try:
            self.mirror.check()
        except CorruptStream as error:
            raise CorruptStream(
                f"an earlier read found damage, its tensors are of no use: {error}; or a BatchReader has read items "
                "that were assigned after its last sync"
            ) from error

    def read(self, ids: Ints, out: Any) -> None:
        """See ``FrameReader.read``."""
        self.device.require_process()
        self.check()
        if self._gather is None:
            self._gather = self.gather()
        gather, layout = self._gather, self.layout
        with self.lock, self.device.on_stream_of(out), self.order:
            view = self.device.writable_view("out", out)
            target = checked("out", view, (len(ids), *layout.shape), layout.dtype.name)
            source = Source(self.device.upload(ids.astype(np.int32)), target)
            try:
                self.sync(Writes(self.device), ids=ids)
            except HeapFull:
                self.sync(Writes(self.device), ids=ids)  # what was replaced has been given back now
            scratch_nbytes = gather.scratch_nbytes(len(ids))
            scratch = self.device.empty((scratch_nbytes,), np.uint8) if scratch_nbytes else None
            gather.prepared(self.mirror.header, len(ids), [source], scratch=scratch)()

    def sync(self, writes: Writes, n_items: int = 0, *, ids: Ints | None = None) -> int:
        """Bring the device up to date with the log and with what was added to ``writes``; returns ``n_syncs``.

        See ``Mirror.sync``. Raises SlotError if one of ``ids``, ``i64[n]``, is of no tensor. ``writes`` is of no use if
        this raises.
        """
        with self.lock, self.order:
            try:
                with self.log.lock:
                    if ids is not None:
                        self.log.check(ids)
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

    def gather(self, **options: Any) -> Gather:
        """A :class:`Gather` from the mirror, with its ``options``."""
        form: dict[str, Any] = {"frame_stack": self.frame_stack, "codec": self.log.coder.spec, **options}
        return Gather(self.device, self.layout, self.log.block_frames, **form)
