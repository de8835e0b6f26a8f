"""RingBuffer: the last steps of some environments, with compressed fields, drawn as training loops need them."""

from __future__ import annotations

import os
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Never, Self, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt

from obscodec.arguments import (
    as_count,
    as_env,
    as_envs,
    as_flag,
    as_option,
    check_envs,
    check_kind,
    kind_of,
    says_arguments,
)
from obscodec.arrays import Index, TensorArray
from obscodec.buffers.array_set import ArraySet
from obscodec.buffers.clock import Clock
from obscodec.buffers.drawing import Pad, Prioritized, Rng, Seams, Stack
from obscodec.buffers.field import Array, Field, check_name, listed
from obscodec.buffers.memory import LOOK_EVERY, Memory, making_room
from obscodec.buffers.ragged_array import RaggedArray
from obscodec.buffers.rate_limiter import RateLimiter
from obscodec.buffers.side_by_side import SideBySide, check_alike
from obscodec.buffers.step_drawer import StepDrawer
from obscodec.buffers.step_reader import Read, Span, StepReader
from obscodec.buffers.stored_steps import StoredSteps
from obscodec.errors import DTypeError, FieldError, ShapeError, SlotError, SpecError
from obscodec.fixed import Fixed, FixedMapping
from obscodec.layout import ArrayLike, Layout
from obscodec.runtime import LockOrder, PicklableLock, assign, holding, says_errors, says_memory_error
from obscodec.segments import Bools, Ints
from obscodec.state import State, part_of, versioned
from obscodec.stats import BufferStats
from obscodec.stores import Store

_APPEND = {"add", "insert", "push", "put", "store"}  # what other libraries call it
_WAITING_STEPS = 3  # may wait in the write buffer, if they are not large
_LARGE_NBYTES = 1 << 20  # of a step of all environments
_TRUNCATED = "trunc"  # begins the name of the flag that is true where an episode ended, but its task did not
_INSTEAD = "make another RingBuffer"
_AT_ONCE = nullcontext()
_OTHER_ENVS = "with_envs makes a buffer of these steps for another number of environments"


class Drawing(TypedDict, total=False):
    """How steps are drawn and added up, see :meth:`RingBuffer.sample`."""

    replace: bool
    p: npt.ArrayLike | Prioritized | None
    n_step: int | None
    gamma: float | None
    reward: str


@says_arguments
class RingBuffer:
    """The last ``capacity`` steps of each of ``n_envs`` environments.

    Steps of compressed fields wait in a write buffer, so that some are stored together; steps of a field with
    ``max_bytes`` are stored at once. Any number of threads may append and sample at the same time: each call sees whole
    steps, and steps of several writers come one after the other. A new step is written beside the oldest one, which
    is dropped when the new step is complete: so a failed append changes nothing.

    Args:
        capacity: how many steps to keep for each environment; the oldest are dropped first.
        fields: the fields of a step.
        n_envs: how many environments step together.
        stack: fields to read as a stack of their last steps, and how many: ``{"frame": 4}``. The buffer stores one step
            of each. A field that is the ``next_of`` another one is stacked as that is, without being named.
        episode_end: the boolean field, or several, of which one is true in the last step of an episode:
            ``("terminated", "truncated")``. Stacks, ``n_step`` and sequences need it.
        threads: how many threads decode a batch, None for half of the usable processors.
        max_bytes: the most bytes of memory for the whole buffer, None for no limit. When they run out before
            ``capacity`` does, the oldest steps of all environments are dropped, and a warning says so once. The memory
            may exceed the limit by 16 steps, and by 2 MiB of each store, where blocks wait to be compressed.
        spill: a folder for the oldest blocks that exceed ``max_bytes``: they move to files there, without names, and no
            step is dropped before ``capacity`` runs out. The files end with the process.
        pad: what stacks have before the first step of an episode; there is no default, since it must be what the actor
            saw. ``"edge"``: the first step again, as Gymnasium's FrameStackObservation. ``"zeros"``: as SB3's
            VecFrameStack. The steps before the oldest one are kept as long as stacks need them.
        mask: a boolean field that is false in steps that are no part of an episode, and are never drawn: such as the
            step in which a vectorized environment ignores the action and resets itself (EnvPool; Gymnasium's
            ``AutoresetMode.NEXT_STEP``).
        limiter: keeps what is appended and what is sampled in a ratio, see :class:`RateLimiter`; None for no limit.

    Attributes:
        limiter: can be replaced at any time. It is asked by ``append`` and ``extend``, which insert a step of each
            environment, and by ``sample``, ``sequences`` and ``sample_episodes``, which draw as many steps as they
            return, without those before and behind a sequence. A snapshot does not have it, nor do the buffers that
            ``resized``, ``with_envs`` and ``merged`` make.

    Raises:
        FieldError: there are no fields, or an argument names a field that does not exist.
        ShapeError: a number is out of range.
        DTypeError: an argument has another type, or the dtype of ``episode_end`` or ``mask`` is not bool.
        SpecError: a spec names no codec; there are stacks and no ``pad``; or ``spill`` is given without ``max_bytes``
            or for pinned memory.

    Example:
        >>> from obscodec import Field
        >>> fields = {"frame": Field((84, 84), np.uint8, "zstd:1"), "reward": Field((), np.float32),
        ...           "done": Field((), bool)}
        >>> buffer = RingBuffer(1000, fields, stack={"frame": 4}, pad="zeros", episode_end="done")
        >>> for i in range(10):
        ...     buffer.append(frame=np.full((84, 84), i, np.uint8), reward=1.0, done=i == 6)
        >>> buffer[-1]["frame"][0, :, 0, 0]
        array([0, 7, 8, 9], dtype=uint8)
        >>> buffer.sample(32, np.random.default_rng(0))["frame"].shape
        (32, 4, 84, 84)
    """

    capacity: Fixed[int] = Fixed("resized makes a buffer of the newest steps with another capacity")
    fields: FixedMapping[Field] = FixedMapping(_INSTEAD)
    n_envs: Fixed[int] = Fixed(_OTHER_ENVS)
    stack: FixedMapping[int] = FixedMapping(_INSTEAD)
    episode_end: Fixed[tuple[str, ...]] = Fixed(_INSTEAD)
    pad: Fixed[Pad | None] = Fixed(_INSTEAD)
    mask: Fixed[str | None] = Fixed(_INSTEAD)
    max_bytes: Fixed[int | None] = Fixed("make another RingBuffer, or load this one with another limit")
    spill: Fixed[str | None] = Fixed("make another RingBuffer, or load this one with another folder")
    threads: Fixed[int | None] = Fixed(_INSTEAD)
    _seams = Seams()

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
        limiter: RateLimiter | None = None,
    ) -> None:
        self.capacity = as_count("capacity", capacity)
        self._set = ArraySet(fields, n_envs, threads, n_steps=self.capacity)
        self.fields, self.n_envs = dict(fields), self._set.n_envs
        self.threads = as_option("threads", threads)
        if stack is not None:
            check_kind("stack", stack, Mapping, "a mapping from fields to numbers of steps, such as {'frame': 4}")
        self.stack = {name: as_count(f"stack of {name!r}", n) for name, n in (stack or {}).items()}
        names: Any = episode_end if isinstance(episode_end, (list, tuple)) else (episode_end,)
        self.episode_end = () if episode_end is None else tuple(names)
        self.pad, self.mask = pad, mask
        if limiter is not None:
            check_kind("limiter", limiter, RateLimiter, "a RateLimiter, such as RateLimiter(samples_per_insert=8)")
        self.limiter = limiter
        self._check_names()
        for name, field in self._set.fields.items():
            if field.after > 1 and {name, field.next_of} & self.stack.keys():
                what = f"{name!r} comes {field.after} steps later, and the steps between may not be stored"
                raise FieldError(f"{what}: leave it and {field.next_of!r} out of stack, and store whole stacks")
        stacks = Stack.of(self.stack, {name: field.next_of for name, field in self._set.fields.items()}, pad)
        self._memory = Memory(max_bytes, spill, [field.heap for field in self._set.fields.values()])
        self.max_bytes, self.spill = self._memory.max_bytes, self._memory.folder
        # Of the steps before the oldest one, its stack is made.
        self._clock = Clock(self.capacity, max(self.stack.values(), default=1) - 1, self.n_envs)
        n_sharing = Counter(self._set.owners.values())
        of_env = {name: store.layout.nbytes for name, store in self._set.stores.items() if store is not None}
        large = {name for name, nbytes in of_env.items() if self.n_envs * nbytes > _LARGE_NBYTES}
        self._gives_spare_row_back = self._set.has_few_steps and bool(large)
        arrays = dict[str, Array | TensorArray | RaggedArray]()
        with making_room(lambda: self.capacity * self.n_envs):
            for name in sorted(self._set.owners, key=lambda name: self._set.fields[name].is_ragged):  # lengths first
                make = self._set.ragged if self._set.fields[name].is_ragged else partial(self._set.zeros, name)
                waiting = 0 if name in large else _WAITING_STEPS * n_sharing[self._set.owners[name]]
                arrays[name] = make(name, self._clock.n_rows, waiting=waiting)
        self._arrays = {name: arrays[name] for name in self.fields}
        self._reader = StepReader(self._set.fields, arrays, stacks, self.episode_end, mask, self._clock.n_rows)
        self._drawer = StepDrawer(self._reader, self.capacity, knows_ends=bool(self.episode_end))
        self._memory.check(self.capacity, self._set.memory_bytes)
        self._lock = PicklableLock(LockOrder.BUFFER)
        self._is_half_written = False  # the rows of the next step
        self._n_looks = -1  # at the memory, once in LOOK_EVERY steps

    @says_memory_error
    def append(self, *unnamed: Never, envs: npt.ArrayLike | None = None, **values: ArrayLike | npt.ArrayLike) -> None:
        """Store one step of all environments, or of some. A refused call changes nothing.

        Environments that do not step together, such as EnvPool's asynchronous ones, have steps of their own: stacks,
        n-step returns, sequences and ``capacity`` go by those of each.

        Args:
            *unnamed: nothing: each value has the name of its field. Pass a dictionary as ``append(**step)``.
            envs: the environments that the values are of, each once, ``i64[n]``, or the number of one; None for all. If
                a field has this name, it is that field, and all environments step together.
            **values: for each field ``[n_envs, *shape]``, or ``[n, *shape]`` with ``envs``, or ``[*shape]`` of one
                environment; a numpy array, an array with DLPack (a torch CPU tensor), or numbers. Floats are rounded to
                a narrower float; any other change of dtype must keep every value. A compressed field on a GPU also
                takes an array on that GPU, and downloads it.

        Raises:
            FieldError: a field is missing, or unknown.
            ShapeError: a value has another shape; or there is no such environment, or it is named twice.
            DTypeError: the dtype of a field would change a number; or a value has no name.
            HeapFull: there is not enough room below the ``max_bytes`` of a field, or of the buffer for its newest
                steps; or the GPU has no room for earlier steps, which go on waiting on the CPU.
            OSError: blocks can't be written to the folder ``spill``.
        """
        if envs is None:
            self._check_fields("append", unnamed, values)
            self._append({name: self._set.step(name, value) for name, value in values.items()})
            return
        chosen, order = self._check_step("append", unnamed, envs, values)
        at, n = (..., None) if order is None else (order, len(order))
        self._append({name: self._set.step(name, value, n)[at] for name, value in values.items()}, chosen)

    @says_memory_error
    def extend(self, *unnamed: Never, envs: npt.ArrayLike | None = None, **values: ArrayLike | npt.ArrayLike) -> None:
        """Store many steps, the oldest first. All are checked before the first one is stored.

        An exception while they are stored, such as HeapFull, leaves the steps before it in the buffer.

        Args:
            *unnamed: nothing, see :meth:`append`.
            envs: see there.
            **values: for each field ``[n_steps, n_envs, *shape]``, or ``[n_steps, n, *shape]`` with ``envs``, or
                ``[n_steps, *shape]`` of one environment, as :meth:`append` takes them.

        Raises:
            ShapeError: a value has another shape, or two fields have different numbers of steps.
            Exception: see :meth:`append`.
        """
        chosen, order = self._check_step("extend", unnamed, envs, values)
        n = None if order is None else len(order)
        steps = {name: self._set.step(name, value, n, many=True) for name, value in values.items()}
        if len(numbers := {len(of_field) for of_field in steps.values()}) > 1:
            found = ", ".join(f"{name} {len(of_field)}" for name, of_field in steps.items())
            raise ShapeError(f"all fields must have the same number of steps, got {found}")
        at: Any = ... if order is None else order
        for step in range(numbers.pop()):
            self._append({name: of_field[step][at] for name, of_field in steps.items()}, chosen)

    def _append(self, step: Mapping[str, Array], envs: Ints | None = None) -> None:
        """Store one step, ``[n_envs, *shape]`` of each field; or of some environments, ``i64[n]``."""
        if self._lock.is_held():
            self._lock.refuse_nested()
        limiter, n_steps = self.limiter, self.n_envs if envs is None else len(envs)
        with self._lock if limiter is None else limiter.turn("insert", n_steps, self._lock):
            clock = self._clock
            n = clock.n_appended
            if n // LOOK_EVERY != self._n_looks and n >= self._memory.next_look:
                self._look()
                self._n_looks = n // LOOK_EVERY
            if envs is not None and self._is_half_written:
                self._empty_spare_rows()  # what a refused step of other environments has left
            at = clock.next_rows(envs)
            self._is_half_written = True
            for name, array in self._arrays.items():
                array[at] = step[name]
            clock.count(envs)
            self._is_half_written = False
            if envs is None and self._gives_spare_row_back:
                with suppress(MemoryError):  # the step is stored, and the next one goes there anyway
                    self._empty_spare_rows()

    @says_memory_error
    def clear(self) -> None:
        """Forget all steps, and give their memory back. The next step begins an episode."""
        self._lock.refuse_nested()
        with self._lock:
            self._clock.clear()
            self._release()
            self._empty_spare_rows()

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
            span = self._span
            last = span.n - 1
            running = chosen[~self._reader.ends(span, np.full(len(chosen), last), chosen)]
            flag = next((name for name in self.episode_end if name.startswith(_TRUNCATED)), None)
            if not len(running):
                return
            self._drawer.forget(last + span.begin)  # first: an interrupt leaves nothing that was found with other ends
            if flag is not None:
                self._arrays[flag][self._reader.rows(span, np.full(len(running), last), running), running] = True
            else:
                seams, new = self._stored_seams, span.indices(np.full(len(running), last), running)
                self._seams = seams._replace(ends=np.union1d(seams.ends, new))

    @says_memory_error
    def drop_episode(self, env: int | None = None) -> None:
        """Take the running episode of an environment out: its steps are not drawn any more, and keep no memory.

        The steps keep their indices, which :meth:`take` refuses from then on, and count in ``len(buffer)``;
        ``buffer[:]`` has zeros for them. The next step of this environment begins an episode. Nothing happens if no
        episode is running.

        Args:
            env: the environment; None if there is one.

        Raises:
            ShapeError: there is no such environment, or there are several and ``env`` is None.
            DTypeError: ``env`` is no integer.
            FieldError: there is no ``episode_end``, which says where the episode began.
        """
        env = as_env(env, self.n_envs)
        if not self.episode_end:
            raise FieldError("drop_episode needs to know where the episode began: pass episode_end to RingBuffer")
        self._lock.refuse_nested()
        with self._lock:
            span = self._span
            begin = self._reader.running_since(span, env)
            steps, envs = np.arange(begin, span.n), np.full(span.n - begin, env)
            self._drawer.forget(begin + span.begin)
            self._seams = self._stored_seams.without(span.indices(steps, envs))
            self._set.drop((self._reader.rows(span, steps, envs), envs))

    @says_errors
    def assign(self, indices: npt.ArrayLike, /, **values: ArrayLike | npt.ArrayLike) -> None:
        """Change fields of stored steps. A refused call changes nothing.

        Steps that were overwritten or taken out meanwhile are left out; of a step that is named twice, the last value
        counts. Priorities stay as they are.

        Args:
            indices: ``i64[n]``, such as :meth:`sample` returns them.
            **values: for each field to change ``[n, *shape]``, as :meth:`append` takes them. A field can change if it
                is not compressed, not read as a stack, and neither ``mask`` nor among ``episode_end``.

        Raises:
            FieldError: a field does not exist, or can't change.
            ShapeError: a value has another shape.
            DTypeError: the dtype of a field would change a number.
            SlotError: a step is not there yet.
        """
        for name in values:
            self._check_changes(name)
        if np.ndim(indices) != 1:
            raise ShapeError(f"indices are an array [n], got shape {np.shape(indices)}")
        items = {name: self._set.step(name, value, np.size(indices)) for name, value in values.items()}
        self._lock.refuse_nested()
        with self._lock:
            span = self._span
            there, steps, envs = span.stored(indices)
            at = self._reader.rows(span, steps, envs), envs
            plain: dict[str, Any] = self._arrays
            assign(*[(plain[name], at, new[there]) for name, new in items.items()])

    @says_errors
    def relabel(
        self,
        field: str,
        label: Callable[[dict[str, Any]], ArrayLike | npt.ArrayLike],
        *,
        reads: Iterable[str] | None = None,
        batch: int = 256,
        to: object = None,
    ) -> None:
        """Give a field of all steps that are stored now a new value, such as the reward of a model that has learned.

        Other threads append and sample meanwhile: a step changes with its batch, and one that is overwritten meanwhile
        is left out. Steps that are never drawn stay as they are. An exception of ``label`` leaves the batches before it
        changed.

        Args:
            field: the field to change; see :meth:`assign`.
            label: called with steps as :meth:`take` returns them, the oldest first; returns ``[n, *shape]``, the values
                of the field.
            reads: the fields that ``label`` needs, None for all. Only these are decoded.
            batch: how many steps at a time.
            to: see :meth:`sample`, for what ``label`` gets; it returns an array on the CPU.

        Raises:
            FieldError: a field does not exist, or can't change.
            Exception: see :meth:`assign`, :meth:`sample`, and what ``label`` raises.
        """
        self._check_changes(field)
        if not callable(label):
            raise DTypeError(f"label must be a function of steps, got {kind_of(label)}: assign takes values")
        batch, reader = as_count("batch", batch), self._reader if reads is None else self._reader.only(reads)
        choose = reader.chooser(to=to)
        with self._lock:
            stored = self.indices
        for begin in range(0, len(stored), batch):
            with self._lock:
                span = self._span
                _, steps, envs = span.stored(stored[begin : begin + batch])
                drawn = self._reader.drawable(span, steps, envs)
                steps, envs = steps[drawn], envs[drawn]
                read = choose(span, steps, envs)
            if len(steps):
                self.assign(span.indices(steps, envs), **{field: label(read())})

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
        return type(self).merged([self], as_count("n_envs", n_envs))

    @classmethod
    @says_memory_error
    def merged(cls, buffers: Sequence[RingBuffer], n_envs: int | None = None) -> Self:
        """A new buffer with the steps of several, laid out as :meth:`with_envs` does it; these stay as they are.

        The newest steps of each buffer are the newest of all. The steps of the buffer that has most of them stay
        encoded. Those of the others are decoded, some at a time, and encoded once more: a store has one codec at a
        time, and its streams need what that has learned. How fields are kept, ``threads`` and ``spill`` are as in the
        buffer with most steps; capacities and ``max_bytes`` add up. Indices begin anew at 0.

        Args:
            buffers: a list; they have the same fields, ``stack``, ``pad``, ``episode_end`` and ``mask``.
            n_envs: how many environments step together from now on; None for as many as all buffers have.

        Raises:
            FieldError: the buffers differ, or there is none.
            Exception: see :meth:`with_envs`.
        """
        check_alike(buffers, RingBuffer)
        n_envs = sum(ring.n_envs for ring in buffers) if n_envs is None else as_count("n_envs", n_envs)
        capacity = -(-sum(ring.capacity * ring.n_envs for ring in buffers) // n_envs)
        limits = [ring.max_bytes for ring in buffers if ring.max_bytes is not None]

        def at_one_moment() -> tuple[Any, ...]:
            most = max(range(len(buffers)), key=lambda k: buffers[k]._clock.n_stored)
            together = SideBySide([(ring._span, ring._reader) for ring in buffers], buffers[most]._clock.n_before)
            rearranged = together.rearranged(n_envs, capacity)
            parts = zip(*(together.part(k, rearranged) for k in range(len(buffers))), strict=True)
            copies = {k: ring.resized(ring.capacity) for k, ring in enumerate(buffers) if k != most}
            return rearranged, *parts, most, buffers[most].state(), buffers[most].arguments(), copies

        locks = [ring._lock for ring in buffers]
        rearranged, numbers, ends, most, state, arguments, copies = holding(locks, at_one_moment)
        arguments |= {"n_envs": n_envs, "capacity": capacity, "max_bytes": None, "spill": None}
        if len(limits) == len(buffers):
            arguments |= {"max_bytes": sum(limits), "spill": buffers[most].spill}
        made = cls.from_arguments(arguments)
        made._set.restore_rearranged(state["arrays"], numbers[most])
        for k, copy in copies.items():
            made._set.put_copies(copy._set, numbers[k])
        every_end = np.logical_or.reduce([rearranged.ends, *ends])
        made._seams = Seams(np.flatnonzero(every_end), np.flatnonzero(~rearranged.drawn))
        made._clock.appended = len(every_end)
        if made.spill is not None:  # blocks of the others were in files, and are in memory
            made._look()
        rearranged.warn()
        return made

    @says_memory_error
    def resized(self, capacity: int) -> Self:
        """A new buffer with the newest steps and another capacity; this one stays as it is.

        Steps stay encoded, and keep their indices and environments. So running episodes go on, and so does a
        ``Prioritized`` with enough room.

        Args:
            capacity: how many steps to keep for each environment.

        Raises:
            ShapeError: ``capacity`` is less than 1, or what is not compressed would take more than ``max_bytes``.
            DTypeError: ``capacity`` is no integer.
        """
        arguments = {**self.arguments(), "capacity": as_count("capacity", capacity), "spill": self.spill}
        made = self.from_arguments(arguments)
        with self._lock:
            (clock, numbers), seams, state = self._clock.resized(made.capacity), self._stored_seams, self.state()
        made._set.restore_rearranged(state["arrays"], numbers)
        made._clock, made._seams = clock, seams
        return made

    @says_memory_error
    def __getitem__(self, index: Index) -> dict[str, Array]:
        """``array[index]`` of each field, an array ``[len(self), n_envs, *shape]`` that begins with the oldest step.

        Steps that :meth:`drop_episode` has taken out are zeros, and those before the first one of an environment that
        has fewer steps than others.

        Raises:
            SlotError: the index is out of range.
        """
        if isinstance(index, str):
            raise SlotError(f"an index is of steps and environments, got {index!r}: write buffer[:][{index!r}]")
        with self._lock:
            span = self._span
            grid = np.broadcast_arrays(np.arange(span.n)[:, None], np.arange(self.n_envs))
            try:
                steps, envs = (np.asarray(axis[index]) for axis in grid)
            except IndexError as error:
                raise SlotError(f"{span.n} steps of {self.n_envs} environments are stored: {error}") from None
            real = self._reader.there(span, steps, envs)
            deferred = self._reader.read(span, steps, envs, real=real)
        arrays: dict[str, Array] = deferred.result()
        return arrays

    if not TYPE_CHECKING:  # else every name would be an attribute

        def __getattr__(self, name: str) -> Never:
            meant = ": append stores a step" if name in _APPEND else ""
            text = f"{type(self).__name__!r} object has no attribute {name!r}{meant}"
            raise AttributeError(text, name=name, obj=self)

    def __len__(self) -> int:
        """How many steps of each environment there are, those that were taken out among them; of the one with most."""
        return len(self._clock)

    @property
    def indices(self) -> range | Ints:
        """The indices of all steps: that of step ``k`` of environment ``e`` is ``indices[0] + k * n_envs + e``.

        Steps are counted on and on, so a step keeps its index, and no later one gets the same. Of environments that do
        not step together, ``i64[n]``, rising: each environment counts its own steps, ``index // n_envs``.
        """
        return self._clock.indices()

    @property
    def full(self) -> bool:
        """Whether the buffer has ``capacity`` steps, so that the next one takes the place of the oldest."""
        return len(self) == self.capacity

    @property
    def n_stored(self) -> int:
        """How many steps there are, of all environments together, those that were taken out among them."""
        return self._clock.n_stored

    @property
    def n_appended(self) -> int:
        """How many steps were appended so far, of all environments together."""
        return int(np.sum(np.broadcast_to(self._clock.appended, self.n_envs)))

    def arguments(self) -> State:
        """What :meth:`from_arguments` takes for an equal, empty buffer."""
        return {
            "capacity": self.capacity,
            "fields": {name: field.config() for name, field in self.fields.items()},
            "n_envs": self.n_envs,
            "stack": dict(self.stack),
            "episode_end": self.episode_end[0] if len(self.episode_end) == 1 else [*self.episode_end] or None,
            "threads": self.threads,
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

    @property
    def changing(self) -> PicklableLock:
        """See ``obscodec.snapshots.Saved``."""
        return self._lock

    @says_memory_error
    def state(self) -> State:
        """All steps, as they are stored: see ``obscodec.state``. Steps that wait are stored first."""
        with self._lock:
            if self._is_half_written:
                self._empty_spare_rows()
            arrays = self._set.state(min(self._clock.most_appended, self._clock.n_rows))
            return {**self._clock.state(), "arrays": arrays, "seams": self._stored_seams.state()}

    @says_memory_error
    def restore(self, state: State) -> None:
        """Fill this buffer, which is empty, with the :meth:`state` of one that was made with equal arguments.

        Raises:
            CorruptStream: no buffer has such a state.
        """
        clock = Clock(self.capacity, self._clock.n_before, self.n_envs)
        rows = clock.restore(state)
        seams = Seams.from_state(part_of(state, "seams", dict), clock.most_appended * self.n_envs)
        self._set.restore(part_of(state, "arrays", dict), rows)
        self._seams, self._clock = seams, clock
        self._n_looks = (clock.n_appended - 1) // LOOK_EVERY
        if self.max_bytes is not None:
            self._look()

    def forget_damaged(self) -> Ints:
        """Set what can't be decoded to zero, after a damaged snapshot was loaded; see ``Salvaged``.

        Returns:
            ``i64[n, 2]``: the steps, counted from the oldest, and the environments where something is lost, in the step
            itself or in its stack.
        """
        lost = self._set.forget_damaged()
        span = self._span
        n_rows = self._clock.n_rows
        steps = (lost[:, 0] - self._reader.rows(span, np.zeros(len(lost), np.int64), lost[:, 1])) % n_rows
        lost[:, 0] = np.where(steps < span.n, steps, steps - n_rows)
        stacked = [lost]
        for n in self.stack.values():
            for back in range(1, n):  # steps of which the stack reaches back to a lost one
                later = lost[(lost[:, 0] + back >= 0) & (lost[:, 0] + back < span.n)] + np.array([back, 0])
                stacked.append(later[self._reader.n_inside(span, n, later[:, 0], later[:, 1]) > back])
        found: Ints = np.unique(np.concatenate(stacked), axis=0)
        return found[(found[:, 0] >= 0) & span.are_there(*found.T)]

    def decide(self) -> None:
        """Wait until the codecs are chosen, by the steps so far, and all observations are compressed with them.

        Without this call, both happen in the background as soon as there are ``decide_after`` observations.
        """
        with self._lock:
            self._set.flush()
        for store in self.stores:
            store.decide()

    def stats(self) -> BufferStats:
        """What the buffer holds now, and how long its samples took."""
        with self._lock:
            stats = self._set.stats(self._clock.n_stored)
            return self._memory.stats(stats, len(self), self._memory_bytes())

    def manifest(self) -> State:
        """See ``obscodec.snapshots.Saved``."""
        layouts = {name: field.layout for name, field in self._set.fields.items()}
        return self.stats().manifest(layouts, len(self), self.n_envs)

    def stored_steps(self) -> StoredSteps:
        """The steps that are stored now, as they were appended, without stacks; they must not change meanwhile."""
        with self._lock:
            span = self._span

        def read(name: str, steps: Ints, envs: Ints) -> Array:
            with self._lock:
                reader = self._reader.only([name], stacked=False)
                deferred = reader.read(span, steps, envs, real=reader.there(span, steps, envs))
            array: Array = deferred.result()[name]
            return array

        def scan(steps: Ints) -> tuple[Bools, Bools]:
            with self._lock:
                ends, drawable = self._reader.scan(span, steps)
            return ends & drawable, drawable

        plain = {name: of for name, of in self._set.fields.items() if not of.is_ragged}
        left_out = {name: "its length differs from step to step" for name in self._set.fields if name not in plain}
        layouts, shared = {name: of.layout for name, of in plain.items()}, {x for x, of in plain.items() if of.owner}
        return StoredSteps(span.n, self.n_envs, layouts, read, scan, self.episode_end, frozenset(shared), left_out)

    @property
    def stores(self) -> set[Store]:
        """The stores of its compressed fields, each once."""
        return self._set.own_stores

    def __repr__(self) -> str:
        steps = f"{len(self):,} of {self.capacity:,} steps, n_envs={self.n_envs}"
        return f"{type(self).__name__}({steps}\n  {self._set.described(self.stats())})"

    @overload
    def sample(self, batch: int, rng: Rng = None, **how: Unpack[Drawing]) -> dict[str, Array]: ...

    @overload
    def sample(
        self, batch: int, rng: Rng = None, *, return_indices: bool = ..., to: object = ...,
        convert: Callable[[Array], Any] | None = ..., **how: Unpack[Drawing],
    ) -> Any: ...  # fmt: skip

    @says_errors
    def sample(
        self,
        batch: int,
        rng: Rng = None,
        *,
        replace: bool = True,
        p: npt.ArrayLike | Prioritized | None = None,
        n_step: int | None = None,
        gamma: float | None = None,
        reward: str = "reward",
        return_indices: bool = False,
        to: object = None,
        convert: Callable[[Array], Any] | None = None,
    ) -> Any:
        """Steps of random environments at random times, uniformly and with replacement unless you say otherwise.

        Args:
            batch: how many steps.
            rng: a random generator, of numpy or PyTorch, or a seed; None for one that the system has seeded.
            replace: whether a step may be drawn more than once.
            p: the probability of each step, ``[len(self), n_envs]`` or flat; or the priorities of the steps.
            n_step: add up the rewards of so many steps, fewer where an episode ends or no more are stored. What a step
                led to (the ``next_of`` fields, and those in ``episode_end``) is read at the last of these. The batch
                has one array more, ``"discount"``: ``gamma`` to the power of their number, the factor of the value of
                the next observation.
            gamma: the discount of each step, for ``n_step``.
            reward: the field of the rewards, for ``n_step``.
            return_indices: whether to return the indices of the steps, too. An index stays valid until its step is
                overwritten: see :meth:`take`, and :class:`Prioritized`.
            to: a device of PyTorch, to return tensors: ``"cpu"`` shares the memory of the arrays, ``"cuda"`` copies
                from page-locked memory in the background. Or ``"jax"``, for arrays of JAX on its default device, on a
                CPU without a copy of what has 64 KiB or more, and numbers of less than 8 bytes. Or
                ``"encoded"``, for an ``obscodec.wire.EncodedBatch``.
            convert: called with each array, such as ``mlx.core.array``.

        Returns:
            For each field a new array ``[batch, *shape]``, a tensor, or what ``convert`` returns for it; for a stack of
            ``n`` steps ``[batch, n, *shape]``, the oldest first. Compressed fields on a GPU come as arrays on that GPU.
            With ``return_indices`` a pair, of that and of ``i64[batch]``.

        Raises:
            SlotError: no step is stored, or none can be drawn.
            ShapeError: ``batch`` is negative, or more than there are to draw without replacement; ``p`` has another
                shape, or less room than the buffer; ``n_step`` or ``gamma`` is out of range.
            DTypeError: an argument has another type.
            FieldError: ``n_step`` finds no rewards, or no ``episode_end``.
            SpecError: priorities are drawn with replacement only; ``to`` and ``convert`` exclude each other; ``to`` is
                no device of PyTorch.
            MissingPackage: ``to`` is given, and PyTorch or JAX is not installed.
            BackendUnavailable: PyTorch can't use the device.
        """
        choose = self._reader.chooser(n_step, gamma, reward, to, convert)
        how = as_count("batch", batch, 0), rng, as_flag("replace", replace), p
        returns_indices = as_flag("return_indices", return_indices)

        def draw(span: Span) -> tuple[Ints, Ints, None, Ints | None]:
            steps, envs = self._drawer.steps(span, *how)
            return steps, envs, None, span.indices(steps, envs) if returns_indices else None

        return self._drawn(draw, choose, returns_indices, how[0])

    @says_errors
    def take(
        self,
        indices: npt.ArrayLike,
        *,
        n_step: int | None = None,
        gamma: float | None = None,
        reward: str = "reward",
        to: object = None,
    ) -> Any:
        """The steps with these indices, as :meth:`sample` returns them.

        Args:
            indices: ``i64[batch]``, such as :meth:`sample` returned them.
            n_step: see :meth:`sample`, for this and the other arguments.
            gamma: see there.
            reward: see there.
            to: see there.

        Raises:
            SlotError: a step is overwritten or was taken out, or is not there yet.
            Exception: see :meth:`sample`.
        """
        return self._taken(indices, self._reader.chooser(n_step, gamma, reward, to))

    @says_errors
    def epochs(
        self,
        batch: int,
        rng: Rng = None,
        *,
        n_epochs: int = 1,
        drop_last: bool = False,
        to: object = None,
        return_indices: bool = False,
    ) -> Iterator[Any]:
        """Every step that is stored now, in random order, a batch at a time; and again for further epochs.

        Args:
            batch: steps of a batch; the last one of an epoch has what is left.
            rng: a random generator, of numpy or PyTorch, or a seed; None for one that the system has seeded.
            n_epochs: how many times.
            drop_last: leave a smaller last batch out.
            to: see :meth:`sample`.
            return_indices: whether to return the indices of the steps, too.

        Yields:
            Batches, as :meth:`sample` returns them; with ``return_indices`` pairs, of these and of ``i64[batch]``.

        Raises:
            SlotError: no step is stored; or one was overwritten or taken out since the call.
            Exception: see :meth:`sample`.
        """
        batch, n_epochs = as_count("batch", batch), as_count("n_epochs", n_epochs)
        last, returns_indices = as_flag("drop_last", drop_last), as_flag("return_indices", return_indices)
        choose = self._reader.chooser(to=to)
        with self._lock:
            drawn = self._drawer.epochs(self._span, batch, rng, n_epochs, last)
        if returns_indices:
            return ((self._taken(indices, choose), indices) for indices in drawn)
        return (self._taken(indices, choose) for indices in drawn)

    @says_errors
    def sequences(
        self,
        batch: int,
        length: int,
        rng: Rng = None,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        bootstrap: int = 0,
        dilation: int = 1,
        strict_length: bool = True,
        across_episodes: bool = False,
        starts: npt.ArrayLike | None = None,
        p: npt.ArrayLike | Prioritized | None = None,
        to: object = None,
        return_indices: bool = False,
    ) -> Any:
        """Random sequences of consecutive steps of one environment, uniformly and with replacement.

        A sequence lies in one episode. The batch has one array more, ``"mask"``, ``bool[batch, n]``, where ``n`` is
        ``burn_in + length + bootstrap``: False where a step is missing, which is read as zeros.

        Args:
            batch: how many sequences.
            length: steps of a sequence.
            rng: a random generator, of numpy or PyTorch, or a seed; None for one that the system has seeded.
            overlap: sequences begin only where an episode begins, and ``length - overlap`` steps after one another; the
                last one of an episode begins earlier, to end with it. None to begin anywhere.
            burn_in: so many steps of the episode before each sequence, to warm up a recurrent network; they are missing
                where the episode begins later.
            bootstrap: so many steps behind each sequence, for the values of what follows; they are missing where the
                episode ends earlier.
            dilation: 1 for consecutive steps, ``k`` for every ``k``-th one, also before and behind the sequence.
            strict_length: leave out episodes with fewer steps than ``length``, or than these reach over with
                ``dilation``; False to fill up their ends.
            across_episodes: draw from all steps, whatever ends in between. Steps that the ``mask`` of the buffer
                excludes are missing. A sequence does not cross what :meth:`end_episodes` has ended, if no field says
                so.
            starts: indices of steps to begin at, ``i64[batch]``, instead of drawing them; where their episode ends
                earlier, steps are missing.
            p: the probability of each step to be the first of a sequence, or the priorities of the steps, as
                :meth:`sample` takes them, in place of equal ones; where an episode ends earlier, steps are missing.
            to: see :meth:`sample`.
            return_indices: whether to return the indices of the steps where they begin, after the burn-in, too.

        Returns:
            For each field an array ``[batch, n, *shape]``, or a tensor; with a stack of ``m`` steps
            ``[batch, n, m, *shape]``. With ``return_indices`` a pair, of that and of ``i64[batch]``.

        Raises:
            SlotError: no step is stored; no episode is long enough; or there is no step with such an index.
            FieldError: there is no ``episode_end``; or a field is named ``"mask"``.
            ShapeError: a number is out of range; or ``p`` has another shape, or less room than the buffer.
            SpecError: ``starts`` or ``overlap`` is given with ``p``, which says where sequences begin.
            DTypeError: an argument has another type.
            Exception: see :meth:`sample`.
        """
        batch, length = as_count("batch", batch, 0), as_count("length", length)
        overlap, burn_in = as_option("overlap", overlap, 0), as_count("burn_in", burn_in, 0)
        bootstrap, dilation = as_count("bootstrap", bootstrap, 0), as_count("dilation", dilation)
        if overlap is not None and overlap >= length:
            raise ShapeError(f"overlap must be less than length, {length}, got {overlap}")
        strict, choose = as_flag("strict_length", strict_length), self._reader.chooser(to=to)
        if p is not None and not (starts is None and overlap is None):
            raise SpecError("p says where sequences begin: leave starts and overlap out")
        self._refuse_mask()
        across, returns_indices = as_flag("across_episodes", across_episodes), as_flag("return_indices", return_indices)
        stride = 1 if overlap is None else (length - overlap) * dilation
        offsets, n = dilation * np.arange(-burn_in, length + bootstrap), dilation * (length - 1) + 1
        how = batch, n, rng, stride, offsets, strict, across, starts, p
        return self._drawn(lambda span: self._drawer.sequences(span, *how), choose, returns_indices, batch * length)

    @says_errors
    def sample_episodes(
        self,
        batch: int,
        rng: Rng = None,
        *,
        length: int | None = None,
        to: object = None,
        return_indices: bool = False,
    ) -> Any:
        """Whole random episodes, of those that have ended, uniformly and with replacement, filled up with zeros.

        The oldest episode of an environment may lack its first steps, which are overwritten.

        Args:
            batch: how many episodes.
            rng: a random generator, of numpy or PyTorch, or a seed; None for one that the system has seeded.
            length: how many steps each has in the batch; of longer episodes, the first ones. None for as many as the
                longest one in the batch.
            to: see :meth:`sample`.
            return_indices: whether to return the indices of the first steps, too.

        Returns:
            For each field an array ``[batch, n, *shape]``, or a tensor, and ``"mask"``, ``bool[batch, n]``: False
            behind the end of an episode. With ``return_indices`` a pair, of that and of ``i64[batch]``.

        Raises:
            SlotError: no episode has ended.
            FieldError: there is no ``episode_end``; or a field is named ``"mask"``.
            Exception: see :meth:`sample`.
        """
        batch, length = as_count("batch", batch, 0), as_option("length", length)
        choose, returns_indices = self._reader.chooser(to=to), as_flag("return_indices", return_indices)
        self._refuse_mask()
        how = batch, rng, length
        return self._drawn(lambda span: self._drawer.whole_episodes(span, *how), choose, returns_indices, None)

    def _drawn(
        self,
        draw: Callable[[Span], tuple[Ints, Ints, Bools | None, Ints | None]],
        choose: Callable[..., Read],
        with_indices: bool,
        n: int | None,
    ) -> Any:
        """Draw and read ``n`` steps, or sequences of so many; None if that shows when they are drawn."""
        limiter = self.limiter
        with _AT_ONCE if limiter is None else limiter.turn("sample", n or 0):
            began = perf_counter()
            with self._lock:
                span = self._span
                steps, envs, real, indices = draw(span)
                read = choose(span, steps, envs, real)
            batch = read()
            if limiter is not None and n is None and real is not None:
                limiter.count("sample", int(np.count_nonzero(real)))
            with self._lock:
                self._set.n_samples += 1
                self._set.sample_s += perf_counter() - began
            return (batch, indices) if with_indices else batch

    def _refuse_mask(self) -> None:
        if "mask" in self._set.fields:
            raise FieldError("sequences return a mask: give the field 'mask' another name")

    @says_errors
    def episodes(self, *, unfinished: bool = False, to: object = None) -> Iterator[dict[str, Any]]:
        """The episodes that are stored, one after the other, by environment and time.

        Args:
            unfinished: whether the running episodes are among them.
            to: see :meth:`sample`.

        Yields:
            For each field an array ``[n_steps, *shape]``, or a tensor. The oldest episode of an environment may lack
            its first steps, which are overwritten.

        Raises:
            FieldError: there is no ``episode_end``.
            SlotError: a step was overwritten since the first episode.
            Exception: see :meth:`sample`.
        """
        unfinished, choose = as_flag("unfinished", unfinished), self._reader.chooser(to=to)
        with self._lock:
            parts = self._drawer.episodes(self._span)
        found = zip(parts.envs, parts.begin, parts.end, parts.done | unfinished, strict=True)
        return (self._taken(np.arange(b, e) * self.n_envs + env, choose) for env, b, e, chosen in found if chosen)

    def _taken(self, indices: npt.ArrayLike, choose: Callable[..., Read]) -> Any:
        with self._lock:
            span = self._span
            read = choose(span, *span.steps_of(indices))
        return read()

    @property
    def _span(self) -> Span:
        """Which steps there are now; with the lock."""
        return self._clock.span(self._seams)

    @property
    def _stored_seams(self) -> Seams:
        """The seams among the steps that are stored, those before the oldest one that stacks need among them."""
        return self._seams.since(self._clock.oldest - self._clock.n_before, self.n_envs)

    def _memory_bytes(self) -> int:
        return self._set.memory_bytes(min(self._clock.most_appended + LOOK_EVERY, self._clock.n_rows))

    def _look(self) -> None:
        """Look at the memory, and free what exceeds the limit."""
        self._release()  # what an interrupted call has left
        self._memory.look(self.__len__, self._memory_bytes, self._set.own_stores, self.stats, self._drop)

    def _drop(self, n: int) -> None:
        """Drop the oldest ``n`` steps: first they can't be drawn any more, then their tensors go."""
        self._clock.drop(n)
        self._release()

    def _release(self) -> None:
        """Release the tensors of dropped steps, as far as their rows have no newer steps."""
        for index in self._clock.to_release():
            self._set.drop(index)
        self._clock.released = self._clock.earliest

    @says_memory_error
    def _empty_spare_rows(self) -> None:
        """Release what is where the next steps go, and no reader looks, such as a part of a refused step."""
        self._set.drop(self._clock.next_rows())
        self._is_half_written = False

    def _check_step(
        self, method: str, unnamed: Sequence[object], envs: npt.ArrayLike | None, values: dict[str, Any]
    ) -> tuple[Ints | None, Ints | None]:
        """Check the names of what a method was given.

        Returns the environments, rising, and the order of the values that makes them rise; None twice for all
        environments, and for a change of none.
        """
        if envs is not None and "envs" in self._set.fields:
            values["envs"], envs = envs, None
        self._check_fields(method, unnamed, values)
        if envs is None:
            return None, None
        given = np.atleast_1d(check_envs(envs, self.n_envs))
        order = given.reshape(-1).argsort()
        chosen = given.reshape(-1)[order]
        if given.ndim > 1 or (chosen[1:] == chosen[:-1]).any():
            raise ShapeError(f"a step of each environment has one value, got {reprlib.repr(envs)}: name each once")
        return None if len(chosen) == self.n_envs else chosen, order

    def _check_fields(self, method: str, unnamed: Sequence[object], values: Mapping[str, object]) -> None:
        if unnamed:
            raise DTypeError(
                f"{method} takes each field by its name, got {kind_of(unnamed[0])} without one: write "
                f"{method}(**step) if step is a dictionary of {listed(self.fields)}"
            )
        if values.keys() != self._arrays.keys():
            missing = [f"{name!r} is missing" for name in self.fields if name not in values]
            unknown = [f"{name!r} is none of them" for name in values if name not in self.fields]
            raise FieldError(f"a step has the fields {listed(self.fields)}: {', '.join(missing + unknown)}")

    def _check_changes(self, name: str) -> None:
        """Refuse to change a field of stored steps if more than its values would change."""
        check_name(name, self.fields)
        if name in self.episode_end or name == self.mask:
            what = "tells which steps belong to an episode, and changed would join or divide stored ones"
            raise FieldError(f"{name!r} {what}: change a field of its own, such as the factor of the next value")
        if self._set.stores[name] is not None:
            what = "is compressed, each step against others"
            raise FieldError(f"{name!r} {what}: to change stored steps, declare it with codec=None")
        if {name, self.fields[name].next_of} & self.stack.keys():
            what = "is read as a stack, also of steps that no index names any more"
            raise FieldError(f"{name!r} {what}: to change stored steps, leave it out of stack")

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
            check_name(name, self.fields)
            if name in self.stack and self.fields[name].is_ragged:
                raise FieldError(f"{name!r} has another length in each step: leave it out of stack")
        for name, argument in flags:
            if self._set.fields[name].layout != Layout((), np.bool_):
                raise DTypeError(f"{argument} takes a field bool[], {name!r} is {self.fields[name].described}")
