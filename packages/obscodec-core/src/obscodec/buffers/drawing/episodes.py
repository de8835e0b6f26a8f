"""Episodes: where the episodes of a buffer begin and end."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from obscodec.buffers.drawing.counts import Counts, greater, most, of_envs
from obscodec.errors import SlotError
from obscodec.segments import Bools, Ints

_SCANNED = 1 << 16  # steps at a time
_NONE = np.empty(0, np.int64)


class Ends(NamedTuple):
    """The steps that end episodes, by their numbers.

    Attributes:
        scanned: of the steps before this one, of each environment.
        steps: ``i64[n]``, rising.
        envs: ``i64[n]``, their environments.
        belongs: ``bool[n]``, whether the step is the last one of its episode, or one between two episodes.
    """

    scanned: Counts = 0
    steps: Ints = _NONE
    envs: Ints = _NONE
    belongs: Bools = _NONE.astype(np.bool_)

    def before(self, step: Counts) -> "Ends":
        """Those before a step of each environment; from it on, they are scanned again."""
        kept = self.steps < of_envs(step, self.envs)
        return Ends(-greater(-self.scanned, -step), self.steps[kept], self.envs[kept], self.belongs[kept])

    def up_to(self, begin: Counts, end: Counts, scan: Callable[[Ints], tuple[Bools, Bools]]) -> "Ends":
        """The ends among the steps ``begin`` to ``end``, exclusive, of which only the new ones are scanned.

        ``scan`` is called with ``i64[n]``, how many steps before ``end`` steps are, as numbers below 0; it returns
        ``bool[n, n_envs]`` twice: whether an episode ends with the step, and whether it belongs to the episode.
        """
        kept = self.steps >= of_envs(begin, self.envs)
        found = [(self.steps[kept], self.envs[kept], self.belongs[kept])]
        new = greater(begin, self.scanned)
        for at in range(-most(end - new), 0, _SCANNED):
            back = np.arange(at, min(at + _SCANNED, 0))
            ends, belongs = scan(back)
            rows, envs = np.nonzero(ends)
            steps = back[rows] + of_envs(end, envs)
            if not isinstance(new, int):  # environments are not equally far
                is_new = steps >= new[envs]
                rows, envs, steps = rows[is_new], envs[is_new], steps[is_new]
            found.append((steps, envs, belongs[rows, envs]))
        return Ends(end, *(np.concatenate(parts) for parts in zip(*found, strict=True)))


class Episodes(NamedTuple):
    """Parts of the steps of a buffer, each of one environment, in the order of environments and steps.

    Attributes:
        envs: ``i64[n]``, their environments.
        begin: ``i64[n]``, the number of their first step.
        end: ``i64[n]``, the number of the step after the last one.
        done: ``bool[n]``, whether the episode has ended.
    """

    envs: Ints
    begin: Ints
    end: Ints
    done: Bools

    @classmethod
    def between(cls, ends: Ends, oldest: Counts, appended: Counts, n_envs: int) -> "Episodes":
        """The episodes of the steps from ``oldest`` on, each as far as it is stored; the running ones last."""
        every_env = np.arange(n_envs)
        envs = np.concatenate([ends.envs, every_env])
        last = np.concatenate([ends.steps, np.full(n_envs, appended)])
        belongs = np.concatenate([ends.belongs, np.zeros(n_envs, np.bool_)])
        done = np.concatenate([np.ones(len(ends.steps), np.bool_), np.zeros(n_envs, np.bool_)])
        order = np.lexsort((last, envs))
        envs, last, belongs, done = envs[order], last[order], belongs[order], done[order]
        begin = np.full(n_envs, oldest)[envs]
        follows = envs[1:] == envs[:-1]
        begin[1:][follows] = last[:-1][follows] + 1
        end = last + belongs
        kept = end > begin
        return cls(envs[kept], begin[kept], end[kept], done[kept])

    def find(self, steps: Ints, envs: Ints) -> Ints:
        """``i64[n]``: the part that has each step of an environment; SlotError if none has one."""
        # By environment, then by step: numbers that rise from part to part.
        least = int(self.begin.min(initial=0))
        span = int(self.end.max(initial=0)) - least + 1
        found: Ints = np.searchsorted(self.envs * span + self.begin - least, envs * span + steps - least, "right") - 1
        inside = (found >= 0) & (self.envs[found] == envs) & (self.begin[found] <= steps) & (steps < self.end[found])
        if not inside.all():
            at = int(np.argmin(inside))
            raise SlotError(f"no sequence begins at step {steps[at]} of environment {envs[at]}: mask is False there")
        return found


def draw_starts(
    rng: np.random.Generator, parts: Episodes, batch: int, length: int, stride: int, strict_length: bool
) -> tuple[Ints, Ints]:
    """Random starts of sequences, ``i64[batch]``: their parts, and the numbers of their first steps.

    Sequences of a part begin at its first step, and at every ``stride``-th after it; one that would exceed the part
    begins earlier. With ``strict_length``, parts with fewer than ``length`` steps are left out.

    Raises:
        SlotError: no part is long enough.
    """
    lengths = parts.end - parts.begin
    beyond = np.maximum(lengths - length, 0)
    n_starts = -(-beyond // stride) + 1
    if strict_length:
        n_starts[lengths < length] = 0
    up_to = np.cumsum(n_starts)
    if not len(up_to) or not up_to[-1]:
        raise SlotError(
            f"no episode has {length} steps, the longest stored has {lengths.max(initial=0)}: append more, ask for "
            "shorter sequences, or pass strict_length=False to have shorter ones filled with zeros"
        )
    number = rng.integers(up_to[-1], size=batch)
    part = np.searchsorted(up_to, number, "right")
    offset = (number - (up_to - n_starts)[part]) * stride
    return part, parts.begin[part] + np.minimum(offset, beyond[part])
