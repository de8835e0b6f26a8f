"""StepReader: reads the steps of a ring by their numbers, as stacks and n-step returns."""

from __future__ import annotations  # else each sample would evaluate those of its inner functions

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_integers
from obscodec.arrays import DeferredRead, Selection, TensorArray
from obscodec.buffers.drawing import Counts, Ends, NStep, Seams, Stack, TorchBatch, batches_to, of_envs
from obscodec.buffers.field import Array, Field, check_name, lengths_of
from obscodec.buffers.ragged_array import RaggedArray
from obscodec.errors import DTypeError, FieldError, ShapeError, SlotError, SpecError
from obscodec.segments import Bools, Ints
from obscodec.stores import Guard, Store, new_batch
from obscodec.wire import EncodedBatch

Read = Callable[[], Any]
_SCANNED = 1 << 12  # steps at a time, for the begin of an episode


class Span(NamedTuple):
    """Which steps a ring has at one moment: ``n`` of the environment that has most.

    Steps are counted so that the newest one of each environment is ``n - 1``.

    Attributes:
        begin: how many steps an environment had before step 0; a negative number if fewer than ``n`` were appended.
        oldest: the first step that can be drawn: 0 where an environment has ``n`` steps.
        earliest: the first step that stacks may reach; not after ``oldest``.
    """

    begin: Counts
    n: int
    n_envs: int
    oldest: Counts
    earliest: Counts
    seams: Seams

    @property
    def is_ragged(self) -> bool:
        """Whether some environments may have fewer steps than others."""
        return not isinstance(self.oldest, int)

    def indices(self, steps: Ints | np.int64, envs: Ints) -> Ints:
        """``i64[...]``: the indices of steps of environments, as users have them."""
        return (steps + of_envs(self.begin, envs)) * self.n_envs + envs

    def places(self, indices: Ints) -> tuple[Ints, Ints]:
        """The steps and the environments ``i64[...]`` of indices ``i64[...]``."""
        envs = indices % self.n_envs
        steps: Ints = indices // self.n_envs - of_envs(self.begin, envs)
        return steps, envs

    def are_there(self, steps: Ints, envs: Ints) -> Bools:
        """``bool[...]``: whether an environment has a step, which is ``n - 1`` or less."""
        return np.asarray(steps >= of_envs(self.oldest, envs))

    def steps_of(self, indices: npt.ArrayLike) -> tuple[Ints, Ints]:
        """The steps and the environments ``i64[batch]`` with some indices ``[batch]`` of steps that are there."""
        if np.ndim(indices) != 1:
            raise ShapeError(f"indices are an array [batch], got shape {np.shape(indices)}")
        given = as_integers("indices", indices)
        steps, envs = self.places(given)
        there = self.are_there(steps, envs) & (steps < self.n)
        if not there.all():
            wrong, every_env = given[~there], np.arange(self.n_envs)
            oldest = np.broadcast_to(self.oldest, self.n_envs)
            first, last = self.indices(oldest, every_env), self.indices(np.int64(self.n - 1), every_env)
            raise SlotError(
                f"steps with the indices {first.min()} to {last.max()} are stored, got {wrong.min()} to "
                f"{wrong.max()}: earlier ones are overwritten, later ones not appended yet"
            )
        if len(self.seams.gone) and (gone := self.seams.are_gone(given)).any():
            what = "was taken out by drop_episode, or with_envs has put no step there"
            raise SlotError(f"the step with the index {given[gone][0]} {what}")
        return steps, envs

    def stored(self, indices: npt.ArrayLike) -> tuple[Bools, Ints, Ints]:
        """Which of some steps ``[n]`` are there, and these and their environments; SlotError for a later one."""
        given = as_integers("indices", indices)
        steps, envs = self.places(given)
        if not (appended := (given >= 0) & (steps < self.n)).all():
            raise SlotError(f"no step with the index {given[~appended][0]} was appended")
        there = self.are_there(steps, envs)
        return there, steps[there], envs[there]

    def seams_as_ends(self) -> Ends:
        """The ends of what the fields are not asked for."""
        seams = self.seams.since(self.begin + self.oldest, self.n_envs)
        indices = np.union1d(seams.ends, seams.gone)
        counts, envs = np.divmod(indices, self.n_envs)
        return Ends(self.begin + self.n, counts, envs, ~seams.are_gone(indices))


class StepReader:
    """Reads what steps of a ring have. It keeps no count of steps: each call says which there are.

    Args:
        fields: the fields of a step.
        arrays: of each field an array, a TensorArray or a RaggedArray ``[n_rows, n_envs, *shape]``; step ``k`` of all
            that were appended is in row ``k % n_rows``.
        stacks: the fields that are read as stacks.
        episode_end: boolean fields, of which one is true in the last step of an episode.
        mask: a boolean field that is false in steps of no episode, None for none.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        arrays: Mapping[str, Any],
        stacks: Mapping[str, Stack],
        episode_end: tuple[str, ...],
        mask: str | None,
        n_rows: int,
    ) -> None:
        self._fields, self._arrays, self._stacks = fields, arrays, stacks
        self._episode_end, self.mask = episode_end, mask
        self._n_rows = n_rows
        # What a step led to.
        later = {name for name, of in fields.items() if of.next_of is not None}
        self._outcomes = {*later, *map(lengths_of, later), *episode_end}

    def only(self, names: Iterable[str], *, stacked: bool = True) -> StepReader:
        """A reader of some fields, in the same arrays; with ``stacked=False``, it reads no stacks."""
        wanted = [names] if isinstance(names, str) else [*names]
        for name in wanted:
            check_name(name, self._fields)
        wanted += [lengths_of(name) for name in wanted if self._fields[name].is_ragged]
        fields = {name: self._fields[name] for name in wanted}
        stacks = self._stacks if stacked else {}
        return StepReader(fields, self._arrays, stacks, self._episode_end, self.mask, self._n_rows)

    def rows(self, span: Span, steps: Ints, envs: Ints) -> Ints:
        """The rows of steps of environments in the arrays."""
        return (steps + of_envs(span.begin, envs) % self._n_rows) % self._n_rows

    def ends(self, span: Span, steps: Ints, envs: Ints) -> Bools:
        """Whether the episode of a step ends with it."""
        flags = [self._flags(span, name, steps, envs) for name in self._episode_end]
        if self.mask is not None:
            flags.append(~self._flags(span, self.mask, steps, envs))
        if not flags or len(span.seams.ends):
            flags.append(span.seams.are_ends(span.indices(steps, envs)))
        if span.is_ragged:  # no step is there before the first one
            flags.append(steps < of_envs(span.earliest, envs))
        return flags[0] if len(flags) == 1 else np.logical_or.reduce(flags)

    def drawable(self, span: Span, steps: Ints, envs: Ints) -> Bools:
        """Whether steps may be drawn."""
        there = self.there(span, steps, envs)
        if self.mask is None:
            return np.ones(np.broadcast_shapes(steps.shape, envs.shape), np.bool_) if there is None else there
        drawn = self._flags(span, self.mask, steps, envs)
        return drawn if there is None else drawn & there

    def there(self, span: Span, steps: Ints, envs: Ints) -> Bools | None:
        """Which steps are there and were not taken out; None for all."""
        there = span.are_there(steps, envs) if span.is_ragged else None
        if len(span.seams.gone):
            kept = ~span.seams.are_gone(span.indices(steps, envs))
            there = kept if there is None else there & kept
        return there

    def scan(self, span: Span, steps: Ints) -> tuple[Bools, Bools]:
        """Whether an episode ends with each of some steps, ``bool[n, n_envs]``, or draws go around it; and which."""
        at = steps[:, None], np.arange(span.n_envs)
        drawable = self.drawable(span, *at)
        return self.ends(span, *at) | ~drawable, drawable

    def running_since(self, span: Span, env: int) -> int:
        """The step with which the running episode of an environment begins; ``span.n`` if none is running."""
        end = span.n
        while end > 0:
            steps = np.arange(max(0, end - _SCANNED), end)
            ends = np.flatnonzero(self.ends(span, steps, np.full(len(steps), env)))
            if len(ends):
                return int(steps[ends[-1]]) + 1
            end = int(steps[0])
        return 0

    def n_inside(self, span: Span, n: int, steps: Ints, envs: Ints) -> Ints:
        """``i64[...]``, 1 to ``n``: how many of the ``n`` steps up to each are stored and of its episode."""
        before, envs = steps[..., None] - np.arange(1, n), envs[..., None]
        if isinstance(span.earliest, int) and steps.min(initial=span.n) - n >= span.earliest:  # as in most batches
            ends = self.ends(span, before, envs)
            if not np.count_nonzero(ends):  # takes less than ``any``
                return np.full(ends.shape[:-1], n)
            goes_on = ~ends
        else:
            is_stored = before >= of_envs(span.earliest, envs)
            goes_on = is_stored & ~self.ends(span, np.where(is_stored, before, steps[..., None]), envs)
        n_inside: Ints = 1 + np.logical_and.accumulate(goes_on, axis=-1).sum(axis=-1)
        return n_inside

    def read(
        self,
        span: Span,
        steps: Ints,
        envs: Ints,
        *,
        last: Ints | None = None,
        real: Bools | None = None,
        new_array: Callable[[Store, int], Any] = new_batch,
        convert: Callable[[Array], Any] | None = None,
    ) -> DeferredRead:
        """The steps ``i64[...]`` of the environments ``i64[...]``, of which nothing is decoded yet.

        If a step stands for several, what comes after it, and whether its episode ends, is read at the ``last`` of
        these. Steps that are not ``real`` are zeros. The other arguments are those of ``DeferredRead``.
        """
        picked, guards = dict[str, Any](), dict[Store, Guard]()
        here = steps, self.rows(span, steps, envs)
        there = here if last is None else (last, self.rows(span, last, envs))
        for name in self._fields:
            array, (at, rows) = self._arrays[name], there if name in self._outcomes else here
            if isinstance(array, RaggedArray):
                picked[name] = array.select(rows, envs, real)
                continue
            is_stored = isinstance(array, TensorArray)
            items = array.ids if is_stored else array
            found = np.asarray(items[rows, envs]) if name not in self._stacks else self._stacked(span, name, at, envs)
            if real is not None:
                found[~real] = 0  # zeros, or the id of the zero tensor
            if is_stored:
                if array.store not in guards:
                    guards[array.store] = array.store.guard()
                found = Selection(array.store, found, guards[array.store])
            picked[name] = found
        return DeferredRead(picked, new_array, convert)

    def choose(self, span: Span, steps: Ints, envs: Ints, real: Bools | None = None) -> Read:
        """Choose steps, see :meth:`read`, with the lock of the ring; the result reads them, without the lock."""
        chosen = self.read(span, steps, envs, real=real)
        return chosen.result if real is None else lambda: {**chosen.result(), "mask": real}

    def chooser(
        self,
        n_step: object = None,
        gamma: object = None,
        reward: str = "",
        to: object = None,
        convert: Callable[[Array], Any] | None = None,
    ) -> Callable[..., Read]:
        """:meth:`choose` with these arguments of ``RingBuffer.sample``, which are checked before it is called."""
        if n_step is gamma is to is convert is None:
            return self.choose
        is_encoded = isinstance(to, str) and to == "encoded"
        if is_encoded and convert is not None:
            raise SpecError("nothing is decoded that convert could be called with: leave it out, or to='encoded'")
        batches = batches_to(None if is_encoded else to, convert)
        n_steps = NStep.of(n_step, gamma)
        if n_steps is not None:
            self._check_n_step(reward)

        def choose(span: Span, steps: Ints, envs: Ints, real: Bools | None = None) -> Read:
            more: dict[str, Any] = {} if real is None else {"mask": real}
            last = steps
            if n_steps is not None:
                last = n_steps.last(steps, envs, span.n, partial(self.ends, span), partial(self.drawable, span))
                length = int((last - steps).max(initial=0)) + 1
                window = np.minimum(steps[:, None] + np.arange(length), last[:, None])
                rewards: Any = self._arrays[reward][self.rows(span, window, envs[:, None]), envs[:, None]]
                more[reward], more["discount"] = n_steps.returns(rewards, last - steps + 1)
            at_once = batches.tensor if isinstance(batches, TorchBatch) else None  # all items of a store
            chosen = self.read(span, steps, envs, last=last, real=real, new_array=batches.new_array, convert=at_once)

            def read() -> Any:
                if is_encoded:
                    return EncodedBatch.of(chosen, more)
                return batches.batch(chosen.result() | more)

            return read

        return choose

    def _check_n_step(self, reward: str) -> None:
        if not isinstance(reward, str) or reward not in self._fields:
            names = ", ".join(self._fields)
            raise FieldError(
                f"n_step adds rewards, and no field is named {reward!r}, there are {names}: pass reward, the "
                "name of one"
            )
        if "discount" in self._fields:
            raise FieldError("n_step returns a discount: give the field 'discount' another name")
        if not self._episode_end:
            raise FieldError("n_step needs episode_end, the boolean field that is true in the last step of an episode")
        for name, of in self._fields.items():
            if of.after > 1:
                raise FieldError(f"{name!r} comes {of.after} steps later, so rewards are sums: leave n_step out")
        if reward in self._stacks:
            raise FieldError(f"n_step adds single rewards: leave {reward!r} out of stack")
        dtype = self._fields[reward].layout.dtype
        if dtype.kind != "f":
            raise DTypeError(f"n_step adds rewards of float16, float32 or float64, field {reward!r} is {dtype}")

    def _stacked(self, span: Span, name: str, steps: Ints, envs: Ints) -> Any:
        """The items of a field in the stacks of some steps, ids if it is compressed."""

        def items(of: str, at: Ints) -> Any:
            array = self._arrays[of]
            among = array.ids if isinstance(array, TensorArray) else array
            return np.asarray(among[self.rows(span, at, envs[..., None]), envs[..., None]])

        stack = self._stacks[name]
        return stack.pick(items, name, steps, self.n_inside(span, stack.n, steps, envs))

    def _flags(self, span: Span, name: str, steps: Ints, envs: Ints) -> Bools:
        return np.asarray(self._arrays[name][self.rows(span, steps, envs), envs]).astype(np.bool_, copy=False)
