"""AutoStore: looks at the first tensors, then decides how to store them."""

from __future__ import annotations

import sys
import threading
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import cast

import numpy as np
import numpy.typing as npt

from obscodec.backends import check_place, decoding_device
from obscodec.choice import Choice, parse_budget
from obscodec.chunk import give_back_free_memory, new_chunk
from obscodec.errors import ShapeError, SlotError, SpecError
from obscodec.frame_stack import FrameStack
from obscodec.interrupts import uninterrupted
from obscodec.kernels import moved as kernel
from obscodec.layout import Layout
from obscodec.packing import pack, unpack
from obscodec.plan import Plan, find_plan, frames_of_block
from obscodec.registry import codec as build_codec
from obscodec.segments import Ints
from obscodec.store import NO_TENSOR, Store, StoreStats, each_stream

_MAX_FIRST = 256
_MAX_FIRST_NBYTES = 1 << 23
_MIN_FIRST = 16
_FIRST_ID = 2  # 0 is the zero tensor, and 1 in a NarrowStore the one whose codes are all 0


def check_counts(least: int = 1, **counts: int | None) -> None:
    """Make sure that each option is None or a number of ``least`` or more.

    Raises:
        ShapeError: one is neither; the text has its name.
    """
    for name, n in counts.items():
        if n is not None and (not isinstance(n, Integral) or n < least):
            raise ShapeError(f"{name} must be an integer of {least} or more, or None, got {n!r}")


@dataclass(frozen=True, slots=True)
class AutoStats(StoreStats):
    """What a store holds, and how its codec was chosen.

    Attributes:
        choice: what was chosen, why, and how the other codecs did; None before that, or if the codec was given.
    """

    choice: Choice | None


class AutoStore(Store):
    """A store that finds out how its tensors are best stored.

    The first tensors are kept as they are: 256, or 8 MB of them if that is fewer, but 16 at least. They show whether
    tensors are stacks of frames, whether floats are narrower numbers in disguise, and which codec makes them smallest.
    Then they move to a store made for that, and all that follow go there.

    Args:
        layout: shape and dtype of one tensor.
        codec: a spec, or ``"auto"`` for the smallest codec that is fast enough.
        frame_stack: how tensors are made of frames, None to find out.
        budget: how long reading a batch of 256 frames may take, such as ``"1 ms/batch"``; candidates are then timed.
            Without it, the same tensors always give the same choice.
        decide_after: how many tensors to look at, None for the number above. It decides earlier if ``max_bytes`` has
            room for fewer. After less than five of a stream, frame stacks are not found.
        block_frames: how many frames are encoded together, None for what suits the codec: 16 for ``delta-rle``, 1 for
            others that are given; ``"auto"`` has a number for each that it tries. The larger, the smaller are frames,
            and the more work it is to read a single one.
        max_bytes: the most bytes to reserve for blocks, None for no limit.
        threads: how many threads a large batch is spread over, None for half of the usable processors.
        device: where tensors are decoded, ``"cpu"`` or a GPU such as ``"cuda"``. ``"auto"`` takes a codec that it
            decodes. With one that it does not, and with floats that are narrower numbers, it is given what the CPU
            decodes, and a warning says so.
        heap: where the streams of a GPU are, in its memory, ``"device"``, or in ``"pinned"`` memory of the host.

    Raises:
        SpecError: the codec or the budget is malformed, or there is no such device or heap.
        BackendUnavailable: the device can't be used; the text names what is missing.
        ShapeError: the tensors don't divide into such a frame stack, or ``decide_after`` or ``block_frames`` is no
            integer of 1 or more.

    Example:
        >>> store = AutoStore(Layout((84, 84), np.uint8))
        >>> ids = store.append(np.eye(84, dtype=np.uint8)[np.arange(300) % 84, None].repeat(84, axis=1))
        >>> store.choice.chosen.spec
        'delta-rle'
    """

    def __init__(
        self,
        layout: Layout,
        *,
        codec: str = "auto",
        frame_stack: FrameStack | None = None,
        budget: str | None = None,
        decide_after: int | None = None,
        block_frames: int | None = None,
        max_bytes: int | None = None,
        threads: int | None = None,
        device: str = "cpu",
        heap: str = "device",
    ) -> None:
        check_place(device, heap)
        check_counts(decide_after=decide_after, block_frames=block_frames)
        self.layout = layout
        self.codec = codec if codec == "auto" else build_codec(codec, layout).spec
        self.device = device
        self.heap = heap
        self._decoding = device
        if codec != "auto":
            what = f"tensors of the codec {self.codec!r}"
            self._decoding = decoding_device(device, self.codec, frames_of_block(self.codec, block_frames), what)
        self.frame_stack = frame_stack
        self.budget = budget
        self.block_frames = block_frames
        self.max_bytes = max_bytes
        self.threads = threads
        self._plan: Plan | None = None
        if budget is not None:
            parse_budget(budget)
        if frame_stack is not None:
            frame_stack.frame_layout(layout)
        self._store: Store | None = None
        by_size = np.clip(_MAX_FIRST_NBYTES // max(1, layout.nbytes), _MIN_FIRST, _MAX_FIRST)
        self._n_first = int(by_size if decide_after is None else decide_after)
        if max_bytes is not None:
            self._n_first = int(np.clip(max_bytes // max(1, layout.nbytes), 1, self._n_first))
        self._first = self._room(self._n_first)
        self._streams: list[int] = []
        self._moved = np.zeros(self._n_first, np.int64)  # ids in the store of the first tensors
        self._released = np.zeros(self._n_first, bool)  # which of them are gone
        self._n_early = 0  # how many of them are in the store still
        self._lock = threading.RLock()

    @property
    def choice(self) -> Choice | None:
        """What was chosen, and why; None before that, or if the codec was given."""
        return self._plan.choice if self._plan else None

    def append(self, tensors: npt.NDArray[np.generic], streams: npt.ArrayLike = 0) -> Ints:
        """Store ``[n, *shape]``; see ``Store.append``.

        Raises:
            ShapeError: the tensors have another shape.
            DTypeError: the tensors have another dtype.
            HeapFull: there is not enough room below ``max_bytes``; nothing was stored.
        """
        tensors = self.on_cpu(tensors)
        if self._store is not None:
            return self._store.append(tensors, streams)
        self.layout.check(tensors)
        of_streams = each_stream(streams, len(tensors))
        if of_streams.min(initial=0) < 0:
            raise ShapeError(f"streams are numbers from 0 on, got {of_streams.min()}")
        with uninterrupted(), self._lock:
            begin = len(self._streams)
            n = 0 if self._store is not None else min(len(tensors), self._n_first - begin)
            ids = np.arange(begin, begin + n) + _FIRST_ID
            self._first[begin : begin + n] = tensors[:n]
            self._streams += of_streams[:n].tolist()
            if n and len(self._streams) == self._n_first:
                try:
                    self._move()
                except BaseException:
                    del self._streams[-n:]
                    raise
        if n == len(tensors):
            return ids
        try:
            return np.concatenate([ids, self.append(tensors[n:], of_streams[n:])])
        except BaseException:
            self.release(ids)
            raise

    def replace(self, old: Ints, tensors: npt.NDArray[np.generic], streams: npt.ArrayLike = 0) -> Ints:
        """Store tensors, and give back one reference to each of ``old``; see ``Store.replace``."""
        if self._store is None:
            return super().replace(old, tensors, streams)
        with uninterrupted():
            ids = self._store.replace(self._inner(old, released=True), self.on_cpu(tensors), streams)
            self._forget(old)
        return ids

    def replace_repeated(self, old: Ints, tensors: npt.NDArray[np.generic], which: Ints, streams: Ints) -> Ints:
        """:meth:`replace` by ``tensors[which]``; see ``Store.replace_repeated``."""
        tensors = self.on_cpu(tensors)
        if self._store is None:
            repeated = self._room(len(which))
            np.take(tensors, which, axis=0, out=repeated, mode="clip")  # which copies straight into it
            return self.replace(old, repeated, streams[which])
        with uninterrupted():
            inner = self._inner(old, released=True)
            ids = self._store.replace_repeated(inner, tensors, which, streams)
            self._forget(old)
        return ids

    def adopt_alike(self, other: Store, ids: Ints) -> Ints | None:
        """Take tensors over from a store that has decided in the same way; see ``Store.adopt``.

        A store that has not decided yet decides as the other one did, if both were asked for the same.
        """
        if not isinstance(other, AutoStore) or other._store is None or other._plan is None:
            return None
        if other.layout != self.layout:
            return None
        inner = other._inner(ids)
        with uninterrupted(), self._lock:
            if self._store is None and self._asked == other._asked:
                self._settle(other._plan)
        return None if self._store is None else self._store.adopt_alike(other._store, inner)

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """Decode tensors; see ``Store.read``."""
        if not isinstance(out, np.ndarray) and (self._store is None or self._store.device == "cpu"):
            self.read_on_cpu(ids, out)
            return
        with self._lock:
            if self._store is None:
                self._check_first(ids)
                out[ids == NO_TENSOR] = 0
                for at, i in enumerate(ids.tolist()):
                    if i != NO_TENSOR:
                        out[at] = self._first[i - _FIRST_ID]
                return
        self._store.read_into(self._inner(ids), out)

    def behind(self, ids: Ints) -> tuple[Store, Ints]:
        """See ``Store.behind``."""
        if self._store is None:
            raise SpecError(
                f"it is not decided yet how tensors are stored: that takes {self._n_first} of them, there are "
                f"{len(self._streams)}"
            )
        return self._store.behind(self._inner(ids))

    def release(self, ids: npt.ArrayLike) -> None:
        """Give back one reference to each of ``ids``; 0 among them is left alone.

        Raises:
            SlotError: an id is of no tensor.
        """
        released = np.atleast_1d(np.asarray(ids, np.int64))
        with self._lock:
            if self._store is None:
                self._check_first(released)
                self._check_once(released[released != NO_TENSOR])
                self._released[released[released != NO_TENSOR] - _FIRST_ID] = True
                return
        with uninterrupted():
            self._store.release(self._inner(released, released=True))
            self._forget(released)

    def stats(self) -> AutoStats:
        """What the store holds now, and how its codec was chosen."""
        if self._store is not None:
            return AutoStats(**asdict(self._store.stats()), choice=self.choice)
        n = len(self._streams) - int(np.count_nonzero(self._released))
        nbytes = len(self._streams) * self.layout.nbytes
        return AutoStats(n, n * self.layout.nbytes, n * self.layout.nbytes, nbytes, 0, 0, None)

    @property
    def _asked(self) -> tuple[str, FrameStack | None, str | None, int | None]:
        return self.codec, self.frame_stack, self.budget, self.block_frames

    def _move(self) -> None:
        """Decide, and move the first tensors to the store that they show to be best."""
        plan = find_plan(
            self._first[: len(self._streams)],
            np.array(self._streams),
            codec=self.codec,
            frame_stack=self.frame_stack,
            budget=self.budget,
            block_frames=self.block_frames,
            device=self._decoding,
        )
        self._settle(plan)

    def _settle(self, plan: Plan) -> None:
        """Move the first tensors to a store that is made as planned."""
        first_id = _FIRST_ID + self._n_first
        store = plan.new_store(
            self.layout,
            first_id=first_id,
            max_bytes=self.max_bytes,
            threads=self.threads,
            device=self._decoding,
            heap=self.heap if self._decoding != "cpu" else "device",
        )
        n, streams = len(self._streams), np.array(self._streams, np.int64)
        kept = np.flatnonzero(~self._released[:n])
        some = slice(None, n) if len(kept) == n else kept  # without a copy of all, which malloc would keep
        self._moved[kept] = store.append(self._first[some], streams[some])
        self._released[n:] = True  # what was never given out is of no tensor
        self._first, self._streams = self._first[:0].copy(), []
        self._n_early = len(kept)
        self._plan, self._store = plan, store
        give_back_free_memory()

    def _inner(self, ids: Ints, *, released: bool = False) -> Ints:
        """The ids in the store: those of the first tensors are looked up, all others are the same."""
        if not self._n_early:
            return ids
        inner = np.empty(len(ids), np.int64)
        if (n_known := kernel.follow(ids, _FIRST_ID, self._moved, self._released, inner)) < len(ids):
            raise SlotError(f"id {int(ids[n_known])} is of no tensor in this store")
        if released:
            self._check_once(ids[self._are_first(ids)])
        return inner

    def _forget(self, released: Ints) -> None:
        """Note which of the first tensors are gone; without any left, ids need no look."""
        if self._n_early:
            which = released[self._are_first(released)]
            self._released[which - _FIRST_ID] = True
            self._n_early -= len(which)

    def _room(self, n: int) -> npt.NDArray[np.generic]:
        """``[n, *shape]`` in memory that goes back to the operating system at once; ``malloc`` would keep it."""
        nbytes = n * self.layout.nbytes
        return self.layout.tensors(new_chunk(max(1, nbytes))[:nbytes].reshape(n, self.layout.nbytes))

    def _are_first(self, ids: Ints) -> npt.NDArray[np.bool_]:
        are_first: npt.NDArray[np.bool_] = (ids >= _FIRST_ID) & (ids < _FIRST_ID + self._n_first)
        return are_first

    def _check_first(self, ids: Ints) -> None:
        known = (ids >= _FIRST_ID) & (ids < _FIRST_ID + len(self._streams))
        known[known] = ~self._released[ids[known] - _FIRST_ID]
        known |= ids == NO_TENSOR
        if not known.all():
            raise SlotError(f"id {int(ids[~known][0])} is of no tensor in this store")

    def _check_once(self, ids: Ints) -> None:
        numbers, counts = np.unique(ids, return_counts=True)
        if counts.max(initial=1) > 1:
            raise SlotError(f"id {int(numbers[counts.argmax()])} is released twice, it stands for one tensor")

    def __getstate__(self) -> dict[str, object]:
        state = super().__getstate__()
        return {**state, "_first": pack([self._first[: len(self._streams)]])}

    def __setstate__(self, state: dict[str, object]) -> None:
        (first,) = unpack(cast("bytes", state["_first"]), max_bytes=sys.maxsize)
        vars(self).update(state, _lock=threading.RLock(), _first=first)
        if self._store is None:
            self._first = self._room(self._n_first)
            self._first[: len(first)] = first

    def __repr__(self) -> str:
        inside = "undecided" if self._store is None else repr(self._store)
        return f"AutoStore({self.layout}, {inside})"
