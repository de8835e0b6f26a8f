"""Counts: numbers of steps, one for all environments that step together, or one for each."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from obscodec.segments import Ints

Counts: TypeAlias = int | Ints  # one number for all environments, or ``i64[n_envs]``


def of_envs(counts: Counts, envs: Ints) -> Counts:
    """The counts of environments ``i64[...]``: the number of all, or ``i64[...]``."""
    return counts if isinstance(counts, int) else counts[envs]


def greater(a: Counts, b: Counts) -> Counts:
    """The greater one of two counts, of each environment."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)
