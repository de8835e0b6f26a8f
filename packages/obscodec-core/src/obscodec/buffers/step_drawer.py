"""StepDrawer: draws the steps of a ring: random ones, sequences of them, episodes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from obscodec.buffers.drawing import (
    Counts,
    Ends,
    Episodes,
    Prioritized,
    Rng,
    as_generator,
    draw,
    draw_starts,
    drawable_steps,
    no_greater,
    of_envs,
)
from obscodec.buffers.step_reader import Span, StepReader
from obscodec.errors import FieldError, ShapeError, SlotError, SpecError
from obscodec.segments import Bools, Ints


class StepDrawer:
    """Draws steps of a ring, by their numbers; of its calls, it remembers where the episodes are.

    The ``reader`` tells where episodes end, if it ``knows_ends``, and which steps may be drawn.
    """

    def __init__(self, reader: StepReader, capacity: int, *, knows_ends: bool) -> None:
        self._reader, self._capacity, self._knows_ends = reader, capacity, knows_ends
        self._ends = Ends()
        self._found: tuple[tuple[Counts, Counts], Episodes] | None = None  # between these steps

    def steps(
        self, span: Span, batch: int, rng: Rng, replace: bool, p: npt.ArrayLike | Prioritized | None
    ) -> tuple[Ints, Ints]:
        """Random steps and their environments, ``i64[batch]`` each; see ``RingBuffer.sample``."""
        _refuse_empty(span)
        if isinstance(p, Prioritized):
            if not replace:
                raise SpecError("priorities are drawn with replacement: leave replace out")
            return span.places(self._by_priority(span, batch, as_generator(rng), p))
        drawable = None if self._draws_all(span) else partial(self._reader.drawable, span)
        return draw(rng, batch, (span.n, span.n_envs), drawable, replace, p)

    def _by_priority(self, span: Span, batch: int, rng: np.random.Generator, p: Prioritized) -> Ints:
        n_steps = self._capacity * span.n_envs
        if p.capacity < n_steps:  # else it fails when that many are stored, hours later
            raise ShapeError(
                f"Prioritized has room for {p.capacity} steps, the buffer for {n_steps}, {self._capacity} of each of "
                f"{span.n_envs} environments: make a Prioritized({n_steps})"
            )
        first, end = span.begin + span.oldest, span.begin + span.n
        of_items = (first * span.n_envs, end * span.n_envs)
        if span.is_ragged:  # each environment has items of its own
            of_items = (of_items[0] + np.arange(span.n_envs), of_items[1] + np.arange(span.n_envs))
        masked = np.empty(0, np.int64)
        if not self._draws_all(span):
            new = p.new_items(*of_items)
            masked = new[~self._reader.drawable(span, *span.places(new))]
        p.advance(*of_items, masked)
        drawn = p.sample(batch, rng)
        if len(span.seams.gone) and span.seams.are_gone(drawn).any():  # taken out since they were new
            p.exclude(span.seams.since(first, span.n_envs).gone)
            drawn = p.sample(batch, rng)
        return drawn

    def epochs(self, span: Span, batch: int, rng: Rng, n_epochs: int, drop_last: bool) -> Iterator[Ints]:
        """The indices of all steps in random order, ``i64[batch]`` at a time; see ``RingBuffer.epochs``."""
        _refuse_empty(span)
        drawable = partial(self._reader.drawable, span)
        # One of its own: a fork could come in the middle of a draw, which is made without the lock of the ring.
        shuffles = np.random.default_rng() if rng is None else as_generator(rng)
        among = span.indices(*np.divmod(drawable_steps((span.n, span.n_envs), drawable), span.n_envs))

        def batches() -> Iterator[Ints]:
            for _ in range(n_epochs):
                order = shuffles.permutation(among)
                for begin in range(0, len(order) - (batch - 1 if drop_last else 0), batch):
                    yield order[begin : begin + batch]

        return batches()

    def sequences(
        self,
        span: Span,
        batch: int,
        length: int,
        rng: Rng,
        stride: int,
        offsets: Ints,
        strict: bool,
        across: bool,
        starts: npt.ArrayLike | None,
        p: npt.ArrayLike | Prioritized | None,
    ) -> tuple[Ints, Ints, Bools, Ints]:
        """Random sequences, see ``RingBuffer.sequences``.

        They begin every ``stride`` steps, reach over ``length`` steps, and have those ``offsets``, ``i64[n]``, after
        the first one. Returns steps and their environments, ``i64[batch, n]`` both, which of them are real, and the
        indices where sequences begin.
        """
        _refuse_empty(span)
        generator, parts = as_generator(rng), self.episodes(span, across_seams_alone=across)
        if starts is None and p is None:
            part, start = draw_starts(generator, parts, batch, length, stride, strict)
        else:
            steps, envs = self.steps(span, batch, generator, True, p) if starts is None else span.steps_of(starts)
            if len(steps) != batch:
                what = f"batch is {batch}, and there are {len(steps)} starts"
                raise ShapeError(f"{what}: pass a start for each sequence")
            start = steps + of_envs(span.begin, envs)
            part = parts.find(start, envs)
        steps, envs, real = self._of_parts(span, parts, part, start, offsets)
        if across:
            real &= self._reader.drawable(span, steps, envs)
        return steps, envs, real, start * span.n_envs + parts.envs[part]

    def whole_episodes(self, span: Span, batch: int, rng: Rng, length: int | None) -> tuple[Ints, Ints, Bools, Ints]:
        """Random episodes that have ended, as :meth:`sequences` returns them; see ``RingBuffer.sample_episodes``."""
        _refuse_empty(span)
        parts = self.episodes(span)
        ended = np.flatnonzero(parts.done)
        if not len(ended):
            raise SlotError("no episode has ended: append more steps, or call end_episodes")
        part = as_generator(rng).choice(ended, batch)
        begin = parts.begin[part]
        longest = int((parts.end[part] - begin).max(initial=0))
        steps, envs, real = self._of_parts(span, parts, part, begin, np.arange(length or longest))
        return steps, envs, real, begin * span.n_envs + parts.envs[part]

    def _of_parts(
        self, span: Span, parts: Episodes, part: Ints, start: Ints, offsets: Ints
    ) -> tuple[Ints, Ints, Bools]:
        """The steps of parts, ``offsets`` after their ``start``; their environments, and which of them are real."""
        steps = start[:, None] + offsets
        real = (steps >= parts.begin[part][:, None]) & (steps < parts.end[part][:, None])
        envs = np.broadcast_to(parts.envs[part][:, None], steps.shape)
        steps = np.asarray(np.where(real, steps, start[:, None]) - of_envs(span.begin, envs), np.int64)
        return steps, envs, real

    def episodes(self, span: Span, *, across_seams_alone: bool = False) -> Episodes:
        """The episodes, of which only new steps are looked at; or the parts between what no field says."""
        steps = span.begin + span.oldest, span.begin + span.n
        if across_seams_alone:
            return Episodes.between(span.seams_as_ends(), *steps, span.n_envs)
        if not self._knows_ends:
            raise FieldError("episodes end where episode_end is true: pass it, the name of a boolean field")
        if self._found is None or not all(map(no_greater, steps, self._found[0])):  # they never fall
            self._ends = ends = self._ends.up_to(*steps, lambda back: self._reader.scan(span, back + span.n))
            self._found = steps, Episodes.between(ends, *steps, span.n_envs)
        return self._found[1]

    def _draws_all(self, span: Span) -> bool:
        return self._reader.mask is None and not len(span.seams.gone) and not span.is_ragged

    def forget(self, step: Counts) -> None:
        """Look for the episodes again from a step of each environment on, which counts all that were appended."""
        self._found = None
        self._ends = self._ends.before(step)


def _refuse_empty(span: Span) -> None:
    if not span.n:
        raise SlotError("the buffer is empty: append a step before you sample")
