"""How long the first use of a replay buffer takes: imports, compilation, or loading what was compiled before."""

import os
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from processes import in_fresh_process
from recorded_steps import Step, read_steps
from replay_buffers import BASELINE, KINDS, WARM_UP

_BATCH = 256


class FirstUse(NamedTuple):
    """Seconds to import, build, add 400 transitions to and sample 256 from a buffer, less those of doing it again.

    Attributes:
        empty_s: with an empty cache of compiled functions.
        warm_s: in another process after that one, which left its compiled functions there.
    """

    empty_s: float
    warm_s: float


def first_use(name: str, paths: list[Path]) -> FirstUse:
    """Measure in two fresh processes."""
    with tempfile.TemporaryDirectory() as cache:
        return FirstUse(*(in_fresh_process(_first_use_s, name, paths, cache) for _ in range(2)))


def _first_use_s(name: str, paths: list[Path], cache: str) -> float:
    os.environ["NUMBA_CACHE_DIR"] = cache
    assert BASELINE.sb3_class  # imports SB3 and torch
    steps = list(islice(read_steps(paths), WARM_UP // len(paths)))
    first_s, again_s = (_use_s(name, steps, len(paths)) for _ in range(2))
    return first_s - again_s


def _use_s(name: str, steps: list[Step], n_envs: int) -> float:
    start = time.perf_counter()
    buffer = KINDS[name].build(WARM_UP, n_envs, None)
    for step in steps:
        buffer.add(buffer.prepare(step))
    buffer.sample(_BATCH)
    return time.perf_counter() - start
