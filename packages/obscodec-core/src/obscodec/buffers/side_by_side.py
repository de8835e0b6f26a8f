"""SideBySide: buffers whose environments step together from now on."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from obscodec.arguments import check_kind
from obscodec.buffers.rearranged import NOTHING, Rearranged
from obscodec.buffers.step_reader import Span, StepReader
from obscodec.errors import FieldError
from obscodec.segments import Bools, Ints


class SideBySide:
    """The steps of several buffers as those of one that has all their environments; the newest steps are in one row.

    A stack has at most ``reach`` steps before another one.
    """

    def __init__(self, buffers: Sequence[tuple[Span, StepReader]], reach: int) -> None:
        self._buffers, self._reach = buffers, reach
        self._n_steps = max(span.n for span, _ in buffers)
        *self._first_envs, self._n_envs = accumulate((span.n_envs for span, _ in buffers), initial=0)

    def rearranged(self, n_envs: int, capacity: int) -> Rearranged:
        """The steps for other environments; SlotError if episodes are running."""
        for k, (span, reader) in enumerate(self._buffers):
            envs = np.arange(span.n_envs if span.n else 0)
            running = envs[~reader.ends(span, np.full(len(envs), span.n - 1), envs)]
            Rearranged.refuse_running(running, "" if len(self._buffers) == 1 else f" of the buffer at position {k}")
        return Rearranged.of(self._n_steps, self._n_envs, n_envs, capacity, self._scan, self._n_before, self._reach)

    def part(self, k: int, rearranged: Rearranged) -> tuple[Ints, Bools]:
        """What buffer ``k`` has among the steps.

        Returns:
            ``i64[n_rows, n_envs]``, see ``Rearranged.numbers``, -1 where there is no step of this buffer; and
            ``bool[n_rows, n_envs]``, whether it says that an episode ends there.
        """
        (span, reader), envs = self._buffers[k], rearranged.envs - self._first_envs[k]
        steps, mine = self._own(k, rearranged.steps), (envs >= 0) & (envs < span.n_envs)
        envs = np.where(mine, envs, 0)
        numbers = np.where(mine, reader.rows(span, steps, envs) * span.n_envs + envs, NOTHING)
        return numbers, mine & span.seams.are_ends(span.indices(steps, envs))

    def _own(self, k: int, steps: Ints) -> Ints:
        """Numbers of steps as buffer ``k`` counts them."""
        return steps - (self._n_steps - self._buffers[k][0].n)

    def _scan(self, steps: Ints) -> tuple[Bools, Bools]:
        """See ``StepReader.scan``; before the oldest step of a buffer there is nothing."""
        ends, belongs = np.ones((len(steps), self._n_envs), np.bool_), np.zeros((len(steps), self._n_envs), np.bool_)
        for k, (span, reader) in enumerate(self._buffers):
            there = np.s_[self._own(k, steps) >= 0, self._first_envs[k] : self._first_envs[k] + span.n_envs]
            ends[there], belongs[there] = reader.scan(span, self._own(k, steps[there[0]]))
        return ends, belongs

    def _n_before(self, steps: Ints, envs: Ints) -> Ints:
        """``i64[n]``: how many steps before each its stack has."""
        found, of_buffer = np.zeros_like(steps), np.searchsorted(self._first_envs, envs, "right") - 1
        for k, (span, reader) in enumerate(self._buffers):
            mine = of_buffer == k
            own = self._own(k, steps[mine]), envs[mine] - self._first_envs[k]
            found[mine] = reader.n_inside(span, self._reach + 1, *own) - 1
        return found


def check_alike(buffers: Sequence[Any], kind: type[object]) -> None:
    """Refuse buffers whose steps can't be put together; FieldError tells what differs."""
    check_kind("buffers", buffers, (list, tuple), "a list of RingBuffers")
    for buffer in buffers:
        check_kind("a buffer", buffer, kind, "a RingBuffer")
    if not buffers:
        raise FieldError("there are no buffers: pass one or more")
    first, *others = (
        {f"field {name!r}": f"{of.layout} on {of.device}, next_of {of.next_of}" for name, of in buffer.fields.items()}
        | {name: getattr(buffer, name) for name in ("stack", "pad", "episode_end", "mask")}
        for buffer in buffers
    )
    for k, other in enumerate(others, 1):
        for what in first | other:
            if (mine := first.get(what)) != (its := other.get(what)):
                where = f"{what} is {mine} in the first one, {its} in that at position {k}"
                raise FieldError(f"buffers that are put together are alike: {where}")
