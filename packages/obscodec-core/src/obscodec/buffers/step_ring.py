"""StepRing: the last steps of some environments, stored with compressed fields and read by their numbers."""

from __future__ import annotations  # else each sample would evaluate those of its inner functions

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Never, Self

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_env, as_envs, as_option, check_kind, kind_of, says_arguments
from obscodec.arrays import DeferredRead, Index, TensorArray
from obscodec.buffers.array_set import ArraySet, listed, no_field
from obscodec.buffers.columns import Columns, refuse_running, warn_left_out
from obscodec.buffers.drawing import Ends, Episodes, Pad, Seams, Stack, check_pad
from obscodec.buffers.field import Array, Field
from obscodec.buffers.memory import LOOK_EVERY, Memory, making_room
from obscodec.errors import DTypeError, FieldError, ShapeError, SlotError
from obscodec.fixed import Fixed, FixedMapping
from obscodec.layout import ArrayLike, Layout
from obscodec.runtime import LockOrder, PicklableLock, says_memory_error
from obscodec.segments import Ints
from obscodec.state import State, number_of, part_of, versioned
from obscodec.stats import BufferStats
from obscodec.stores import Store, new_batch

Bools = npt.NDArray[np.bool_]

_MOST_INDICES = 1 << 62  # of steps and environments; numpy counts to twice as many
_APPEND = {"add", "insert", "push", "put", "store"}  # what other libraries call it
_WAITING_STEPS = 3  # may wait in the write buffer, however large they are
_SCANNED = 1 << 12  # steps at a time, for the begin of an episode
_TRUNCATED = "trunc"  # begins the name of the flag that is true where an episode ended, but its task did not
_INSTEAD = "make another RingBuffer"
_OTHER_ENVS = "with_envs makes a buffer of these steps for another number of environments"


@says_arguments
class StepRing:
    """What a :class:`RingBuffer` stores, and how it is read; RingBuffer draws.

    A step has a number, counted from the first step that was ever appended. Methods whose names begin with ``_`` count
    steps from the oldest one that can be drawn; the steps before it that stacks still need have numbers below 0.

    One lock makes each call see whole steps. A reader holds it until it has copied what it needs of the arrays, and
    decodes without it.
    """

    capacity: Fixed[int] = Fixed(_INSTEAD)
    fields: FixedMapping[Field] = FixedMapping(_INSTEAD)
    n_envs: Fixed[int] = Fixed(_OTHER_ENVS)
    stack: FixedMapping[int] = FixedMapping(_INSTEAD)
    episode_end: Fixed[tuple[str, ...]] = Fixed(_INSTEAD)
    pad: Fixed[Pad | None] = Fixed(_INSTEAD)
    mask: Fixed[str | None] = Fixed(_INSTEAD)
    _seams = Seams()
    # Of the last call that looked for episodes: their ends, and the first and last step of it with their places.
    _ends_found = Ends.none()
    _parts_found: tuple[tuple[int, int], Episodes] | None = None

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Field],
        n_envs: int = 1,
        stack: Mapping[str, int] | None = None,
        episode_end: str | Sequence[str] | None = None,
        threads: int | None = None,
        max_bytes: int | None = None,
        spill: str | os.PathLike[str] | None = None,
        *,
        pad: Pad | None = None,
        mask: str | None = None,
    ) -> None:
        self._set = ArraySet(fields, n_envs, threads)
        self.fields, self.n_envs = self._set.fields, self._set.n_envs
        self._threads = as_option("threads", threads)
        self.capacity = as_count("capacity", capacity)
        if stack is not None:
            check_kind("stack", stack, Mapping, "a mapping from fields to numbers of steps, such as {'frame': 4}")
        self.stack = {name: as_count(f"stack of {name!r}", n) for name, n in (stack or {}).items()}
        names: Any = episode_end if isinstance(episode_end, (list, tuple)) else (episode_end,)
        self.episode_end = () if episode_end is None else tuple(names)
        self.pad, self.mask = pad, mask
        self._check_names()
        check_pad(pad, self.stack)
        self._stacks = Stack.of(self.stack, {name: field.next_of for name, field in self._set.fields.items()}, pad)
        self._memory = Memory(max_bytes, spill, [field.heap for field in self._set.fields.values()])
        self._memory.capacity = self.capacity
        # Steps before the oldest one, of which its stack is made.
        self._n_before = max(self.stack.values(), default=1) - 1
        # One row more than steps: the next step is written into the row without a step, then counted in one line.
        self._n_rows = self.capacity + self._n_before + 1
        n_sharing = Counter(self._set.owners.values())
        with making_room(lambda: self.capacity * self.n_envs):
            self._arrays = {
                name: self._set.zeros(name, name, self._n_rows, waiting=_WAITING_STEPS * n_sharing[owner])
                for name, owner in self._set.owners.items()
            }
        self._memory.check(self._set.memory_bytes)
        self._lock = PicklableLock(LockOrder.BUFFER)
        self._n_appended = 0
        self._first = 0  # no step before this one can be drawn, for want of bytes
        self._earliest = 0  # none before this one belongs to a stack
        self._released = 0  # and none before this one has tensors
        self._next_look = self._memory.next_look  # at this number of steps, of all that were ever appended

    @says_memory_error
    def append(self, *unnamed: Never, **values: ArrayLike | npt.ArrayLike) -> None:
        """Store one step of all environments. A refused call changes nothing.

        Args:
            *unnamed: nothing: each value has the name of its field. Pass a dictionary as ``append(**step)``.
            **values: for each field ``[n_envs, *shape]``, or ``[*shape]`` if there is one environment; a numpy array,
                an array with DLPack (a torch CPU tensor), or numbers. Floats are rounded to a narrower float;
                any other change of dtype must keep every value. A compressed field on a GPU also takes an array on
                that GPU, and downloads it.

        Raises:
            FieldError: a field is missing, or unknown.
            ShapeError: a value has another shape.
            DTypeError: the dtype of a field would change a number; or a value has no name.
            HeapFull: there is not enough room below the ``max_bytes`` of a field, or of the buffer for its newest
                steps; or the GPU has no room for earlier steps, which go on waiting on the CPU.
            OSError: blocks can't be written to the folder ``spill``.
        """
        self._check_fields("append", unnamed, values)
        self._append({name: self._set.step(name, value) for name, value in values.items()})

    @says_memory_error
    def extend(self, *unnamed: Never, **values: ArrayLike | npt.ArrayLike) -> None:
        """Store many steps, the oldest first. All are checked before the first one is stored.

        An exception while they are stored, such as HeapFull, leaves the steps before it in the buffer.

        Args:
            *unnamed: nothing, see :meth:`append`.
            **values: for each field ``[n_steps, n_envs, *shape]``, or ``[n_steps, *shape]`` if there is one
                environment, as :meth:`append` takes them.

        Raises:
            ShapeError: a value has another shape, or two fields have different numbers of steps.
            Exception: see :meth:`append`.
        """
        self._check_fields("extend", unnamed, values)
        steps = {name: self._set.steps(name, value) for name, value in values.items()}
        if len(numbers := {len(of_field) for of_field in steps.values()}) > 1:
            found = ", ".join(f"{name} {len(of_field)}" for name, of_field in steps.items())
            raise ShapeError(f"all fields have as many steps, got {found}")
        for step in range(numbers.pop()):
            self._append({name: of_field[step] for name, of_field in steps.items()})

    def _append(self, step: Mapping[str, Array]) -> None:
        """Store one step, ``[n_envs, *shape]`` of each field."""
        if self._lock.is_held():
            self._lock.refuse_nested()
        with self._lock:
            if self._n_appended >= self._next_look:
                self._look()
            at = self._n_appended % self._n_rows
            self._set.reserve(at)
            try:
                for name, array in self._arrays.items():
                    array[at] = step[name]
            except BaseException:
                self._set.forget(at)
                raise
            self._n_appended += 1

    @says_memory_error
    def clear(self) -> None:
        """Forget all steps, and give their memory back. The next step begins an episode."""
        self._lock.refuse_nested()
        with self._lock:
            self._first = self._earliest = self._n_appended
            self._release()

    @says_memory_error
    def end_episodes(self, envs: npt.ArrayLike | None = None) -> None:
        """End the running episodes: each ends with the newest step of its environment, as a truncated one.

        Call this when environments begin an episode that no stored step has announced: they were reset outside of a
        step, or have crashed. ``load`` calls it. Stacks, ``n_step``, ``sequences`` and ``episodes`` then go no further
        than this step. If ``episode_end`` has a flag whose name begins with ``"trunc"``, it becomes true in this step.
        Otherwise no stored value changes; the buffer remembers the seam, and ``sequences`` with ``across_episodes``
        does not cross it either, since no field tells of it.

        Args:
            envs: the environments, a number or ``i64[n]``; None for all. One without a running episode is left alone.

        Raises:
            ShapeError: there is no such environment.
            DTypeError: ``envs`` are no integers.
        """
        chosen = as_envs(envs, self.n_envs)
        self._lock.refuse_nested()
        with self._lock:
            if not len(self):
                return
            last = len(self) - 1
            running = chosen[~self._ends(np.full(len(chosen), last), chosen)]
            flag = next((name for name in self.episode_end if name.startswith(_TRUNCATED)), None)
            if not len(running):
                return
            self._forget_found(last)  # first: an interrupt leaves nothing that was found with other ends
            if flag is not None:
                self._arrays[flag][self._positions(np.full(len(running), last)), running] = True
            else:
                self._seams = self._stored_seams.with_ends(self._indices(np.full(len(running), last), running))

    @says_memory_error
    def drop_episode(self, env: int | None = None) -> None:
        """Take the running episode of an environment out: its steps are not drawn any more, and keep no memory.

        The steps keep their indices, which :meth:`take` refuses from then on; ``buffer[:]`` has zeros for them. The
        next step of this environment begins an episode. Nothing happens if no episode is running.

        Args:
            env: the environment; None if there is one.

        Raises:
            ShapeError: there is no such environment, or there are several and ``env`` is None.
            DTypeError: ``env`` is no integer.
            FieldError: there is no ``episode_end``, which says where the episode began.
        """
        env = as_env(env, self.n_envs)
        if not self.episode_end:
            raise FieldError("an episode begins where the one before it ends: pass episode_end to RingBuffer")
        self._lock.refuse_nested()
        with self._lock:
            begin = self._running_since(env)
            steps, envs = np.arange(begin, len(self)), np.full(len(self) - begin, env)
            self._forget_found(begin)
            self._seams = self._stored_seams.without(self._indices(steps, envs))
            self._set.drop((self._positions(steps), envs))

    @says_memory_error
    def with_envs(self, n_envs: int) -> Self:
        """A new buffer with the same steps, for another number of environments; this one stays as it is.

        The steps of an environment stay in their order, and whole episodes in one environment as far as there is room:
        an episode is cut where its new environment has as many steps as the others. Nothing that is drawn crosses a
        cut, but stacks are as before: the few steps that they need before a cut are decoded, and stored a second time.
        All other steps stay encoded. ``capacity`` changes so that the buffer keeps as many steps; if it has no room for
        all, a warning says how many of the oldest are left out. Steps that are never drawn stay behind. Indices begin
        anew at 0, so use a new ``Prioritized``.

        Args:
            n_envs: how many environments step together from now on.

        Raises:
            SlotError: an episode is running, which no new environment would go on with.
            ShapeError: ``n_envs`` is less than 1.
            DTypeError: ``n_envs`` is no integer.
            HeapFull: the steps do not fit below ``max_bytes``.

        Example:
            >>> import obscodec
            >>> buffer = obscodec.RingBuffer(100, {"done": Field((), bool)}, n_envs=2, episode_end="done")
            >>> for step in range(30):
            ...     buffer.append(done=[step % 10 == 9, step % 15 == 14])
            >>> other = buffer.with_envs(5)
            >>> other.n_envs, other.capacity, len(other)
            (5, 40, 12)
        """
        n_envs = as_count("n_envs", n_envs)
        capacity = -(-self.capacity * self.n_envs // n_envs)
        with self._lock:
            self._check_ended()
            size = len(self), self.n_envs, n_envs, capacity
            columns = Columns.of(*size, self._scan_stored, self._n_before_in_stack, self._n_before)
            numbers, ends = columns.numbers(self._positions(columns.steps), self.n_envs), columns.ends
            ends |= self._seams.are_ends(self._indices(columns.steps, columns.envs))
            state, arguments = self.state(), self.arguments()
        arguments |= {"n_envs": n_envs, "capacity": capacity, "spill": self._memory.folder}
        made = self.from_arguments(arguments)
        made._set.restore_columns(state["arrays"], numbers)
        made._seams = Seams(np.flatnonzero(ends), np.flatnonzero(~columns.drawn))
        made._n_appended = len(ends)
        warn_left_out(columns)
        return made

    def _check_ended(self) -> None:
        envs = np.arange(self.n_envs if len(self) else 0)
        refuse_running(envs[~self._ends(np.full(len(envs), len(self) - 1), envs)])

    def _n_before_in_stack(self, steps: Ints, envs: Ints) -> Ints:
        return self._n_inside(steps, envs, self._n_before + 1) - 1

    def _scan_stored(self, steps: Ints) -> tuple[Bools, Bools]:
        """Whether an episode ends with each of some steps, ``bool[n, n_envs]``, or draws go around it; and which."""
        at = steps[:, None], np.arange(self.n_envs)
        drawable = self._drawable(*at)
        return self._ends(*at) | ~drawable, drawable

    @property
    def _stored_seams(self) -> Seams:
        """The seams among the steps that are stored, those before the oldest one that stacks need among them."""
        return self._seams.since((self._oldest - self._n_before) * self.n_envs)

    def _running_since(self, env: int) -> int:
        """The step with which the running episode of an environment begins; ``len(self)`` if none is running."""
        end = len(self)
        while end > 0:
            steps = np.arange(max(0, end - _SCANNED), end)
            ends = np.flatnonzero(self._ends(steps, np.full(len(steps), env)))
            if len(ends):
                return int(steps[ends[-1]]) + 1
            end = int(steps[0])
        return 0

    def _forget_found(self, step: int) -> None:
        """Have the episodes be looked for again from a step on."""
        self._parts_found = None
        self._ends_found = self._ends_found.before(step + self._oldest)

    @says_memory_error
    def __getitem__(self, index: Index) -> dict[str, Array]:
        """``array[index]`` of each field, an array ``[len(self), n_envs, *shape]`` that begins with the oldest step.

        Steps that :meth:`drop_episode` has taken out are zeros.

        Raises:
            SlotError: the index is out of range.
        """
        if isinstance(index, str):
            raise SlotError(f"an index is of steps and environments, got {index!r}: write buffer[:][{index!r}]")
        with self._lock:
            grid = np.broadcast_arrays(np.arange(len(self))[:, None], np.arange(self.n_envs))
            try:
                steps, envs = (np.asarray(axis[index]) for axis in grid)
            except IndexError as error:
                raise SlotError(f"{len(self)} steps of {self.n_envs} environments are stored: {error}") from None
            real = ~self._seams.are_gone(self._indices(steps, envs)) if len(self._seams.gone) else None
            deferred = self._chosen(steps, envs, real=real)
        arrays: dict[str, Array] = deferred.result()
        return arrays

    if not TYPE_CHECKING:  # else every name would be an attribute

        def __getattr__(self, name: str) -> Never:
            meant = ": append stores a step" if name in _APPEND else ""
            text = f"{type(self).__name__!r} object has no attribute {name!r}{meant}"
            raise AttributeError(text, name=name, obj=self)

    def __len__(self) -> int:
        """How many steps of each environment there are, those that were taken out among them."""
        return min(self._n_appended - self._first, self.capacity)

    @property
    def indices(self) -> range:
        """The indices of all steps: that of step ``k`` of environment ``e`` is ``indices.start + k * n_envs + e``.

        Steps are counted on and on, so a step keeps its index, and no later one gets the same.
        """
        n = self._n_appended  # once: another thread may append
        return range(max(self._first, n - self.capacity) * self.n_envs, n * self.n_envs)

    @property
    def full(self) -> bool:
        """Whether the buffer has ``capacity`` steps, so that the next one takes the place of the oldest."""
        return len(self) == self.capacity

    def arguments(self) -> State:
        """What :meth:`from_arguments` takes for an equal, empty buffer."""
        return {
            "capacity": self.capacity,
            "fields": {name: field.config() for name, field in self._set.fields.items()},
            "n_envs": self.n_envs,
            "stack": dict(self.stack),
            "episode_end": self.episode_end[0] if len(self.episode_end) == 1 else [*self.episode_end] or None,
            "threads": self._threads,
            "max_bytes": self._memory.max_bytes,
            "spill": self._memory.folder is not None,
            "pad": self.pad,
            "mask": self.mask,
        }

    @classmethod
    def from_arguments(cls, arguments: State) -> Self:
        """An empty buffer."""
        fields = part_of(arguments, "fields", dict)
        made = {name: Field.from_config(field) for name, field in fields.items()}
        return cls(**{**arguments, "fields": made, "spill": arguments.get("spill") or None})

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return versioned(super().__reduce_ex__(protocol))

    @says_memory_error
    def state(self) -> State:
        """All steps, as they are stored: see ``obscodec.state``. Steps that wait are stored first."""
        with self._lock:
            arrays = self._set.state(min(self._n_appended, self._n_rows))
            numbers = {"n_appended": self._n_appended, "first": self._first, "earliest": self._earliest}
            seams = self._stored_seams.state()
            return {**numbers, "n_rows": self._n_rows, "arrays": arrays, "seams": seams}

    @says_memory_error
    def restore(self, state: State) -> None:
        """Fill this buffer, which is empty, with the :meth:`state` of one that was made with equal arguments.

        Raises:
            CorruptStream: no buffer has such a state.
        """
        n_appended = number_of(state, "n_appended", 0, _MOST_INDICES // self.n_envs)
        first = number_of(state, "first", 0, n_appended)
        n_rows = number_of(state, "n_rows", self.capacity + 1, self._n_rows)
        oldest = max(first, n_appended - self.capacity)
        earliest = number_of(state, "earliest", 0, oldest)
        rows = np.arange(min(n_appended, n_rows))  # where the state has steps, and where they go
        steps_back = (n_appended - 1 - rows) % n_rows
        seams = Seams.from_state(part_of(state, "seams", dict), n_appended * self.n_envs)
        self._set.restore(part_of(state, "arrays", dict), (n_appended - 1 - steps_back) % self._n_rows)
        self._seams = seams
        self._n_appended, self._first = n_appended, first
        self._earliest = self._released = max(earliest, n_appended - n_rows + 1)
        if self._memory.folder is not None:
            self._look()  # else the next step does

    def forget_damaged(self) -> Ints:
        """Set what can't be decoded to zero, after a damaged snapshot was loaded; see ``Salvaged``.

        Returns:
            ``i64[n, 2]``: the steps, counted from the oldest, and the environments where something is lost, in the step
            itself or in its stack.
        """
        lost = self._set.forget_damaged()
        steps = (lost[:, 0] - self._positions(np.zeros(1, np.int64))) % self._n_rows
        lost[:, 0] = np.where(steps < len(self), steps, steps - self._n_rows)
        stacked = [lost]
        for n in self.stack.values():
            for back in range(1, n):  # steps of which the stack reaches back to a lost one
                later = lost[(lost[:, 0] + back >= 0) & (lost[:, 0] + back < len(self))] + np.array([back, 0])
                stacked.append(later[self._n_inside(later[:, 0], later[:, 1], n) > back])
        found: Ints = np.unique(np.concatenate(stacked), axis=0)
        return found[found[:, 0] >= 0]

    def stats(self) -> BufferStats:
        """What the buffer holds now, and how long its samples took."""
        with self._lock:
            stats = self._set.stats(len(self) * self.n_envs)
            return self._memory.stats(stats, len(self), self._memory_bytes(), self._set.own_stores)

    def manifest(self) -> State:
        """See ``obscodec.snapshots.Saved``."""
        layouts = {name: field.layout for name, field in self._set.fields.items()}
        return self.stats().manifest(layouts, len(self), self.n_envs)

    @property
    def stores(self) -> set[Store]:
        """The stores of its compressed fields, each once."""
        return self._set.own_stores

    def __repr__(self) -> str:
        steps, stats = f"{len(self)} of {self.capacity} steps, n_envs={self.n_envs}", self.stats()
        return f"{type(self).__name__}({steps}, {stats.summary}\n  {self._set.described(stats)})"

    def _chosen(
        self,
        steps: Ints,
        envs: Ints,
        *,
        last: Ints | None = None,
        real: Bools | None = None,
        new_array: Callable[[Store, int], Any] = new_batch,
        convert: Callable[[Array], Any] | None = None,
    ) -> DeferredRead:
        """The steps ``i64[...]`` of the environments ``i64[...]``, of which nothing is decoded yet.

        Args:
            steps: the steps.
            envs: their environments.
            last: the last step of each, if a step stands for several: what comes after it, and whether its episode
                ends, is read there. None for ``steps``.
            real: ``bool[...]``, False to read zeros.
            new_array: see ``DeferredRead``.
            convert: see ``DeferredRead``.
        """
        at = {name: steps if last is None or not self._is_outcome(name) else last for name in self._set.fields}
        inside = {name: self._n_inside(at[name], envs, stack.n) for name, stack in self._stacks.items()}

        def choose() -> dict[str, Any]:
            return {name: self._picked(name, at[name], envs, inside.get(name), real) for name in self._set.fields}

        return DeferredRead(choose, new_array, convert)

    def _is_outcome(self, name: str) -> bool:
        """Whether a field tells what a step led to."""
        return self._set.fields[name].next_of is not None or name in self.episode_end

    def _picked(self, name: str, steps: Ints, envs: Ints, inside: Ints | None, real: Bools | None) -> Array:
        if inside is None:
            picked = self._items(name, steps, envs)
        else:
            picked = self._stacks[name].pick(partial(self._items, envs=envs[..., None]), name, steps, inside)
        if real is not None:
            picked[~real] = 0  # zeros, or the id of the zero tensor
        array = self._arrays[name]
        return TensorArray(picked, array.store)[...] if isinstance(array, TensorArray) else picked

    def _items(self, name: str, steps: Ints, envs: Ints) -> Any:
        """A new array of what the array of a field has: ids if it is compressed."""
        array = self._arrays[name]
        items = array.ids if isinstance(array, TensorArray) else array
        return np.asarray(items[self._positions(steps), envs])

    def _flags(self, name: str, steps: Ints, envs: Ints) -> Bools:
        return np.asarray(self._arrays[name][self._positions(steps), envs]).astype(np.bool_, copy=False)

    def _ends(self, steps: Ints, envs: Ints) -> Bools:
        """Whether the episode of a step ends with it."""
        flags = [self._flags(name, steps, envs) for name in self.episode_end]
        if self.mask is not None:
            flags.append(~self._flags(self.mask, steps, envs))
        if not flags or len(self._seams.ends):
            flags.append(self._seams.are_ends(self._indices(steps, envs)))
        return flags[0] if len(flags) == 1 else np.logical_or.reduce(flags)

    def _drawable(self, steps: Ints, envs: Ints) -> Bools:
        """Whether steps may be drawn."""
        drawable = [] if self.mask is None else [self._flags(self.mask, steps, envs)]
        if len(self._seams.gone):
            drawable.append(~self._seams.are_gone(self._indices(steps, envs)))
        if not drawable:
            return np.ones(np.broadcast_shapes(steps.shape, envs.shape), np.bool_)
        return drawable[0] if len(drawable) == 1 else np.logical_and.reduce(drawable)

    @property
    def _draws_all(self) -> bool:
        """Whether all steps may be drawn."""
        return self.mask is None and not len(self._seams.gone)

    def _n_inside(self, steps: Ints, envs: Ints, n: int) -> Ints:
        """``i64[...]``, 1 to ``n``: how many of the ``n`` steps up to each are stored and of its episode."""
        earliest = max(self._earliest, self._n_appended - self._n_rows + 1) - self._oldest
        before, envs = steps[..., None] - np.arange(1, n), envs[..., None]
        if before.min(initial=earliest) >= earliest:
            goes_on = ~self._ends(before, envs)
        else:
            is_stored = before >= earliest
            goes_on = is_stored & ~self._ends(np.where(is_stored, before, steps[..., None]), envs)
        n_inside: Ints = 1 + np.logical_and.accumulate(goes_on, axis=-1).sum(axis=-1)
        return n_inside

    def _indices(self, steps: Ints, envs: Ints) -> Ints:
        return (steps + self._oldest) * self.n_envs + envs

    def _positions(self, steps: Ints) -> Ints:
        """The rows of steps in the arrays."""
        return (steps + self._oldest % self._n_rows) % self._n_rows

    @property
    def _oldest(self) -> int:
        """The number of the oldest step that can be drawn."""
        return max(self._first, self._n_appended - self.capacity)

    def _memory_bytes(self) -> int:
        return self._set.memory_bytes(min(self._n_appended + LOOK_EVERY, self._n_rows))

    def _look(self) -> None:
        """Look at the memory, and free what exceeds the limit."""
        self._release()  # what an interrupted call has left
        stores = self._set.own_stores
        in_steps = self._memory.look(self.__len__, self._memory_bytes, stores, self.stats, self._drop)
        self._next_look = self._n_appended + in_steps

    def _drop(self, n: int) -> None:
        """Drop the oldest ``n`` steps: first they can't be drawn any more, then their tensors go."""
        self._first = self._oldest + n
        self._earliest = max(self._earliest, self._first - self._n_before)
        self._release()

    def _release(self) -> None:
        """Release the tensors of dropped steps, as far as their rows have no newer steps."""
        begin, n_rows = max(self._released, self._n_appended - self._n_rows), self._n_rows
        while begin < self._earliest:
            row = begin % n_rows
            end = min(self._earliest, begin - row + n_rows)
            self._set.drop(slice(row, row + end - begin))
            begin = end
        self._released = self._earliest

    def _check_fields(self, method: str, unnamed: Sequence[object], values: Mapping[str, object]) -> None:
        if unnamed:
            raise DTypeError(
                f"{method} takes each field by its name, got {kind_of(unnamed[0])} without one: write "
                f"{method}(**step) if step is a dictionary of {listed(self._set.fields)}"
            )
        if values.keys() != self._set.fields.keys():
            missing = [f"{name!r} is missing" for name in self._set.fields if name not in values]
            unknown = [f"{name!r} is none of them" for name in values if name not in self._set.fields]
            raise FieldError(f"a step has the fields {listed(self._set.fields)}: {', '.join(missing + unknown)}")

    def _check_names(self) -> None:
        for name in self._set.fields:
            check_kind("the name of a field", name, str, "a text, such as 'frame'")
        if not self._set.fields:
            raise FieldError("a buffer has one field or more, got none")
        if self.stack and not self.episode_end:
            raise FieldError("stacks need episode_end, the boolean field that is true in the last step of an episode")
        flags = [(name, "episode_end") for name in self.episode_end]
        flags += [] if self.mask is None else [(self.mask, "mask")]
        for name in [*self.stack, *(name for name, _ in flags)]:
            if not isinstance(name, str) or name not in self._set.fields:
                raise no_field(name, self._set.fields)
        for name, argument in flags:
            if self._set.fields[name].layout != Layout((), np.bool_):
                raise DTypeError(f"{argument} takes a field bool[], {name!r} is {self._set.fields[name].layout}")
