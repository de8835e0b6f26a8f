"""DeviceFrames: the frames of a FrameStore on a device, where they are decoded."""

from contextlib import suppress
from typing import Any

from obscodec.devices import FrameReader
from obscodec.frames.frame_log import FrameLog
from obscodec.frames.frame_watch import FrameWatch
from obscodec.frames.stack_table import StackTable
from obscodec.layout import FrameStack
from obscodec.segments import Ints


class DeviceFrames:
    """Has a device know of the frames of a store what it needs to decode them. Safe to use from several threads.

    Args:
        log: the frames of the store.
        reader: what decodes them.
    """

    def __init__(self, log: FrameLog, reader: FrameReader) -> None:
        self.reader = reader
        self._log = log
        self._watch: FrameWatch | None = None
        self._knows_listed = False  # whether the reader was told of listed stacks since then

    def update(self, listed: StackTable | None = None) -> None:
        """Have the device know what there is now, for kernels that others queue until the next call.

        Args:
            listed: stacks that are listed, whose lock is held; always those of one StackStore, or None.

        Raises:
            HeapFull: the device has not enough memory.
        """
        with self._log.lock:
            self._update(listed, hold=True)

    def read(
        self,
        ids: Ints,
        out: Any,
        *,
        frames: Ints,
        stack: FrameStack | None = None,
        listed: StackTable | None = None,
    ) -> None:
        """Decode frames, or stacks of them.

        Args:
            ids: ``i64[n]``.
            out: see ``FrameReader.read``, as for the errors.
            frames: all frames that this needs.
            stack: how observations are made of frames, None to read frames.
            listed: see :meth:`update`.

        Raises:
            SlotError: there is no such frame.
            HeapFull: the device has not enough memory.
        """
        with self._log.lock, self.reader.on_stream_of(out):
            self._log.check(frames)
            self._update(listed, hold=False)
            self.reader.read(ids, out, stack)

    def _update(self, listed: StackTable | None, *, hold: bool) -> None:
        log = self._log
        if self._watch is None or log.watch is not self._watch:  # a copy of the store may share its frames
            self._watch = log.new_watch()
            self._knows_listed = False
        if listed is not None and not self._knows_listed:
            listed.forget()
            self._knows_listed = True
        lists = listed is not None and listed.has_changed
        if not (hold or lists or self._watch.sees_changes()):
            return
        try:
            changes = self._watch.look(log.tables)
            self.reader.update(changes, None if listed is None else listed.changes(), hold=hold)
        except BaseException:  # the next call begins anew
            self._watch = log.watch = None
            raise

    def __del__(self) -> None:
        """Wait for what reads the memory that goes now."""
        with suppress(Exception):  # at the end of the process there may be no device any more
            self.reader.wait()
