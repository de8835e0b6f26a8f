"""CudaFrameReader: reads the frames of one store on a GPU."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final

import numpy as np
from obscodec import CorruptStream, FrameStack, HeapFull, Layout
from obscodec.devices import FrameReader
from obscodec.frames import WatchedLog
from obscodec.runtime import LockOrder, PicklableLock
from obscodec.segments import Ints

from obscodec_cupy.device.array import checked
from obscodec_cupy.device.device import Device
from obscodec_cupy.device.writes import Writes
from obscodec_cupy.frames.gather import Gather, Source
from obscodec_cupy.frames.mirror import Mirror

MOST_KNOWN: Final = 64  # reads that are prepared


class CudaFrameReader(FrameReader):
    """See ``FrameReader``. With ``pinned``, the device reads the chunks of the log in place.

    ``lock`` is held while somebody works with ``mirror``, the copy of the frames on the device. All launches that read
    or write it are in one ``order``.
    """

    def __init__(
        self, device: Device, layout: Layout, frame_stack: FrameStack | None, log: WatchedLog, *, pinned: bool
    ) -> None:
        self.device, self.layout, self.frame_stack, self.log = device, layout, frame_stack, log
        self.lock = PicklableLock(LockOrder.MIRROR)
        self.n_syncs = 0  # how often the mirror was brought up to date
        self.order = device.order()
        with self.order:
            self.mirror = Mirror(device, log, pinned=pinned)
        self._gather: Gather | None = None
        self._known: dict[Hashable, Callable[[], None]] = {}
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

    def read(self, ids: Ints, out: Any, there: Any = None) -> None:
        """See ``FrameReader.read``."""
        self.device.require_process()
        self.check()
        device = self.device
        key = None if there is None else (device.key(there), device.key(out))
        with self.lock, device.on_stream_of(out, there), self.order:
            launch = self._known.get(key)
            if launch is None:
                view = device.writable_view("out", out)
                target = checked("out", view, (len(ids), *self.layout.shape), self.layout.dtype.name)
                known = device.upload(ids.astype(np.int32)) if there is None else device.view(there)
                launch = self._prepared(key, Source(checked("there", known, ids.shape, "int32"), target))
            try:
                self.sync(Writes(device), ids=ids)
            except HeapFull:
                self.sync(Writes(device), ids=ids)  # what was replaced has been given back now
            launch()

    def _prepared(self, key: tuple[Hashable, Hashable] | None, source: Source) -> Callable[[], None]:
        """What launches a read, known by its key from now on, unless it needs memory that the key does not name."""
        if self._gather is None:
            self._gather = self.gather()
        n = source.ids.size
        scratch_nbytes = self._gather.scratch_nbytes(n)
        scratch = self.device.empty((scratch_nbytes,), np.uint8) if scratch_nbytes else None
        launch = self._gather.prepared(self.mirror.header, n, [source], scratch=scratch)
        if key is None or None in key or scratch is not None:
            return partial(_launched, launch, (source, scratch))
        if len(self._known) == MOST_KNOWN:
            self._known.clear()
        self._known[key] = launch
        return launch

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
        form: dict[str, Any] = {"frame_stack": self.frame_stack, "codec": self.log.spec, **options}
        return Gather(self.device, self.layout, self.log.block_frames, **form)


def _launched(launch: Callable[[], None], _held: object) -> None:
    """Launch what works with memory that is held until then."""
    launch()
