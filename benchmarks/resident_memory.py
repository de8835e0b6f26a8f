"""Resident memory of a replay buffer, as the operating system tells it.

What counts is RSS. (USS would leave out a library's pages once another process maps the same file, so that it falls
by megabytes when some other program starts.) Call it in a fresh process. A small buffer of the same kind comes first,
wraps around and is sampled: then all is imported, compiled and allocated that is needed once. It stays, and free memory
goes back to the system before the first look, so that nothing of the buffer that is measured can hide in memory that
was there already. Then some steps are read, so that what reading takes is there before; some 100 kB of that are free at
the first look. Nothing is given back before the second look.
"""

from __future__ import annotations

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
        transition_uss_bytes: the same of USS.
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
    """Let free memory go back to the operating system, where the C library can do that."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
