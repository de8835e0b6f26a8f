"""Times of ``add`` and ``sample``. The calls of all buffers are interleaved, so that noise hits all of them alike.

Each step is added to every buffer, in a random order; so are batches sampled. Ratios compare a call with SB3's of the
same round. Each call finds the processor's caches as the others left them, as it does next to a learner.
"""

import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from recorded_steps import Step, read_steps, transposed
from replay_buffers import BASELINE, KINDS, MeasuredBuffer, warmed_up

SMALL, LARGE = 32, 256  # batches
_GROWTH = 10
_N_EXACT = 4  # batches to compare
_FILL, _OVERWRITE, _VIEWS = "fill", "overwrite", "views"
_VIEWS_IN_TURN = 50  # steps; long enough that work that a buffer puts off falls to its own kind

Times = dict[tuple[str, str], npt.NDArray[np.float64]]  # of a buffer and what it did: f64[calls, 2], s by clock, of CPU
Buffers = dict[str, MeasuredBuffer[Any]]


class Latency(NamedTuple):
    """Times of one buffer; ``_x`` are ratios to SB3's.

    Attributes:
        fill_mean_us: mean of ``add`` while the buffer is filled for the first time.
        fill_mean_x: its ratio.
        add_mean_us: mean of ``add`` in the second lap. A buffer may do the work of several calls in one of them.
        add_mean_x: its ratio.
        add_median_us: median of ``add`` in the second lap.
        add_median_x: median ratio.
        add_p99_us: of all calls of ``add``.
        views_mean_us: as ``add_mean_us``, with the views of ``VecTransposeImage``, in every second group of 50 steps.
        views_mean_x: its ratio.
        add_cpu_us: mean processor time of ``add`` in the second lap, of all threads.
        sample32_ms: median of ``sample(32)``.
        sample32_x: median ratio.
        sample256_ms: median of ``sample(256)``.
        sample256_x: median ratio.
        sample256_cpu_ms: mean processor time of ``sample(256)``, of all threads.
        growth_x: median ratio of ``sample(256)`` to that of a buffer with a tenth of the transitions.
        exact: share of the sampled transitions that equal those of the environment, bit for bit.
    """

    fill_mean_us: float
    fill_mean_x: float
    add_mean_us: float
    add_mean_x: float
    add_median_us: float
    add_median_x: float
    add_p99_us: float
    views_mean_us: float
    views_mean_x: float
    add_cpu_us: float
    sample32_ms: float
    sample32_x: float
    sample256_ms: float
    sample256_x: float
    sample256_cpu_ms: float
    growth_x: float
    exact: float


def latencies(names: list[str], paths: list[Path], size: int, n_rounds: int, threads: int | None) -> dict[str, Latency]:
    """Measure these buffers, SB3's among them, with ``size`` transitions and ``n_rounds`` batches of each size.

    ``threads`` is how many threads torch and obscodec use, None for their defaults.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    for name in names:
        warmed_up(name, paths, threads)
    n_envs = len(paths)
    buffers, few = ({name: KINDS[name].build(n, n_envs, threads) for name in names} for n in (size, size // _GROWTH))
    adds, checksums = _time_adds(buffers, few, paths, size // n_envs)
    times = adds | _time_samples(buffers, few, n_rounds)
    return {name: _latency(name, times, _exact(buffers[name], checksums)) for name in names}


def _time_adds(buffers: Buffers, few: Buffers, paths: list[Path], lap: int) -> tuple[Times, npt.NDArray[np.uint32]]:
    """Time two laps of ``add``, then fill the small buffers; returns the checksums of all transitions, by number."""
    rng = np.random.default_rng(0)
    names = list(buffers)
    times: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    checksums = []
    for at, step in enumerate(islice(read_steps(paths), 2 * lap)):
        phase = _FILL if at < lap else (_OVERWRITE, _VIEWS)[at // _VIEWS_IN_TURN % 2]
        given = transposed(step) if phase == _VIEWS else step
        for i in rng.permutation(len(names)):
            buffer = buffers[names[i]]
            times[names[i], phase].append(_elapsed_s(buffer.add, buffer.prepare(given)))
        if at >= 2 * lap - 2 * lap // _GROWTH:
            for buffer in few.values():
                buffer.add(buffer.prepare(step))
        checksums += _checksums(step)
    return _arrays(times), np.array(checksums, np.uint32)


def _time_samples(buffers: Buffers, few: Buffers, n_rounds: int) -> Times:
    """Time rounds of all buffers and sizes, after one round that is not counted."""
    rng = np.random.default_rng(0)
    times: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    calls = [(name, f"{n}", buffer, n) for name, buffer in buffers.items() for n in (SMALL, LARGE)]
    calls += [(name, "few", buffer, LARGE) for name, buffer in few.items()]
    for round_ in range(n_rounds + 1):
        for i in rng.permutation(len(calls)):
            name, what, buffer, n = calls[i]
            elapsed_s = _elapsed_s(buffer.sample, n)
            if round_:
                times[name, what].append(elapsed_s)
    return _arrays(times)


def _elapsed_s(function: Callable[..., object], *args: object) -> tuple[float, float]:
    """Seconds of one call by the clock, and of processor time of all threads; both include dropping the result."""
    start_cpu, start = time.process_time(), time.perf_counter()
    function(*args)
    end = time.perf_counter()
    return end - start, time.process_time() - start_cpu


def _arrays(times: dict[tuple[str, str], list[tuple[float, float]]]) -> Times:
    return {key: np.array(values) for key, values in times.items()}


def _checksums(step: Step) -> list[tuple[int, int]]:
    return [(zlib.crc32(obs), zlib.crc32(next_obs)) for obs, next_obs in zip(step.obs, step.next_obs, strict=True)]


def _exact(buffer: MeasuredBuffer[Any], checksums: npt.NDArray[np.uint32]) -> float:
    """The share of sampled transitions that have the checksums of the recorded ones."""
    same = 0
    for _ in range(_N_EXACT):
        number, obs, next_obs = buffer.read(buffer.sample(LARGE))
        pairs = zip(np.ascontiguousarray(obs), np.ascontiguousarray(next_obs), strict=True)
        sampled = [(zlib.crc32(a), zlib.crc32(b)) for a, b in pairs]
        same += int((checksums[number.astype(np.int64)] == sampled).all(axis=1).sum())
    return same / (_N_EXACT * LARGE)


def _latency(name: str, times: Times, exact: float) -> Latency:
    def ratio(what: str) -> float:
        return float(np.median(times[name, what][:, 0] / times[BASELINE.name, what][:, 0]))

    def mean(what: str, of: str = name) -> float:
        return float(times[of, what][:, 0].mean())

    def mean_ratio(what: str) -> float:
        return mean(what) / mean(what, BASELINE.name)

    fill, overwrite, views = (times[name, phase] for phase in (_FILL, _OVERWRITE, _VIEWS))
    small, large, few = (times[name, what] for what in (f"{SMALL}", f"{LARGE}", "few"))
    return Latency(
        fill_mean_us=mean(_FILL) * 1e6,
        fill_mean_x=mean_ratio(_FILL),
        add_mean_us=mean(_OVERWRITE) * 1e6,
        add_mean_x=mean_ratio(_OVERWRITE),
        add_median_us=float(np.median(overwrite[:, 0])) * 1e6,
        add_median_x=ratio(_OVERWRITE),
        add_p99_us=float(np.quantile(np.concatenate([fill, overwrite, views])[:, 0], 0.99)) * 1e6,
        views_mean_us=mean(_VIEWS) * 1e6,
        views_mean_x=mean_ratio(_VIEWS),
        add_cpu_us=float(overwrite[:, 1].mean()) * 1e6,
        sample32_ms=float(np.median(small[:, 0])) * 1e3,
        sample32_x=ratio(f"{SMALL}"),
        sample256_ms=float(np.median(large[:, 0])) * 1e3,
        sample256_x=ratio(f"{LARGE}"),
        sample256_cpu_ms=float(large[:, 1].mean()) * 1e3,
        growth_x=float(np.median(large[:, 0] / few[:, 0])),
        exact=exact,
    )
