"""Rearranged: the steps of a buffer, laid out for another number of environments."""

from collections.abc import Callable
from heapq import heappop, heapreplace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from obscodec.arguments import warn
from obscodec.buffers.drawing import Ends, Episodes
from obscodec.errors import SlotError
from obscodec.segments import Bools, Ints

NOTHING = -1  # in the place of an environment, or a number


class Rearranged(NamedTuple):
    """Which step of which environment goes where, by the numbers of steps, counted from the oldest one.

    Each column is for an environment. It has parts of episodes in the order of time, whole episodes if possible: an
    episode is cut where a column is full. All columns are about equally far at all times, so that the oldest steps
    go first as before.

    Attributes:
        steps: ``i64[n_rows, n_envs]``, the steps; those before the oldest one, of stacks, have numbers below 0.
        envs: ``i64[n_rows, n_envs]``, their environments until now; -1 where there is no step.
        drawn: ``bool[n_rows, n_envs]``: False where there is no step, or one that only stacks need.
        ends: ``bool[n_rows, n_envs]``: whether what comes next is not what came next until now.
        n_left_out: how many of the oldest steps have no place.

    Example:
        >>> def scan(steps):  # an episode of 3 steps, then one of 5
        ...     return np.isin(steps, [2, 7])[:, None], np.ones((len(steps), 1), np.bool_)
        >>> Rearranged.of(8, 1, 2, 4, scan).steps.T.tolist()
        [[0, 1, 2, 7], [3, 4, 5, 6]]
    """

    steps: Ints
    envs: Ints
    drawn: Bools
    ends: Bools
    n_left_out: int

    @classmethod
    def of(
        cls,
        n_steps: int,
        n_envs: int,
        n_columns: int,
        capacity: int,
        scan: Callable[[Ints], tuple[Bools, Bools]],
        before: Callable[[Ints, Ints], Ints] | None = None,
        reach: int = 0,
    ) -> Self:
        """The steps of a buffer.

        Args:
            n_steps: how many steps of each environment it has.
            n_envs: how many environments it has.
            n_columns: how many environments there will be.
            capacity: for how many steps of each of these there is room, besides those that only stacks need.
            scan: called with steps ``i64[n]``; it returns ``bool[n, n_envs]`` twice: whether an episode ends with the
                step, and whether it belongs to the episode.
            before: called with steps and their environments, ``i64[n]``; returns how many steps before each its stack
                has. Then places may stay empty. With None, all places of the rows are filled: fewer than
                ``n_columns`` of the oldest steps are left out.
            reach: how many steps before another one a stack has at most.
        """
        parts = Episodes.between(Ends().up_to(0, n_steps, lambda back: scan(back + n_steps)), 0, n_steps, n_envs)
        order = np.lexsort((parts.envs, parts.begin))
        envs, first, end = parts.envs[order], parts.begin[order], parts.end[order]
        n_left_out = 0 if before else int((end - first).sum()) % n_columns
        while True:
            begin = first + _n_of_oldest(first, end, n_left_out)
            context = before(np.minimum(begin, end - 1), envs) if before else np.zeros_like(begin)
            there = begin < end
            of_parts = begin[there], end[there], envs[there], context[there]
            made = cls._laid_out(_placed(*of_parts, n_columns, reach), n_columns, n_left_out)
            n_above = int(made.drawn[:-capacity].sum()) if len(made.steps) > capacity else 0
            if not n_above:
                return made._replace(**{name: getattr(made, name)[-capacity - reach :] for name in cls._fields[:4]})
            n_left_out += n_above

    @classmethod
    def _laid_out(cls, placed: Ints, n_columns: int, n_left_out: int) -> Self:
        """The steps of ``i64[n, 6]``: column, row, environment, first step, first drawn step, end of each part."""
        column, row, env, first, drawn, end = placed.T
        lengths = end - first
        heights = np.bincount(column, lengths, n_columns).astype(np.int64)
        n_rows = int(heights.max(initial=0))
        row = row + (n_rows - heights)[column]  # the newest steps come last
        offset = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        at = np.repeat(row, lengths) + offset, np.repeat(column, lengths)
        steps, envs = np.full((2, n_rows, n_columns), NOTHING, np.int64)
        is_drawn, ends = np.zeros((n_rows, n_columns), np.bool_), np.ones((n_rows, n_columns), np.bool_)
        steps[at], envs[at] = np.repeat(first, lengths) + offset, np.repeat(env, lengths)
        is_drawn[at] = offset >= np.repeat(drawn - first, lengths)
        ends[:-1] = (steps[1:] != steps[:-1] + 1) | (envs[1:] != envs[:-1])
        return cls(steps, envs, is_drawn, ends, n_left_out)

    def numbers(self, rows: Ints, n_envs: int) -> Ints:
        """``i64[n_rows, n_envs]``: the numbers of the items that go there, row by row of a buffer; -1 for none.

        ``rows``, ``i64[n_rows, n_envs]``, are those of :attr:`steps` in the buffer, which has ``n_envs``.
        """
        return np.where(self.envs == NOTHING, NOTHING, rows * n_envs + self.envs)

    @staticmethod
    def picked(items: npt.NDArray[Any], numbers: Ints) -> npt.NDArray[Any]:
        """A new array ``[n_rows, n_envs, ...]`` of the items with some :meth:`numbers`; zeros for -1."""
        made, there = np.zeros((*numbers.shape, *items.shape[2:]), items.dtype), numbers != NOTHING
        made[there] = items.reshape(-1, *items.shape[2:])[numbers[there]]
        return made

    @staticmethod
    def refuse_running(envs: Ints, whose: str = "") -> None:
        """Refuse to lay out a buffer if episodes are running in some environments: SlotError."""
        if len(envs):
            which = "environment" + "s" * (len(envs) > 1) + " " + ", ".join(map(str, envs.tolist())) + whose
            what = f"the newest step of {which} ends no episode, and no environment would go on with it"
            raise SlotError(f"{what}: call end_episodes() first")

    def warn(self) -> None:
        """Warn if steps have no place."""
        if self.n_left_out:
            n, n_envs = int(self.drawn.sum()), self.steps.shape[1]
            warn(
                f"{n + self.n_left_out} steps can't all be kept in {n_envs} environments: the oldest "
                f"{self.n_left_out} are left out, {n} stay",
            )


def places_before(numbers: Ints) -> Ints:
    """``i64[n_rows, n_envs]``: the place, row by row, that has the same item before this one; -1 for none."""
    _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    places: Ints = first[which].reshape(numbers.shape)
    return np.where((numbers == NOTHING) | (places == np.arange(numbers.size).reshape(numbers.shape)), NOTHING, places)


def _n_of_oldest(first: Ints, end: Ints, n: int) -> Ints:
    """How many steps of each part are among the oldest ``n`` of all."""
    lengths = end - first
    part = np.repeat(np.arange(len(first)), lengths)
    steps = np.arange(len(part)) - np.repeat(np.cumsum(lengths) - lengths - first, lengths)
    return np.bincount(part[np.argsort(steps, kind="stable")[:n]], minlength=len(first))


def _placed(begin: Ints, end: Ints, envs: Ints, context: Ints, n_columns: int, reach: int) -> Ints:
    """See :meth:`Rearranged._laid_out`: each part goes to the column that is least filled."""
    parts = [*zip(*(x.tolist() for x in (envs, begin, end, context)), strict=True)]
    least = -(-int((end - begin + context).sum()) // n_columns)
    # At each cut, the steps that stacks need come a second time, and a column may have no room for more than these.
    for n_rows in range(least, least + 2 * reach + 1):
        placed = _placed_in(n_rows, parts, n_columns, reach)
        if placed is not None:
            break
    return np.array(placed, np.int64).reshape(-1, 6)


def _placed_in(
    n_rows: int, parts: list[tuple[int, int, int, int]], n_columns: int, reach: int
) -> list[tuple[int, int, int, int, int, int]] | None:
    """Parts in columns of ``n_rows``; None if there is not enough room."""
    open_columns, placed = [(0, column) for column in range(n_columns)], []
    for env, first, last, n_before in parts:
        while first < last:
            if not open_columns:
                return None
            filled, column = open_columns[0]
            n = min(last - first, n_rows - filled - n_before)
            if n <= 0:
                heappop(open_columns)
                continue
            placed.append((column, filled, env, first - n_before, first, first + n))
            heapreplace(open_columns, (filled + n_before + n, column))
            first, n_before = first + n, min(reach, n_before + n)
    return placed
