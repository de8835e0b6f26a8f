"""Clock: how many steps each environment of a ring has had, and which of them are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from obscodec.buffers.drawing import Counts, Seams, greater, most, of_envs
from obscodec.buffers.rearranged import NOTHING
from obscodec.buffers.step_reader import Span
from obscodec.segments import Ints
from obscodec.state import State, array_of, check_range, number_of

_MOST_INDICES = 1 << 62  # of steps and environments; numpy counts to twice as many


class Clock:
    """How many steps each environment has had, and which of them are there.

    The steps of an environment are counted on and on. While all environments step together, a count is a number; from
    the first step of some of them on, it is ``i64[n_envs]``, and a change makes another array. All calls are made with
    the lock of the ring.

    Args:
        capacity: how many steps of each environment can be drawn.
        n_before: how many steps before the oldest of these its stack needs.

    Attributes:
        n_rows: how many rows the arrays of the ring have: step ``k`` is in row ``k % n_rows``. One more than steps: the
            next step is written into the row without a step, then counted in one line.
        appended: how many steps there were.
        first: no step before this one can be drawn, for want of bytes.
        earliest: none before this one belongs to a stack.
        released: and none before this one has tensors.
    """

    def __init__(self, capacity: int, n_before: int, n_envs: int) -> None:
        self.capacity, self.n_before, self._n_envs = capacity, n_before, n_envs
        self.n_rows = capacity + n_before + 1
        self.appended: Counts = 0
        self.first: Counts = 0
        self.earliest: Counts = 0
        self.released: Counts = 0

    @property
    def oldest(self) -> Counts:
        """The number of the oldest step that can be drawn."""
        return greater(self.first, self.appended - self.capacity)

    def __len__(self) -> int:
        """How many steps there are, of the environment that has most."""
        return most(self.appended - self.oldest)

    @property
    def n_appended(self) -> int:
        """How many steps there were, of an environment in the mean."""
        return self.appended if isinstance(self.appended, int) else int(self.appended.sum()) // self._n_envs

    @property
    def most_appended(self) -> int:
        """The same of the environment that had most."""
        return most(self.appended)

    @property
    def n_stored(self) -> int:
        """How many steps there are, of all environments together."""
        return int(np.sum(np.broadcast_to(self.appended - self.oldest, self._n_envs)))

    def span(self, seams: Seams) -> Span:
        """Which steps there are now."""
        end, first = self.appended, self.first
        if isinstance(end, int) and isinstance(first, int):  # at once: each draw begins with it
            at = max(first, end - self.capacity)
            return Span(at, end - at, self._n_envs, 0, greater(self.earliest, end - self.n_rows + 1) - at, seams)
        n, oldest = len(self), self.oldest
        earliest, begin = greater(self.earliest, self.appended - self.n_rows + 1), self.appended - n
        return Span(begin, n, self._n_envs, oldest - begin, earliest - begin, seams)

    def indices(self) -> range | Ints:
        """The indices of the steps that can be drawn, rising: see ``RingBuffer.indices``."""
        appended, oldest, n_envs = self.appended, self.oldest, self._n_envs
        if isinstance(appended, int) and isinstance(oldest, int):
            return range(oldest * n_envs, appended * n_envs)
        span, envs = self.span(Seams()), np.arange(n_envs)
        steps = np.arange(span.n)[:, None]
        return np.sort(span.indices(steps, envs)[span.are_there(steps, envs)])

    def next_rows(self, envs: Ints | None = None) -> Any:
        """Where the next step goes in the arrays: a row, or the rows and the environments ``i64[n]``."""
        if envs is None:
            if isinstance(self.appended, int):
                return self.appended % self.n_rows
            envs = np.arange(self._n_envs)
        return np.broadcast_to(of_envs(self.appended, envs), len(envs)) % self.n_rows, envs

    def count(self, envs: Ints | None = None) -> None:
        """Count the step that was written: of all environments, or of ``i64[n]``."""
        if envs is None:
            self.appended = self.appended + 1
        else:
            appended = np.full(self._n_envs, self.appended)
            appended[envs] += 1
            self.appended = appended

    def drop(self, n: int) -> None:
        """Count the oldest ``n`` steps as gone: they can't be drawn any more."""
        begin = self.appended - len(self)
        self.first = greater(self.oldest, begin + n)
        self.earliest = greater(self.earliest, self.first - self.n_before)

    def clear(self) -> None:
        """Count all steps as gone."""
        self.first = self.earliest = self.appended

    def to_release(self) -> Iterator[Any]:
        """Where the arrays have tensors of gone steps, as far as no newer steps are there: indices of the arrays."""
        begin, end, n_rows = greater(self.released, self.appended - self.n_rows), self.earliest, self.n_rows
        if isinstance(begin, int) and isinstance(end, int):
            while begin < end:
                row = begin % n_rows
                stop = min(end, begin - row + n_rows)
                yield slice(row, row + stop - begin)
                begin = stop
            return
        lengths = np.maximum(end - begin, 0) + np.zeros(self._n_envs, np.int64)
        envs = np.repeat(np.arange(self._n_envs), lengths)
        before = np.cumsum(lengths) - lengths
        steps = np.arange(len(envs)) + np.repeat(begin - before, lengths)
        yield steps % n_rows, envs

    def resized(self, capacity: int) -> tuple[Clock, Ints]:
        """The clock of a ring with another capacity that has the same steps, or the newest of them.

        Returns it, and what is in the rows of the other ring: ``i64[n_rows, n_envs]``, see ``Rearranged.numbers``.
        """
        made, envs = Clock(capacity, self.n_before, self._n_envs), np.arange(self._n_envs)
        made.appended, made.first = self.appended, self.oldest
        made.earliest = made.released = greater(self.earliest, self.appended - min(self.n_rows, made.n_rows) + 1)
        last, rows = np.broadcast_to(self.appended, self._n_envs) - 1, np.arange(min(self.most_appended, made.n_rows))
        steps = last - (last - rows[:, None]) % made.n_rows
        return made, np.where(steps >= made.earliest, steps % self.n_rows * self._n_envs + envs, NOTHING)

    def state(self) -> State:
        """The counts: see ``obscodec.state``; of environments that do not step together, arrays."""
        counts = {"n_appended": self.appended, "first": self.first, "earliest": self.earliest}
        if not isinstance(self.appended, int):
            counts = {name: np.array(np.broadcast_to(of, self._n_envs)) for name, of in counts.items()}
        return {**counts, "n_rows": self.n_rows}

    def restore(self, state: State) -> Ints:
        """Take over the counts of a state. Returns the rows ``i64[n]`` where the first ``n`` rows of its arrays belong.

        Raises:
            CorruptStream: no ring with this capacity has such a state.
        """
        is_one = isinstance(state.get("n_appended"), int)
        n_rows = number_of(state, "n_rows", self.capacity + 1 if is_one else self.n_rows, self.n_rows)
        appended, first, earliest = (
            number_of(state, name) if is_one else array_of(state, name, np.int64, (self._n_envs,))
            for name in ("n_appended", "first", "earliest")
        )
        check_range("n_appended", np.asarray(appended), 0, _MOST_INDICES // self._n_envs)
        checked = {"first": first, "n_appended - first": appended - first, "earliest": earliest}
        checked["oldest - earliest"] = greater(first, appended - self.capacity) - earliest
        for name, count in checked.items():
            check_range(name, np.asarray(count), 0, _MOST_INDICES)
        self.appended, self.first = appended, first
        self.earliest = self.released = greater(earliest, appended - n_rows + 1)
        n = self.most_appended
        back = (n - 1 - np.arange(min(n, n_rows))) % n_rows  # where the state has steps
        rows: Ints = (n - 1 - back) % self.n_rows
        return rows
