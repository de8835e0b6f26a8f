"""AutoStore: looks at the first tensors, then decides how to store them."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_option, check_kind, says_arguments
from obscodec.codecs import check_spec, new_codec
from obscodec.devices import FrameReader, decoding_device
from obscodec.errors import CorruptStream, ShapeError, SlotError, SpecError
from obscodec.fixed import Fixed
from obscodec.frames import StepWriter
from obscodec.layout import FrameStack, Layout
from obscodec.runtime import LockOrder, PicklableLock, give_back_free_memory, new_chunk
from obscodec.segments import Ints
from obscodec.state import State, array_of, check_range, number_of, part_of
from obscodec.stats import Choice, StoreStats
from obscodec.stores.auto.options import StoreOptions
from obscodec.stores.auto.plan import StoragePlan, find_plan, frames_of_block, n_first_of
from obscodec.stores.ids import FIRST_ID, NO_TENSOR, give_out, leave
from obscodec.stores.store import MAKE_ANOTHER, Store

_MOST_FIRST = 1 << 24
_MOST_SEQUENCES = 1 << 16


@says_arguments
class AutoStore(Store):
    """A store that finds out how its tensors are best stored.

    It keeps the first tensors as they are: 256 of them, or as many as have 16 MB, but 16 at least. They show whether
    tensors are stacks of frames, whether floats are really small integers, and which codec makes them smallest. Then it
    moves them into a store of the kind that fits best, and gives all later tensors to this store.

    The other options are those of a ``Field``. The store decides before it has seen ``decide_after`` tensors if
    ``max_bytes`` has room for fewer. It finds frame stacks only if it sees five tensors of a sequence or more.

    Args:
        layout: shape and dtype of one tensor.
        threads: how many threads share the work on a large batch, None for half of the usable processors.

    Attributes:
        options: the options, checked.

    Raises:
        SpecError: the codec or the budget is malformed, a budget is given for another codec than ``"auto"``, or there
            is no such device or heap.
        BackendUnavailable: the device can't be used; the text names what is missing.
        ShapeError: the tensors don't divide into such a frame stack, or a number is out of range.
        DTypeError: an argument has another type.

    Example:
        >>> store = AutoStore(Layout((84, 84), np.uint8))
        >>> ids = store.append(np.eye(84, dtype=np.uint8)[np.arange(300) % 84, None].repeat(84, axis=1))
        >>> store.choice.chosen.spec
        'delta-rle|lz4:6'
    """

    options: Fixed[StoreOptions] = Fixed(MAKE_ANOTHER)

    def __init__(
        self,
        layout: Layout,
        *,
        threads: int | None = None,
        codec: str | None = StoreOptions.codec,
        frame_stack: FrameStack | int | None = StoreOptions.frame_stack,
        budget: str | None = StoreOptions.budget,
        decide_after: int | None = StoreOptions.decide_after,
        block_frames: int | None = StoreOptions.block_frames,
        max_bytes: int | None = StoreOptions.max_bytes,
        device: str = StoreOptions.device,
        heap: str = StoreOptions.heap,
    ) -> None:
        check_kind("layout", layout, Layout, "a Layout, such as Layout((84, 84), 'uint8')")
        spec = check_spec(codec)
        spec = spec if spec == "auto" else new_codec(spec, layout).spec
        more: dict[str, Any] = {"decide_after": decide_after, "block_frames": block_frames, "max_bytes": max_bytes}
        more |= {"frame_stack": frame_stack, "device": device, "heap": heap}
        self.options = checked = StoreOptions(codec=spec, budget=budget, **more)
        self.layout, self._threads = layout, as_option("threads", threads)
        self.device = decoding = checked.device
        if spec != "auto":
            n = frames_of_block(spec, checked.block_frames)
            decoding = decoding_device(self.device, spec, n, f"tensors of the codec {spec!r}")
        self._kept = checked if decoding == self.device else replace(checked, device=decoding, heap="device")
        if isinstance(checked.frame_stack, FrameStack):
            checked.frame_stack.frame_layout(layout)
        self._plan: StoragePlan | None = None
        self._store: Store | None = None
        self._n_first = n_first_of(layout) if checked.decide_after is None else checked.decide_after
        if checked.max_bytes is not None:
            self._n_first = int(np.clip(checked.max_bytes // max(1, layout.nbytes), 1, self._n_first))
        self._first = self._room(self._n_first)
        self._sequences = np.zeros(self._n_first, np.int64)
        self._n_taken = 0  # how many first tensors have come
        self._gone = np.ones(self._n_first, bool)  # which first tensors have not come, or have no reference any more
        self._moved = np.zeros(self._n_first, np.int64)  # the ids of the first tensors in the chosen store
        self._n_early = 0  # how many first tensors the chosen store still has
        self._lock = PicklableLock(LockOrder.FIRST_TENSORS)
        self._give_back(np.empty(0, np.int64))  # loads a kernel, for which a failed allocation may leave no memory

    @property
    def choice(self) -> Choice | None:
        """The chosen codec and the reasons; None before the store has decided, or if a codec was given."""
        return self._plan.choice if self._plan else None

    def follow(self, plan: StoragePlan) -> None:
        """Keep all tensors as ``plan`` says, whatever the first ones show; nothing happens if the store has decided."""
        with self._lock:
            if self._store is None:
                self._move(plan)

    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """See ``Store.take_in``."""
        tensors, n = tensors if type(tensors) is np.ndarray else self._to_host(tensors), 0
        if self._store is None:
            self.layout.check(tensors)
            if sequences.min(initial=0) < 0:
                raise ShapeError(f"sequences are numbers from 0 on, got {sequences.min()}")
            with self._lock:
                n = self._take_first(tensors, which, sequences, ids)
        if self._store is not None and n == 0:
            self._store.take_in(tensors, which, sequences, ids)
        elif self._store is not None and n < len(ids):
            rest, number = np.unique(which[n:], return_inverse=True)
            self._store.take_in(tensors[rest], number, sequences[rest], ids[n:])

    def step_writer(self, n: int) -> StepWriter | None:
        """See ``Store.step_writer``; None before the store has decided."""
        return None if self._store is None else self._store.step_writer(n)

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """See ``Store.read_into``."""
        if not isinstance(out, np.ndarray) and (self._store is None or self._store.device == "cpu"):
            self._read_via_host(ids, out)
            return
        with self._lock:
            if self._store is None:
                self._check_first(ids)
                out[ids == NO_TENSOR] = 0
                for at, i in enumerate(ids.tolist()):
                    if i != NO_TENSOR:
                        out[at] = self._first[i - FIRST_ID]
                return
        self._store.read_into(self._inner(ids), out)

    def device_reader(self, ids: Ints) -> tuple[FrameReader, Ints]:
        """See ``Store.device_reader``."""
        if self._store is None:
            raise SpecError(
                f"it is not decided yet how tensors are stored: that takes {self._n_first} of them, there are "
                f"{self._n_taken}: store more, or pass decide_after"
            )
        return self._store.device_reader(self._inner(ids))

    def _give_back(self, ids: Ints) -> None:
        """On the way, the id of a first tensor becomes its id in the chosen store."""
        if self._store is not None and not self._n_early:
            self._store._give_back(ids)
            return
        with self._lock:
            if self._store is None:
                self._check_first(ids)
            before = ids.copy()
            try:
                at = leave(ids, FIRST_ID, self._moved, self._gone)
                if at < len(ids):
                    if self._gone[ids[at] - FIRST_ID]:
                        raise SlotError(f"id {ids[at]} is of no tensor in this store")
                    raise SlotError(f"id {ids[at]} is released twice, it stands for one tensor")
                if self._store is not None:
                    self._store._give_back(ids)
                    self._n_early = int(np.count_nonzero(~self._gone))
            except BaseException as error:
                # An interrupted store that left no id in ``ids`` has released them, or does so in its next call.
                if not np.array_equal(ids, before) and (ids.any() or isinstance(error, SlotError)):
                    ids[:] = before
                    self._gone[before[self._are_first(before)] - FIRST_ID] = False
                raise

    def _stats(self) -> StoreStats:
        """See ``Store.stats``; with the choice of the codec."""
        if self._store is not None:
            return replace(self._store.stats(), choice=self.choice)
        codec, of_block = self.options.codec or "auto", self.options.block_frames
        of_block = None if codec == "auto" else frames_of_block(codec, of_block)
        n, nbytes = int(np.count_nonzero(~self._gone)), self._n_taken * self.layout.nbytes
        raw_bytes = n * self.layout.nbytes
        bytes_of = raw_bytes, raw_bytes, nbytes, 0, 0
        return StoreStats(n, *bytes_of, growing_bytes=nbytes, codec=codec, block_frames=of_block, is_decided=False)

    @property
    def _parts(self) -> tuple[Store, ...]:
        """There are none before the store has decided."""
        return () if self._store is None else (self._store,)

    def decide(self) -> None:
        """See ``Store.decide``."""
        with self._lock:
            if self._store is None and self._n_taken:
                self._move_as_found()

    @property
    def memory_bytes(self) -> int:
        """See ``Store.memory_bytes``."""
        return self._n_taken * self.layout.nbytes if self._store is None else self._store.memory_bytes

    def _take_first(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> int:
        """Keep tensors as they are while there is room; decide when the room is full. How many ``ids`` it filled."""
        if self._store is not None:  # another thread was here first
            return 0
        begin = self._n_taken
        n = min(len(ids), self._n_first - begin)
        if n:
            end = begin + n
            np.take(tensors, which[:n], axis=0, out=self._first[begin:end], mode="clip")  # without another copy
            self._sequences[begin:end] = sequences[which[:n]]
            self._n_taken = end
            give_out(ids[:n], FIRST_ID, begin, self._gone)
        if self._n_taken == self._n_first:
            self._move_as_found()
        return n

    def _move_as_found(self) -> None:
        """Choose a store, and move the first tensors into it."""
        plan = find_plan(self._first[: self._n_taken], self._sequences[: self._n_taken], self._kept)
        self._move(plan)

    def _move(self, plan: StoragePlan) -> None:
        """Move the first tensors into a new store; one statement changes this object, so all happens or nothing."""
        store = plan.new_store(self.layout, self._kept, self._threads, first_id=FIRST_ID + self._n_first)
        n, moved = self._n_taken, np.zeros(self._n_first, np.int64)
        kept = np.flatnonzero(~self._gone[:n])
        if len(kept):
            some = slice(None, n) if len(kept) == n else kept  # a slice: no copy
            moved[kept] = store.append(self._first[some], self._sequences[some])
        rest = {"_first": self._first[:0].copy(), "_sequences": self._sequences[:0], "_moved": moved}
        vars(self).update(rest, _n_early=len(kept), _plan=plan, _store=store)
        del rest
        give_back_free_memory()

    def _inner(self, ids: Ints) -> Ints:
        """Ids in the chosen store: the table has those of the first tensors; the others are the same in both stores."""
        if not self._n_early:
            return ids
        inner, first = ids.copy(), (ids >= FIRST_ID) & (ids < FIRST_ID + self._n_first)
        at = ids[first] - FIRST_ID
        if (gone := self._gone[at]).any():
            raise SlotError(f"id {int(at[gone][0]) + FIRST_ID} is of no tensor in this store")
        inner[first] = self._moved[at]
        return inner

    def _room(self, n: int) -> npt.NDArray[np.generic]:
        """An array ``[n, *shape]`` in memory that goes back to the system when it is freed."""
        nbytes = n * self.layout.nbytes
        return self.layout.tensors(new_chunk(max(1, nbytes))[:nbytes].reshape(n, self.layout.nbytes))

    def _are_first(self, ids: Ints) -> npt.NDArray[np.bool_]:
        are_first: npt.NDArray[np.bool_] = (ids >= FIRST_ID) & (ids < FIRST_ID + self._n_first)
        return are_first

    def _check_first(self, ids: Ints) -> None:
        known = self._are_first(ids)
        known[known] = ~self._gone[ids[known] - FIRST_ID]
        known |= ids == NO_TENSOR
        if not known.all():
            raise SlotError(f"id {int(ids[~known][0])} is of no tensor in this store")

    def arguments(self) -> State:
        """See ``Store.arguments``."""
        return {"layout": self.layout, **vars(self.options), "threads": self._threads}

    def _state(self) -> State:
        with self._lock:  # as all of it is at one moment: another thread may decide
            first = self._first[: self._n_taken if self._store is None else 0]
            return {
                "n_first": self._n_first,
                "n_taken": self._n_taken,
                "first": first.copy(),
                "sequences": self._sequences[: len(first)].copy(),
                "gone": self._gone.copy(),
                "moved": self._moved.copy(),
                "plan": self._plan.config() if self._plan else None,
                "store": self._store.state() if self._store else None,
            }

    def _restore(self, state: State) -> None:
        n_first = number_of(state, "n_first", 1, _MOST_FIRST)
        n_taken = number_of(state, "n_taken", 0, n_first)
        self._n_first, self._n_taken = n_first, n_taken
        self._gone = array_of(state, "gone", np.bool_, (n_first,))
        self._moved = array_of(state, "moved", np.int64, (n_first,))
        if state.get("plan") is not None:
            self._plan = StoragePlan.from_config(part_of(state, "plan", dict))
            self._store = self._plan.new_store(self.layout, self._kept, self._threads, first_id=FIRST_ID + n_first)
            self._store.restore(part_of(state, "store", dict))
            self._n_early = n_first - int(np.count_nonzero(self._gone))
            self._first, self._sequences = self._first[:0].copy(), self._sequences[:0]
            return
        first = array_of(state, "first", self.layout.dtype, (n_taken, *self.layout.shape))
        if not self._gone[n_taken:].all():
            raise CorruptStream(f"{n_taken} first tensors have come, more are there")
        self._first, self._sequences = self._room(n_first), np.zeros(n_first, np.int64)
        self._first[:n_taken] = first
        self._sequences[:n_taken] = array_of(state, "sequences", np.int64, (n_taken,))
        check_range("sequences", self._sequences, 0, _MOST_SEQUENCES)

    def __repr__(self) -> str:
        inside = "undecided" if self._store is None else repr(self._store)
        return f"AutoStore({self.layout}, {inside})"
