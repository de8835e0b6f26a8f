"""StoredSteps: the steps of any buffer, for programs that look into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from obscodec.buffers.field import Array
from obscodec.layout import Layout
from obscodec.segments import Bools, Ints


class StoredSteps(NamedTuple):
    """The steps of a buffer in the order of time, of which nothing is decoded yet. Step 0 is the oldest one.

    Attributes:
        n: how many steps there are, of the environment that has most.
        n_envs: how many environments there are.
        layouts: of one step of one environment, by field.
        read: called with the name of a field, steps ``i64[k]`` and their environments ``i64[k]``; returns
            ``[k, *shape]``, zeros for a step that is not there.
        scan: called with steps ``i64[k]``; returns ``bool[k, n_envs]`` twice: whether an episode ends with the step,
            and whether the step is one of an episode.
        flags: the boolean fields of which one is true where an episode ends.
        shared: the fields whose tensors are in the store of another field.
        left_out: why a field is not among these, by its name.
        lost: ``i64[m, 2]``, the steps and environments that have lost a tensor by damage.
    """

    n: int
    n_envs: int
    layouts: Mapping[str, Layout]
    read: Callable[[str, Ints, Ints], Array]
    scan: Callable[[Ints], tuple[Bools, Bools]]
    flags: tuple[str, ...] = ()
    shared: frozenset[str] = frozenset()
    left_out: Mapping[str, str] = {}
    lost: Ints = np.empty((0, 2), np.int64)
