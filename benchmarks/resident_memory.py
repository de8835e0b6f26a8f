"""Resident memory of a replay buffer, as the operating system reports it.

It measures RSS. (USS would leave out the pages of a library as soon as another process maps the same file, so it falls
by megabytes when another program starts.) Call it in a fresh process. A small buffer of the same kind is filled,
overwritten and sampled first: that imports, compiles and allocates everything that is needed once. The small buffer
stays. Free memory is returned to the system before the first measurement, so that the measured buffer can't hide in
memory that was there already. Then some steps are read, since reading takes memory, too; some 100 kB of that are free
at the first measurement. No memory is returned before the second one.
"""

import ctypes
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import psutil
from recorded_steps import read_steps
from replay_buffers import BASELINE, WARM_UP, filled, warmed_up

_READ_BEFORE = 20


class Resident(NamedTuple):
    """What a buffer takes.

    Attributes:
        transition_bytes: growth of RSS while the buffer is made, filled, and filled once more, for each transition.
        transition_uss_bytes: the same growth of USS.
        fixed_mb: growth of RSS in the warm-up, less the small buffer's transitions: code, caches, memory for batches;
            SB3 and torch were imported before.
    """

    transition_bytes: float
    transition_uss_bytes: float
    fixed_mb: float


def resident(name: str, paths: list[Path], size: int) -> Resident:
    """Measure the buffer ``name`` with ``size`` transitions; ``paths`` are of ``2 * size`` steps, or more."""
    assert BASELINE.sb3_class  # imports SB3 and torch
    give_back_free_memory()
    start_rss = psutil.Process().memory_info().rss
    small = warmed_up(name, paths)
    give_back_free_memory()
    n_envs = len(paths)
    steps = islice(read_steps(paths), 2 * size // n_envs)
    for _ in islice(steps, _READ_BEFORE):
        pass
    before = psutil.Process().memory_full_info()
    buffer = filled(name, n_envs, size, steps)
    memory = psutil.Process().memory_full_info()
    transition_bytes = (memory.rss - before.rss) / size
    fixed_bytes = before.rss - start_rss - WARM_UP * transition_bytes
    del small, buffer  # not before
    return Resident(transition_bytes, (memory.uss - before.uss) / size, fixed_bytes / 1e6)


def give_back_free_memory() -> None:
    """Return free memory to the operating system, if the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
