"""Counts: numbers of steps, one for all environments that step together, or one for each."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from obscodec.segments import Ints

Counts: TypeAlias = int | Ints  # one number for all environments, or ``i64[n_envs]``


def of_envs(counts: Counts, envs: Ints) -> Counts:
    """The counts of environments ``i64[...]``: the number of all, or ``i64[...]``."""
    return counts if isinstance(counts, int) else counts[envs]


def most(counts: Counts) -> int:
    """The greatest one of the counts of all environments."""
    return counts if isinstance(counts, int) else int(counts.max())


def no_greater(a: Counts, b: Counts) -> bool:
    """Whether a count is at most another one, of each environment; numpy takes microseconds to tell of two numbers."""
    return a <= b if isinstance(a, int) and isinstance(b, int) else bool(np.all(a <= b))


def greater(a: Counts, b: Counts) -> Counts:
    """The greater one of two counts, of each environment."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)
