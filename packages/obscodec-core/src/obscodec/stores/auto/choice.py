"""The codec ``auto``: which codec stores some frames best."""

import math
import re
import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from obscodec.codecs import available, parse
from obscodec.devices import backend
from obscodec.errors import SpecError
from obscodec.layout import Layout
from obscodec.segments import Ints
from obscodec.stats import Choice, Trial
from obscodec.stores.frame_store import DEFAULT_BLOCK_FRAMES, FrameStore

_BATCH = 256
_BUDGET = re.compile(r"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>us|ms|s)/batch")
_UNITS_IN_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A codec to try, and the cost of reading with it.

    The cost is the time to read a batch of Atari stacks, divided by the time to gather it from an uncompressed array:
    the median of three games, measured once by benchmarks/costs.py. So the choice depends on the data alone, not on how
    busy the machine is.
    """

    spec: str
    block_frames: int
    cost: float


_CANDIDATES = (
    _Candidate("raw", 1, 0.6),
    _Candidate("delta-rle", DEFAULT_BLOCK_FRAMES, 0.56),
    _Candidate("delta-rle|lz4:6", DEFAULT_BLOCK_FRAMES, 0.6),
    _Candidate("delta-rle|zstd:3", DEFAULT_BLOCK_FRAMES, 1.4),
    _Candidate("lz4", 1, 4.8),
    _Candidate("zstd:1", 1, 5.1),
    _Candidate("shuffle|zstd:1", 1, 10.0),
    _Candidate("zstd:3", DEFAULT_BLOCK_FRAMES, 3.4),
)
# Without a budget. A buffer of numpy arrays costs 2: a gather, and a copy into tensors. Where memory is faster, a
# gather takes less time, and all costs are higher, some twice as high.
_MAX_COST = 1.2
_FAST = "that the table of costs counts as fast as uncompressed"
_HALF = 0.5  # of the raw size: if no fast codec makes frames so small, a slow codec may be chosen
_MIN_GAIN = 0.95  # of the raw size: a codec must make frames smaller than this


def parse_budget(budget: str) -> float:
    """The seconds for a batch in a text such as ``"1 ms/batch"``.

    Raises:
        SpecError: the text has another form.
    """
    match = _BUDGET.fullmatch(budget) if isinstance(budget, str) else None
    if match is None:
        raise SpecError(f"a budget is a time for each batch of {_BATCH} such as '1 ms/batch', got {budget!r}")
    return float(match["number"]) * _UNITS_IN_S[match["unit"]]


def choose(
    frames: npt.NDArray[np.generic],
    sequences: Ints,
    budget: str | None,
    block_frames: int | None = None,
    device: str = "cpu",
) -> Choice:
    """The codec that stores ``frames`` in the least memory and is fast enough.

    Args:
        frames: ``[n, *shape]``, the first frames, in the order of time for each sequence.
        sequences: ``i64[n]``, the sequence of each frame.
        budget: how long the CPU may take to read a batch of 256 frames, such as ``"1 ms/batch"``; each codec is then
            timed. With None, the table of costs decides.
        block_frames: how many frames each codec encodes together, None for the numbers in the table.
        device: where frames are decoded; only codecs that this device decodes are tried.

    Raises:
        SpecError: the budget is malformed.
    """
    limit_s = None if budget is None else parse_budget(budget)
    ready = available()
    trials = []
    for candidate in _CANDIDATES:
        if block_frames is not None:
            candidate = replace(candidate, block_frames=block_frames)
        if device != "cpu" and not backend(device).decodes(candidate.spec, candidate.block_frames):
            continue
        if all(ready[stage.name] == "ready" for stage in parse(candidate.spec)):
            trials.append(_try(candidate, frames, sequences, limit_s))
    raw_bytes = math.prod(frames.shape[1:]) * frames.itemsize
    worth = [trial for trial in trials if trial.spec == "raw" or trial.frame_bytes <= _MIN_GAIN * raw_bytes]
    chosen, why = _smallest(worth, raw_bytes, budget)
    return Choice(chosen, tuple(trials), f"{why}, on the first {len(frames)} frames")


def _smallest(trials: list[Trial], raw_bytes: int, budget: str | None) -> tuple[Trial, str]:
    """The best trial, and the reason."""
    fast = [trial for trial in trials if trial.fits]
    if not fast:
        return min(trials, key=_time), f"the fastest, since none is within {budget}"
    smallest = min(fast, key=_size)
    if budget is not None:
        return smallest, f"the smallest within {budget}"
    halves = [trial for trial in trials if trial.frame_bytes <= _HALF * raw_bytes]
    if smallest.frame_bytes > _HALF * raw_bytes and halves:
        return min(halves, key=_size), f"the smallest, since none {_FAST} halves the memory"
    return smallest, f"the smallest {_FAST}"


def _size(trial: Trial) -> tuple[float, float]:
    return trial.frame_bytes, trial.cost


def _time(trial: Trial) -> float:
    return trial.cost if trial.batch_s is None else trial.batch_s


def _try(candidate: _Candidate, frames: npt.NDArray[np.generic], sequences: Ints, limit_s: float | None) -> Trial:
    store = FrameStore(
        Layout(frames.shape[1:], frames.dtype), codec=candidate.spec, block_frames=candidate.block_frames
    )
    ids = store.append(frames, sequences)
    batch_s = None if limit_s is None else _batch_s(store, ids)
    fits = candidate.cost <= _MAX_COST if limit_s is None or batch_s is None else batch_s <= limit_s
    return Trial(candidate.spec, candidate.block_frames, store.mean_frame_bytes, candidate.cost, batch_s, fits)


def _batch_s(store: FrameStore, ids: Ints) -> float:
    """Median seconds to read a batch of random frames."""
    out = np.empty((_BATCH, *store.layout.shape), store.layout.dtype)
    rng = np.random.default_rng(0)
    times = []
    for _ in range(6):
        wanted = rng.choice(ids, _BATCH)
        begin = time.perf_counter()
        store.read(wanted, out)
        times.append(time.perf_counter() - begin)
    return float(np.median(times[1:]))  # the first one compiles
