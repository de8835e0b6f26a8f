"""DeviceFrames: has a device decode the frames of a FrameStore."""

from contextlib import suppress
from typing import Any

from obscodec.devices import FrameReader
from obscodec.frames.frame_log import FrameLog
from obscodec.frames.frame_watch import FrameWatch
from obscodec.frames.stack_table import StackTable
from obscodec.layout import FrameStack
from obscodec.segments import Ints


class DeviceFrames:
    """Keeps copies of the tables of a log on a device up to date, for the reader that decodes frames there.

    Safe to use from several threads.
    """

    def __init__(self, log: FrameLog, reader: FrameReader) -> None:
        self.reader = reader
        self._log = log
        self._watch: FrameWatch | None = None
        self._knows_listed = False  # whether the reader was told of listed stacks since the watch began

    def update(self, listed: StackTable | None = None) -> None:
        """Bring the copies on the device up to date, for kernels that others queue until the next call.

        ``listed`` are always the listed stacks of one StackStore, or None.

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
        """Decode frames, or stacks of frames; see ``FrameReader.read`` for ``ids``, ``out``, ``stack`` and more errors.

        ``frames`` are the ids of all frames that are needed. See :meth:`update` for ``listed``.

        Raises:
            SlotError: an id is of no frame.
            HeapFull: the device has not enough memory.
        """
        with self._log.lock, self.reader.on_stream_of(out):
            self._log.check(frames)
            self._update(listed, hold=False)
            self.reader.read(ids, out, stack)

    def _update(self, listed: StackTable | None, *, hold: bool) -> None:
        log = self._log
        if self._watch is None or log.watch is not self._watch:  # a copy of the store may share the log, and watch it
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
        except BaseException:  # the next call sends everything again
            self._watch = log.watch = None
            raise

    def __del__(self) -> None:
        """Wait until kernels no longer read the memory, which goes now."""
        with suppress(Exception):  # at the end of the process there may be no device any more
            self.reader.wait()
