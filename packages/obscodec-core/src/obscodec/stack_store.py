"""StackStore: observations that are stacks of frames, over a store that holds each frame once.

Nearly every stack is a frame and the ones that came before it. So a FrameStore remembers for each frame the one before
it, and a stack is one integer: the id of its newest frame, and how often the stack ends in it. A stack that does not
follow from that is listed in a table, and has a negative id.
"""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.batch_memory import BATCH_MEMORY
from obscodec.device_frames import DeviceFrames
from obscodec.errors import ShapeError, SlotError
from obscodec.frame_reader import FrameReader
from obscodec.frame_stack import FrameStack
from obscodec.frame_store import FrameStore
from obscodec.interrupts import uninterrupted
from obscodec.kernels import stacks as kernel
from obscodec.layout import Layout, Rows
from obscodec.listed_stacks import ListedStacks
from obscodec.segments import Ints
from obscodec.store import Store, StoreStats, each_stream, repeats

_NOTHING = np.empty(0, np.int64)


class StackStore(Store):
    """Stacks of frames, each frame stored once. Safe to use from several threads.

    Args:
        frames: the store of the frames, used by this store alone.
        layout: shape and dtype of one observation.
        frame_stack: how it is made of frames.

    Example:
        >>> stack, layout = FrameStack(depth=4), Layout((4, 84, 84), np.uint8)
        >>> store = StackStore(FrameStore(stack.frame_layout(layout), stack=4), layout, stack)
        >>> observations = np.arange(5, dtype=np.uint8)[:, None, None].repeat(84, 1).repeat(84, 2)
        >>> ids = store.append(np.stack([observations[:4], observations[1:]]))
        >>> bool((store.read(ids)[1] == observations[1:]).all())
        True
    """

    def __init__(self, frames: FrameStore, layout: Layout, frame_stack: FrameStack) -> None:
        if frames.layout != frame_stack.frame_layout(layout):
            raise ShapeError(f"the frames are {frame_stack.frame_layout(layout)}, the store is for {frames.layout}")
        self._stacks_on_device = frames.on_device is not None and frames.on_device.reader.takes(frame_stack)
        if frames.on_device is not None and not self._stacks_on_device:
            warnings.warn(f"{frame_stack} is put together on the CPU and copied to {frames.device!r}", stacklevel=2)
        self.frames = frames
        self.layout = layout
        self.device = frames.device
        self.frame_stack = frame_stack
        self.listed = ListedStacks(frame_stack.depth)
        self._n_stacks = 0
        self._lock = threading.Lock()

    def append(self, tensors: npt.NDArray[np.generic], streams: npt.ArrayLike = 0) -> Ints:
        """Store stacks, ``[n, *shape]``.

        Args:
            tensors: in the order of time for each stream.
            streams: which stream each stack belongs to, ``i64[n]`` or one for all; see ``FrameStore.append``.

        Returns:
            ``i64[n]``, their ids. The caller owns one reference for each.

        Raises:
            ShapeError: the stacks have another shape.
            DTypeError: the stacks have another dtype.
            HeapFull: there is not enough room below ``max_bytes``; nothing was stored.
        """
        return self.replace(_NOTHING, tensors, streams)

    def replace(self, old: Ints, tensors: npt.NDArray[np.generic], streams: npt.ArrayLike = 0) -> Ints:
        """Store stacks, and give back one reference to each of ``old``; see :meth:`append`, :meth:`release`."""
        return self.replace_repeated(old, tensors, np.arange(len(tensors)), each_stream(streams, len(tensors)))

    def replace_repeated(self, old: Ints, tensors: npt.NDArray[np.generic], which: Ints, streams: Ints) -> Ints:
        """:meth:`replace` by ``tensors[which]``; see ``Store.replace_repeated``."""
        depth = self.frame_stack.depth
        tensors = self.on_cpu(tensors)
        rows = self.layout.rows(tensors) if self.frame_stack.axis == 0 else self._rows(tensors)
        rows = rows.reshape(len(tensors) * depth, self.frames.layout.nbytes)
        ids = np.empty(len(which), np.int64)
        with uninterrupted(), self._lock:
            old_frames, n_listed = self._expand(old)
            listed = _NOTHING
            if n_listed:
                listed, counts = np.unique(-1 - old[old < 0], return_counts=True)
                if counts.max() > 1:
                    raise SlotError(
                        f"id {-1 - int(listed[counts.argmax()])} is released twice, it stands for one stack"
                    )
            frames = self.frames.replace_rows(old_frames.reshape(-1), rows, streams.repeat(depth)).reshape(-1, depth)
            frames = frames[which]
            if len(which) > len(tensors):
                self.frames.retain(frames[repeats(which, len(tensors))].reshape(-1))
            if n_listed:
                self.listed.drop(listed)
            if kernel.link(frames, self.frames.previous, ids):
                self._list(frames, ids)
            self._n_stacks += int(np.count_nonzero(ids)) - int(np.count_nonzero(old))
        return ids

    def adopt_alike(self, other: Store, ids: Ints) -> Ints | None:
        """Take stacks over from a store of equal stacks, frame by frame; see ``FrameStore.adopt_alike``."""
        if not isinstance(other, StackStore) or (other.layout, other.frame_stack) != (self.layout, self.frame_stack):
            return None
        with other._lock:
            frames, _ = other._expand(ids)
        adopted = np.empty(len(ids), np.int64)
        with uninterrupted():
            found = self.frames.adopt_alike(other.frames, frames.reshape(-1))
            if found is None:
                return None
            with self._lock:
                stacks = found.reshape(frames.shape)
                if kernel.link(stacks, self.frames.previous, adopted):
                    self._list(stacks, adopted)
                self._n_stacks += int(np.count_nonzero(adopted))
        return adopted

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """Decode stacks; see ``Store.read``. Frames that several of them share are decoded once."""
        if not isinstance(out, np.ndarray):
            self._read_on_device(ids, out)
            return
        frames = self._expand(ids)[0].reshape(-1)
        if self.frame_stack.axis == 0:
            self.frames.read_into(frames, self.frame_stack.split(out))
        else:
            self._join(self.frames.read(frames, BATCH_MEMORY.array(len(frames), self.frames.layout)), out)

    def update_device(self) -> FrameReader:
        """See ``Store.update_device``."""
        on_device = self._on_device
        if on_device is None:
            return super().update_device()
        with self._lock:
            on_device.update(self.listed)
        return on_device.reader

    def release(self, ids: npt.ArrayLike) -> None:
        """Give back one reference to each of ``ids``; 0 among them is left alone.

        Raises:
            SlotError: an id is of no stack.
        """
        self.replace(np.atleast_1d(np.asarray(ids, np.int64)), np.empty((0, *self.layout.shape), self.layout.dtype))

    def stats(self) -> StoreStats:
        """What the store holds now."""
        frames = self.frames.stats()
        return replace(
            frames,
            n_tensors=self._n_stacks,
            raw_bytes=self._n_stacks * self.layout.nbytes,
            table_bytes=frames.table_bytes + self.listed.nbytes,
        )

    def _list(self, frames: npt.NDArray[np.int64], ids: Ints) -> None:
        """List the stacks that have the id -1, and give them ids of their own."""
        which = np.flatnonzero(ids < 0)
        ids[which] = -1 - self.listed.add(frames[which])

    @property
    def _on_device(self) -> DeviceFrames | None:
        return self.frames.on_device if self._stacks_on_device else None

    def _read_on_device(self, ids: Ints, out: Any) -> None:
        on_device = self._on_device
        if on_device is None:
            self.read_on_cpu(ids, out)
            return
        with self._lock:
            frames, _ = self._expand(ids)
            on_device.read(ids, out, frames=frames.reshape(-1), stack=self.frame_stack, listed=self.listed)

    def _expand(self, ids: Ints) -> tuple[npt.NDArray[np.int64], int]:
        """The frames of stacks, ``i64[n, depth]``, and how many of these are listed in the table."""
        frames = np.empty((len(ids), self.frame_stack.depth), np.int64)
        n_listed = kernel.expand(ids, self.frames.previous, self.listed.frames, frames)
        if n_listed < 0:
            raise SlotError(f"id {int(ids[-1 - n_listed])} is of no stack in this store")
        return frames, n_listed

    def _join(self, frames: npt.NDArray[np.generic], out: npt.NDArray[np.generic]) -> None:
        """``out[...] = self.frame_stack.join(frames)``, which is slow where a pixel is one byte of each frame."""
        depth = self.frame_stack.depth
        if depth in (2, 4, 8) and frames.itemsize * frames.shape[1] == 1:
            size = self.frames.layout.nbytes
            pixels = out.reshape(len(out), size * depth).view(f"u{depth}")
            kernel.interleave(frames.reshape(len(out), depth, size).view(np.uint8), pixels)
        else:
            out[...] = self.frame_stack.join(frames)

    def _rows(self, tensors: npt.NDArray[np.generic]) -> Rows:
        self.layout.check(tensors)  # complains of a stack, not of a frame
        return self.frames.layout.rows(self.frame_stack.split(tensors))

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __repr__(self) -> str:
        return f"StackStore({self.frames!r}, {self.layout}, {self.frame_stack})"
