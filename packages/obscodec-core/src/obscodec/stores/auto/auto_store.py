"""AutoStore: looks at the first tensors, then decides in the background how to store them."""

import os
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_option, says_arguments
from obscodec.codecs import check_spec, new_codec
from obscodec.devices import FrameReader, decoding_device
from obscodec.errors import CorruptStream, ShapeError, SlotError, SpecError
from obscodec.fixed import Fixed
from obscodec.frames import FrameLog, HasLog, LogClosed, StepWriter
from obscodec.layout import FrameStack, Layout, same_values
from obscodec.runtime import LockOrder, PicklableLock
from obscodec.segments import Ints
from obscodec.state import State, number_of, part_of
from obscodec.stats import Choice, Look, StoreStats
from obscodec.stores.auto.ahead import NOW, load_ahead, prepare
from obscodec.stores.auto.candidates import frames_of_block
from obscodec.stores.auto.first_tensors import FirstTensors, Part
from obscodec.stores.auto.looks import Looks
from obscodec.stores.auto.move import Move
from obscodec.stores.auto.options import StoreOptions
from obscodec.stores.auto.plan import StoragePlan, find_plan
from obscodec.stores.auto.shown import Shown
from obscodec.stores.auto.succession import MOST_STORES, Member, Succession, restored
from obscodec.stores.ids import FIRST_ID
from obscodec.stores.store import MAKE_ANOTHER, Store
from obscodec.stores.stored_part import StoredPart

_MOST_FIRST, _MOST_NBYTES = 1 << 17, 1 << 30  # first tensors
_MORE_EVER = 8  # times as many may come as may wait: a small buffer releases most of them meanwhile
_MOST_IDS = 1 << 24
_N_NEWEST, _LEAST_NEWEST = 64, 16  # frames to look at again


@says_arguments
class AutoStore(Store):
    """A store that finds out how its tensors are best stored.

    It keeps the first tensors as they are: 256 of them, or as many as have 16 MB, but 16 at least; or up to eight times
    as many, until half as many differ from all before them. They show whether tensors are stacks of frames, whether
    floats are really small integers (a GPU decodes them as they are), and which codec makes them smallest. A thread in
    the background chooses the store of the kind that fits best, and moves them there. Tensors that come meanwhile wait
    as they are, too, up to 1 GiB of them; all later ones go to the chosen store. :meth:`decide` waits until all have
    moved. If the choice or the move fails, the next call raises what it was, and it begins anew.

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
        recent: int | None = StoreOptions.recent,
        interleaved: bool = StoreOptions.interleaved,
    ) -> None:
        Layout.require(layout)
        spec = check_spec(codec)
        spec = spec if spec == "auto" else new_codec(spec, layout).spec
        more: dict[str, Any] = {"decide_after": decide_after, "block_frames": block_frames, "max_bytes": max_bytes}
        more |= {"frame_stack": frame_stack, "device": device, "heap": heap}
        more |= {"recent": recent, "interleaved": interleaved}
        self.options = checked = StoreOptions(codec=spec, budget=budget, **more)
        self.layout, self._threads = layout, as_option("threads", threads)
        self.device = decoding = checked.device
        if spec != "auto":
            n = frames_of_block(spec, checked.block_frames, self.device)
            decoding = decoding_device(self.device, spec, n, f"tensors of the codec {spec!r}")
        self._kept = checked if decoding == self.device else replace(checked, device=decoding, heap="device")
        if isinstance(checked.frame_stack, FrameStack):
            checked.frame_stack.frame_layout(layout)
        enough = checked.decide_after
        shown = Shown.of(layout) if enough is None else Shown(enough, enough)
        most = (_MOST_NBYTES if checked.max_bytes is None else checked.max_bytes) // max(1, layout.nbytes)
        if checked.max_bytes is not None:
            enough = int(np.clip(most, 1, shown.n))
            shown = Shown(enough, enough)
        self._shown, self._most_waiting = shown, int(np.clip(most, shown.most, max(_MOST_FIRST, shown.n)))
        self._first = FirstTensors(layout, _MORE_EVER * self._most_waiting, self._most_waiting, shown)
        self._members: tuple[Member, ...] = ()  # the chosen stores, the oldest first, to which first tensors move
        self._newest: Store  # the last one, as soon as there is one
        self._store: Store | Succession | None = None  # all of them
        self._last: Store | Succession | None = None  # the same, as soon as all first tensors have moved
        self._move = Move(self)
        self._looks_again = checked.max_bytes is None and self._kept.device == "cpu"
        self._last_look: Look | None = None
        self._n_before = 0  # frames that were encoded before the newest store took tensors
        self.log: FrameLog | None = None  # that of new frames, for step writers
        self._lock = PicklableLock(LockOrder.FIRST_TENSORS)
        load_ahead()
        if os.environ.get(NOW) == "now":
            prepare()

    @property
    def choice(self) -> Choice | None:
        """The chosen codec and the reasons; None before the store has decided, or if a codec was given."""
        return self._members[-1].plan.choice if self._members else None

    def follow(self, plan: StoragePlan) -> None:
        """Keep all tensors as ``plan`` says, whatever the first ones show; nothing happens if the store has decided."""
        self._move.begin(plan)
        self._move.wait()

    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """See ``Store.take_in``. If as many first tensors wait as may, it waits until they have moved."""
        tensors = tensors if type(tensors) is np.ndarray else self._to_host(tensors)
        while self._last is not None:
            try:
                self._newest.take_in(tensors, which, sequences, ids)
                return
            except LogClosed:
                with self._lock:  # until another store has taken its place
                    self._members[-1].reopen()  # after a fork there may be nobody to do so
        self.layout.check(tensors)
        if sequences.min(initial=0) < 0:
            raise ShapeError(f"sequences are numbers from 0 on, got {sequences.min()}")
        n = self._take_first(tensors, which, sequences, ids)
        if n < len(ids):  # all first tensors have moved
            rest, number = np.unique(which[n:], return_inverse=True)
            self.take_in(tensors[rest], number, sequences[rest], ids[n:])

    def step_writer(self, n: int) -> StepWriter | None:
        """See ``Store.step_writer``; None as long as first tensors wait."""
        writer = None if self._last is None else self._newest.step_writer(n)
        if writer is not None:
            writer.owner = cast("HasLog", self)  # it has a log by now
        return writer

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """See ``Store.read_into``."""
        store = self._last
        if not isinstance(out, np.ndarray) and (store is None or self._newest.device == "cpu"):
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
            self._newest.read_into(inner, moved)
            out[~here] = moved

    def parts(self, ids: Ints) -> list[StoredPart]:
        """See ``Store.parts``."""
        if (store := self._last) is not None:
            return store.parts(self._first.inner(ids))
        with self._lock:
            here = self._are_here(ids)
            at, inner = np.flatnonzero(here), self._first.inner(ids[~here])
            tensors = np.empty((len(at), *self.layout.shape), self.layout.dtype)
            self._first.read(ids[at], np.arange(len(at)), tensors)
        found = [StoredPart.plain(at, self.layout, tensors)]
        moved = self._newest.parts(inner) if len(inner) else []
        return found + [of.at(np.flatnonzero(~here)) for of in moved]

    @property
    def has_device_reader(self) -> bool:
        """See ``Store.has_device_reader``."""
        return self.has_moved and self._newest.has_device_reader

    def device_reader(self, ids: Ints) -> tuple[FrameReader, Ints]:
        """See ``Store.device_reader``. If the first tensors are about to move, it waits until they have."""
        if self._last is None:
            self._move.wait()
        if self._last is None:
            raise SpecError(f"it is not decided yet how tensors are stored: {self._waits_for}")
        return self._newest.device_reader(self._first.inner(ids))

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
                if not same_values(ids, before) and (ids.any() or isinstance(error, SlotError)):
                    self._first.stay(ids, before)
                raise
            self._first.free_gone(before)

    def _stats(self) -> StoreStats:
        with self._lock:
            store, n, nbytes = self._store, self._first.n_waiting, self._first.nbytes
            raw_bytes = n * self.layout.nbytes
            first = StoreStats(n, raw_bytes, raw_bytes, nbytes, 0, 0, growing_bytes=nbytes)
            if store is None:
                codec, of_block = self.options.codec or "auto", self.options.block_frames
                of_block = None if codec == "auto" else frames_of_block(codec, of_block, self._kept.device)
                return replace(first, codec=codec, block_frames=of_block, is_decided=False, waits_for=self._waits_for)
            moved, choice, look, is_decided = store.stats(), self.choice, self._last_look, self.has_moved
        both = moved.with_others([first], self.layout.nbytes)
        return replace(both, choice=choice, is_decided=is_decided, last_look=look)

    @property
    def _waits_for(self) -> str:
        if self._move.is_under_way:
            return "the first tensors are looked at in the background, once kernels are compiled; decide() waits for it"
        if self._shown.are_enough(self._first.n):  # after a failure, or a fork
            return "it looks at the first tensors when the next one comes; decide() chooses now"
        if (more := self._shown.n - self._first.n) > 0:
            return f"it waits for {more:,} more tensors; decide() chooses now"
        most = self._shown.n_needed - self._first.n
        return f"it waits for tensors that differ, for {most:,} at most; decide() chooses now"

    @property
    def _parts(self) -> tuple[Store, ...]:
        """The oldest first; there are none before the store has decided."""
        return tuple(member.store for member in self._members)

    def decide(self) -> None:
        """See ``Store.decide``."""
        if self._first.n:
            self._move.begin()
            self._move.wait()

    @property
    def memory_bytes(self) -> int:
        """See ``Store.memory_bytes``."""
        return self._first.nbytes + super().memory_bytes

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
            which = self._shown.numbers(self._first.n)
        tensors, sequences = self._first.copies(which)
        prepare()
        looks_again = plan is None and self._looks_again
        if plan is None:
            plan = find_plan(tensors, sequences, self._kept)
        with self._lock:
            self._first.limit()
            first_id = FIRST_ID + self._first.most
        # It may load kernels; nobody waits for that.
        member = Member.new(plan, self.layout, self._kept, self._threads, first_id, first_id)
        with self._lock:
            if self._store is None:
                store = member.store
                vars(self).update(_members=(member,), _newest=store, _store=store, _looks_again=looks_again)

    def move_some(self) -> bool:
        """Move some first tensors to the chosen store; whether others wait. Called by its ``Move``, with its lock."""
        with self._lock:
            part = self._first.next_part()
            if part is not None and part.end == self._first.n:  # the last one: nobody stores others meanwhile
                self._move_part(part)
                part = None
            if part is None:
                self._newest._give_back(self._first.dead)
                self._change(self._members)
                self._first.forget()
                return False
        self._move_part(part)
        return True

    def _move_part(self, part: Part) -> None:
        ids = self._newest.append(part.tensors, part.sequences)
        try:
            with self._lock:
                self._first.move(part, ids)
        except BaseException:
            if self._first.n_moved < part.end:
                self._newest._give_back(ids)
            raise

    def _change(self, members: tuple[Member, ...], **others: object) -> None:
        """Have the last one of some stores take all tensors from now on, in one step; it may be the one that does."""
        newest, parting = members[-1], self._store.parting if isinstance(self._store, Succession) else None
        log, choice = newest.logs[0], newest.plan.choice
        if self._looks_again and choice is not None and log is not self.log:
            Looks(self.look, log, self._shown.n, choice.chosen.frame_bytes)
        store = Succession(members, parting) if len(members) > 1 or parting else newest.store
        stores = {"_members": members, "_newest": newest.store, "_store": store, "_last": store}
        vars(self).update(stores, log=log, **others)

    def look(self, frame_bytes: float) -> None:
        """Look again at how tensors are stored; called by its ``Looks``, in the background.

        ``frame_bytes``: what the newest frames take, on average.
        """
        if isinstance(self._store, Succession):
            needed = self._store.without_empty()
            if len(needed) < len(self._members):
                with self._lock:
                    self._change(needed)  # nobody can get an id of the others any more
        newest = self._members[-1]
        log, plan = newest.logs[0], newest.plan
        frames = log.newest(_N_NEWEST)
        if len(frames.rows) < _LEAST_NEWEST or len(self._members) == MOST_STORES:
            return
        n_frames = self._n_before + log.encoded[0]
        look = replace(plan.followed_by(frames, self.layout, self._kept, frame_bytes), n_frames=n_frames)
        best = look.choice.chosen
        plan = replace(plan, spec=best.spec, block_frames=best.block_frames, choice=look.choice)
        if look.is_taken and self._succeed(plan, look):
            newest.compress()
        else:
            self._last_look = replace(look, is_taken=False)

    def _succeed(self, plan: StoragePlan, look: Look) -> bool:
        """Have a new store take the place of the newest one, which is closed; whether it does."""
        before = self._members[-1]
        after = before.follower(plan, self.layout, self._kept, self._threads)
        if after is None:
            return False
        with self.changing, self._lock:
            try:
                if before.close_for(after):  # else many tensors came meanwhile
                    self._change((*self._members, after), _last_look=look, _n_before=look.n_frames)
            finally:
                if self._members[-1] is before:
                    before.reopen()
        return self._members[-1] is after

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
            n = min(len(ids), first.n_more)
            first.take(tensors, which[:n], sequences, ids[:n])
            is_due = self._store is not None or self._shown.are_enough(first.n)
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
            if isinstance(self._store, Succession):
                self._store.parting.settle()
            if self._members:
                self._newest._give_back(self._first.dead)
            states = [member.state() for member in self._members]
            newest: State = states.pop() if states else {"plan": None, "store": None}
            before = {str(k): state for k, state in enumerate(states)}
            return {**self._first.state(), **newest, "before": before, "looks_again": self._looks_again}

    def _restore(self, state: State) -> None:
        most = number_of(state, "n_first", 1, _MOST_IDS)
        self._first = FirstTensors(self.layout, most, self._most_waiting, self._shown)
        self._first.restore(state)
        if state.get("plan") is None:
            if self._first.n_moved:
                raise CorruptStream("first tensors have moved, and there is no store to which they can have")
            return
        if "looks_again" in state:  # else it is of a former version
            self._looks_again = part_of(state, "looks_again", bool) and self._looks_again
        before = part_of(state, "before", dict) if "before" in state else {}
        states = [*(part_of(before, name, dict) for name in before), state]
        members = restored(states, self.layout, self._kept, self._threads, FIRST_ID + most)
        if self._first.n_moved == self._first.n:
            self._change(members)
        else:
            self._members, self._newest, self._store = members, members[-1].store, members[-1].store

    def __repr__(self) -> str:
        inside = f"undecided: {self._waits_for}" if self._store is None else repr(self._store)
        return f"AutoStore({self.layout}, {inside})"
