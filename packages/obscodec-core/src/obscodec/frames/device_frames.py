"""DeviceFrames: the frames of a FrameStore on a device, where they are decoded."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from obscodec.devices import FrameReader
from obscodec.frames.frame_log import Blocks
from obscodec.frames.frame_watch import FrameWatch
from obscodec.frames.stack_table import ListedStacks
from obscodec.layout import FrameStack
from obscodec.segments import Ints


class DeviceFrames:
    """Has a device know of the frames of a store what it needs to decode them. Safe to use from several threads.

    Args:
        blocks: the blocks of the store, which know of this one too.
        reader: what decodes them.

    Attributes:
        reader: that.
    """

    def __init__(self, blocks: Blocks, reader: FrameReader) -> None:
        self.reader = reader
        self._blocks = blocks
        self._watch: FrameWatch | None = None
        self._knows_listed = False  # whether the reader was told of listed stacks since then

    def update(self, listed: ListedStacks | None = None) -> None:
        """Have the device know what there is now, for kernels that others queue until the next call.

        Args:
            listed: stacks that are listed, whose lock is held; always those of one StackStore, or None.

        Raises:
            HeapFull: the device has not enough memory.
        """
        with self._blocks.lock:
            self._update(listed, hold=True)

    def read(
        self,
        ids: Ints,
        out: Any,
        *,
        frames: Ints,
        stack: FrameStack | None = None,
        listed: ListedStacks | None = None,
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
        with self._blocks.lock, self.reader.on_stream_of(out):
            self._blocks.check(frames)
            self._update(listed, hold=False)
            self.reader.read(ids, out, stack)

    def _update(self, listed: ListedStacks | None, *, hold: bool) -> None:
        blocks = self._blocks
        if self._watch is None or blocks.watch is not self._watch:  # a copy of the store may share its blocks
            self._watch = blocks.watch = FrameWatch(blocks.heap)
            self._knows_listed = False
        if listed is not None and not self._knows_listed:
            listed.forget()
            self._knows_listed = True
        lists = listed is not None and listed.has_changed
        if not (hold or lists or self._watch.sees_changes(blocks.open)):
            return
        try:
            changes = self._watch.look(blocks.coder, blocks.open, blocks.tables)
            self.reader.update(changes, None if listed is None else listed.changes(), hold=hold)
        except BaseException:  # the next call begins anew
            self._watch = blocks.watch = None
            raise

    def __del__(self) -> None:
        """Wait for what reads the memory that goes now."""
        with suppress(Exception):  # at the end of the process there may be no device any more
            self.reader.wait()
