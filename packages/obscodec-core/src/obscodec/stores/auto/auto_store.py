"""AutoStore: looks at the first tensors, then decides in the background how to store them."""

import os
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_option, check_kind, says_arguments
from obscodec.codecs import check_spec, new_codec
from obscodec.devices import FrameReader, decoding_device
from obscodec.errors import CorruptStream, ShapeError, SlotError, SpecError
from obscodec.fixed import Fixed
from obscodec.frames import FrameLog, HasLog, LogClosed, StepWriter
from obscodec.layout import FrameStack, Layout
from obscodec.runtime import LockOrder, PicklableLock
from obscodec.segments import Ints
from obscodec.state import State, number_of, part_of
from obscodec.stats import Choice, Look, StoreStats
from obscodec.stores.auto.ahead import NOW, prepare
from obscodec.stores.auto.first_tensors import FirstTensors, Part, n_shown_of
from obscodec.stores.auto.looks import Looks
from obscodec.stores.auto.move import Move
from obscodec.stores.auto.options import StoreOptions
from obscodec.stores.auto.plan import StoragePlan, find_plan, frames_of_block
from obscodec.stores.auto.succession import Succession, logs_of, n_stores, without_empty
from obscodec.stores.ids import FIRST_ID
from obscodec.stores.store import MAKE_ANOTHER, Store, store_of

_MOST_FIRST, _MOST_NBYTES = 1 << 17, 1 << 30  # first tensors
_MOST_IDS = 1 << 24
_N_NEWEST, _LEAST_NEWEST = 64, 16  # frames to look at again
_MOST_STORES = 8  # with tensors of different times
_ROOM = 1 << 12  # ids, and rows, for what comes while another store is made


@says_arguments
class AutoStore(Store):
    """A store that finds out how its tensors are best stored.

    It keeps the first tensors as they are: 256 of them, or as many as have 16 MB, but 16 at least; or up to eight times
    as many, until half as many differ from all before them. They show whether tensors are stacks of frames, whether
    floats are really small integers, and which codec makes them smallest. A thread in the background chooses the store
    of the kind that fits best, and moves them there. Tensors that come meanwhile wait as they are, too, up to 1 GiB of
    them; all later ones go to the chosen store. :meth:`decide` waits until all have moved. If the choice or the move
    fails, the next call raises what it was, and it begins anew.

    If it chose the codec, it looks again at the newest frames, in the background, whenever twice as many were encoded,
    or they take twice or half the bytes. If another codec saves a quarter by then, new tensors are stored with it; the
    others stay as they are until they are released. A store with ``max_bytes``, or on a GPU, does not look again.

    The other options are those of a ``Field``. With ``decide_after`` it looks at so many tensors, whatever they are, or
    at fewer if ``max_bytes`` has no room for them. It finds frame stacks only if it sees five tensors of a sequence or
    more.

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
        >>> store.decide()
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
        n_first, most_alike = n_shown_of(layout)
        if checked.decide_after is not None:
            n_first = most_alike = checked.decide_after
        most = (_MOST_NBYTES if checked.max_bytes is None else checked.max_bytes) // max(1, layout.nbytes)
        if checked.max_bytes is not None:
            n_first = most_alike = int(np.clip(most, 1, n_first))
        self._n_shown = n_first, most_alike
        self._first = FirstTensors(layout, int(np.clip(most, most_alike, max(_MOST_FIRST, n_first))), *self._n_shown)
        self._plan: StoragePlan | None = None
        self._store: Store | None = None  # the chosen one, to which first tensors move
        self._last: Store | None = None  # the chosen one, as soon as all of them have moved
        self._move = Move(self)
        self._looks_again = checked.max_bytes is None and self._kept.device == "cpu"
        self._last_look: Look | None = None
        self.log: FrameLog | None = None  # that of new frames, for step writers
        self._lock = PicklableLock(LockOrder.FIRST_TENSORS)
        if os.environ.get(NOW) == "now":
            prepare()
        self._give_back(np.empty(0, np.int64))  # loads a kernel, for which a failed allocation may leave no memory

    @property
    def choice(self) -> Choice | None:
        """The chosen codec and the reasons; None before the store has decided, or if a codec was given."""
        return self._plan.choice if self._plan else None

    def follow(self, plan: StoragePlan) -> None:
        """Keep all tensors as ``plan`` says, whatever the first ones show; nothing happens if the store has decided."""
        self._move.begin(plan)
        self._move.wait()

    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """See ``Store.take_in``. If as many first tensors wait as may, it waits until they have moved."""
        tensors = tensors if type(tensors) is np.ndarray else self._to_host(tensors)
        while (store := self._last) is not None:
            try:
                store.take_in(tensors, which, sequences, ids)
                return
            except LogClosed:
                with self._lock:  # until another store has taken its place
                    pass
        self.layout.check(tensors)
        if sequences.min(initial=0) < 0:
            raise ShapeError(f"sequences are numbers from 0 on, got {sequences.min()}")
        n = self._take_first(tensors, which, sequences, ids)
        if n < len(ids):  # all first tensors have moved
            rest, number = np.unique(which[n:], return_inverse=True)
            self._chosen.take_in(tensors[rest], number, sequences[rest], ids[n:])

    def step_writer(self, n: int) -> StepWriter | None:
        """See ``Store.step_writer``; None as long as first tensors wait."""
        writer = None if self._last is None else self._last.step_writer(n)
        if writer is not None:
            writer.owner = cast("HasLog", self)  # it has a log by now
        return writer

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """See ``Store.read_into``."""
        store = self._last
        if not isinstance(out, np.ndarray) and (store is None or store.device == "cpu"):
            self._read_via_host(ids, out)
            return
        if store is not None:
            store.read_into(self._first.inner(ids), out)
            return
        with self._lock:
            here = self._are_here(ids)
            at, inner = np.flatnonzero(here), self._first.inner(ids[~here])
            self._first.read(ids[at], at, out)
        if len(inner):
            moved = np.empty((len(inner), *self.layout.shape), self.layout.dtype)
            self._chosen.read_into(inner, moved)
            out[~here] = moved

    def device_reader(self, ids: Ints) -> tuple[FrameReader, Ints]:
        """See ``Store.device_reader``. If the first tensors are about to move, it waits until they have."""
        if self._last is None:
            self._move.wait()
        if self._last is None:
            raise SpecError(
                f"it is not decided yet how tensors are stored: that takes {self._n_shown[0]} of them, more while most "
                f"are alike, and there are {self._first.n}: store more, or pass decide_after, and call decide()"
            )
        return self._last.device_reader(self._first.inner(ids))

    def _give_back(self, ids: Ints) -> None:
        """On the way, the id of a first tensor becomes its id in the chosen store."""
        if self._last is not None and not self._first.n_left:
            self._last._give_back(ids)
            return
        with self._lock:
            self._are_here(ids)
            before = ids.copy()
            try:
                self._first.leave(ids)
                if self._store is not None:
                    self._store._give_back(ids)
                    self._first.count_left()
            except BaseException as error:
                # An interrupted store that left no id in ``ids`` has released them, or does so in its next call.
                if not np.array_equal(ids, before) and (ids.any() or isinstance(error, SlotError)):
                    ids[:] = before
                    self._first.stay(before)
                raise

    def _stats(self) -> StoreStats:
        """See ``Store.stats``; with the choice of the codec."""
        with self._lock:
            store, n, nbytes = self._store, self._first.n_waiting, self._first.nbytes
            raw_bytes = n * self.layout.nbytes
            if store is None:
                codec, of_block = self.options.codec or "auto", self.options.block_frames
                of_block = None if codec == "auto" else frames_of_block(codec, of_block)
                found = StoreStats(n, raw_bytes, raw_bytes, nbytes, 0, 0, codec=codec, block_frames=of_block)
                return replace(found, growing_bytes=nbytes, is_decided=False)
            moved = store.stats()
        return replace(
            moved,
            n_tensors=moved.n_tensors + n,
            raw_bytes=moved.raw_bytes + raw_bytes,
            live_bytes=moved.live_bytes + raw_bytes,
            reserved_bytes=moved.reserved_bytes + nbytes,
            growing_bytes=moved.growing_bytes + nbytes,
            choice=self.choice,
            is_decided=self.has_moved,
            last_look=self._last_look,
        )

    @property
    def _parts(self) -> tuple[Store, ...]:
        """There are none before the store has decided."""
        return () if self._store is None else (self._store,)

    def decide(self) -> None:
        """See ``Store.decide``."""
        if self._first.n:
            self._move.begin()
            self._move.wait()

    @property
    def memory_bytes(self) -> int:
        """See ``Store.memory_bytes``."""
        return self._first.nbytes + (0 if self._store is None else self._store.memory_bytes)

    @property
    def has_moved(self) -> bool:
        """Whether all first tensors are in the chosen store."""
        return self._last is not None

    def choose(self, plan: StoragePlan | None) -> None:
        """Make the store that keeps all tensors as ``plan`` says, or else as the first ones show, unless there is one.

        Called by its ``Move``. It takes no lock while it tries codecs.
        """
        with self._lock:
            if self._store is not None:
                return
            tensors, sequences = self._first.shown()
        prepare()
        looks_again = plan is None and self._looks_again
        if plan is None:
            plan = find_plan(tensors, sequences, self._kept)
        with self._lock:
            self._first.limit()
            if self._store is None:
                store = plan.new_store(self.layout, self._kept, self._threads, first_id=FIRST_ID + self._first.most)
                vars(self).update(_plan=plan, _store=store, _looks_again=looks_again)

    def move_some(self) -> bool:
        """Move some first tensors to the chosen store; whether others wait. Called by its ``Move``, with its lock."""
        with self._lock:
            part = self._first.next_part()
            if part is not None and part.end == self._first.n:  # the last one: nobody stores others meanwhile
                self._move_part(part)
                part = None
            if part is None:
                self._change(self._chosen)
                self._first.forget()
                return False
        self._move_part(part)
        return True

    def _move_part(self, part: Part) -> None:
        ids = self._chosen.append(part.tensors, part.sequences)
        try:
            with self._lock:
                self._first.move(part, ids)
        except BaseException:
            if self._first.n_moved < part.end:
                self._chosen._give_back(ids)
            raise
        self._chosen._give_back(self._first.dead)

    def _change(self, store: Store, **others: object) -> None:
        """Have a store take all tensors from now on, in one step; it may be the one that does."""
        log, plan = logs_of(store)[0], others.get("_plan", self._plan)
        assert isinstance(plan, StoragePlan)
        if self._looks_again and plan.choice is not None:
            Looks(self, log, self._n_shown[0], plan.choice.chosen.frame_bytes)
        vars(self).update(_store=store, _last=store, log=log, **others)

    def look(self, frame_bytes: float) -> None:
        """Look again at how tensors are stored; called by its ``Looks``, in the background.

        ``frame_bytes``: what the newest frames take, on average.
        """
        store, plan = self._chosen, self._plan
        assert plan is not None
        if (needed := without_empty(store)) is not store:
            with self._lock:
                self._change(needed)  # nobody can get an id of the others any more
            store = needed
        log = logs_of(store)[0]
        newest = log.newest(_N_NEWEST)
        if len(newest.rows) < _LEAST_NEWEST:
            return
        look = replace(plan.followed_by(newest, self.layout, self._kept, frame_bytes), n_frames=log.encoded[0])
        if not look.is_taken or n_stores(store) == _MOST_STORES:
            self._last_look = replace(look, is_taken=False)
            return
        best = look.choice.chosen
        plan = replace(plan, spec=best.spec, block_frames=best.block_frames, choice=look.choice)
        self._succeed(store, plan, look)

    def _succeed(self, before: Store, plan: StoragePlan, look: Look) -> None:
        """Have a new store take the place of another one, which is closed."""
        ends = [log.ends for log in logs_of(before)]
        first_id, first_row = (max(end[k] for end in ends) for k in range(2))
        first_id, first_row = first_id + first_id // 8 + _ROOM, first_row + first_row // 8 + _ROOM
        depth, times = plan.frame_stack.depth if plan.frame_stack else 1, 2 if plan.narrow else 1
        after = plan.new_store(self.layout, self._kept, self._threads, first_id=first_id, first_row=first_row)
        store = Succession(after, before, times * depth * first_id, times * first_row)
        with self.changing, self._lock:
            closed = [log for log in logs_of(before) if log.close(first_id, first_row)]
            try:
                if len(closed) == len(ends):  # else many tensors came meanwhile
                    self._change(store, _plan=plan, _last_look=look)
            finally:
                if self._store is before:
                    for log in closed:
                        log.reopen()

    @property
    def _chosen(self) -> Store:
        assert self._store is not None
        return self._store

    def _are_here(self, ids: Ints) -> npt.NDArray[np.bool_]:
        """Which tensors wait here; SlotError for an id of no tensor, as far as that is known here."""
        here = self._first.are_here(ids)
        if self._store is None and not here.all():
            raise SlotError(f"id {int(ids[~here][0])} is of no tensor in this store")
        return here

    def _take_first(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> int:
        """Keep tensors as they are, as long as others wait and there is room. How many ``ids`` it filled."""
        self._move.check()
        with self._lock:
            if self._last is not None:  # since the caller has looked
                return 0
            first = self._first
            n = min(len(ids), first.most - first.n)
            first.take(tensors, which[:n], sequences, ids[:n])
            is_due = self._store is not None or first.show_enough
        if is_due:
            self._move.begin()
        if n < len(ids):
            self._move.wait()
        return n

    def arguments(self) -> State:
        """See ``Store.arguments``."""
        return {"layout": self.layout, **vars(self.options), "threads": self._threads}

    def _state(self) -> State:
        with self._move.lock, self._lock:  # as all of it is at one moment
            return {
                **self._first.state(),
                "plan": self._plan.config() if self._plan else None,
                "store": self._store.state() if self._store else None,
                "succession": self._store.arguments() if isinstance(self._store, Succession) else None,
            }

    def _restore(self, state: State) -> None:
        most = number_of(state, "n_first", 1, _MOST_IDS)
        self._first = FirstTensors(self.layout, most, *self._n_shown)
        self._first.restore(state)
        if state.get("plan") is None:
            return
        self._plan = StoragePlan.from_config(part_of(state, "plan", dict))
        if state.get("succession") is None:
            store = self._plan.new_store(self.layout, self._kept, self._threads, first_id=FIRST_ID + most)
        else:
            made = store_of(Succession.__name__, part_of(state, "succession", dict))
            assert made is not None
            store = made
            if store.layout != self.layout:
                raise CorruptStream(f"the stores of an AutoStore are for {self.layout}, got {store.layout}")
        store.restore(part_of(state, "store", dict))
        self._store = store
        if self._first.n_moved == self._first.n:
            self._change(store)

    def __repr__(self) -> str:
        inside = "undecided" if self._store is None else repr(self._store)
        return f"AutoStore({self.layout}, {inside})"
