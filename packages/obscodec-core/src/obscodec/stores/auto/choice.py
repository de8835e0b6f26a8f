"""The codec ``auto``: which codec stores some frames best."""

from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from obscodec.codecs import new_codec, parse
from obscodec.devices import backend
from obscodec.errors import SpecError
from obscodec.layout import Layout
from obscodec.segments import Ints
from obscodec.stats import Choice, Trial
from obscodec.stores.auto.ahead import prepare_codec
from obscodec.stores.auto.candidates import PATCHES, Candidate, candidates_on
from obscodec.stores.auto.options import FAST, StoreOptions
from obscodec.stores.frame_store import FrameStore

_OF_IMAGES = ("palette", "pred")  # one that suits images mostly makes them smaller than those behind it
# A buffer of numpy arrays costs 2: a gather, and a copy into tensors. Where memory is faster, a gather takes less time,
# and all costs are higher, some twice as high.
_MAX_COST = 1.2
_AS_FAST = "codec that reads as fast as plain arrays"
_ENOUGH = 16  # times smaller than tensors: if a fast codec makes frames so small, no slow one is tried
_MIN_GAIN = 0.95  # of the raw size: a codec must make frames smaller than this; of that in smaller blocks
_MIN_SLOW_GAIN = 0.8  # of the size with the best fast codec, for a slow one
_MIN_CHANGE = 0.75  # of the bytes, cost included: less does not pay for a second store
_PRICE = 0.12  # of time in memory: a slow codec that takes twice the time of another must be 8 % smaller


def choose(
    frames: npt.NDArray[np.generic],
    sequences: Ints,
    options: StoreOptions,
    *,
    n_seen: int | None = None,
    depth: int = 1,
    thorough: bool = False,
    which: str = "first",
) -> Choice:
    """The codec that stores ``frames`` in the least memory and is fast enough.

    If fast codecs store them in much memory, slower ones are tried, and preferred if they save enough of it.

    Args:
        frames: ``[n, *shape]``, the first frames, in the order of time for each sequence; of equal ones, one counts.
        sequences: ``i64[n]``, the sequence of each frame.
        options: of the store. Its budget is ``"fast"`` for codecs alone that are fast by the table of costs, its frames
            of a block None for the numbers in the table; only codecs that its device decodes are tried.
        n_seen: of how many tensors the frames are, None for as many as there are frames.
        depth: how many consecutive frames a tensor has.
        thorough: whether to try slow codecs even if a fast one is good enough.
        which: of all frames these are, for the reason.
    """
    layout, n = Layout(frames.shape[1:], frames.dtype), len(frames)
    enough = layout.nbytes / _ENOUGH * (n_seen or n) / max(1, n)
    frames = _distinct(frames[np.argsort(sequences, kind="stable")])  # few frames of many would fill no block
    candidates = _candidates(layout, options, depth + 1)  # a batch has the next observations, too
    trials, others = _try_quick(candidates, frames)
    n_quick = len(trials)
    if options.budget != FAST and (thorough or min(trials, key=_size).frame_bytes > enough):
        trials += _try_slow(others, frames, thorough=thorough)
    quick, slow = _worth(trials[:n_quick], layout), _worth(trials[n_quick:], layout)
    if options.budget == FAST:
        chosen, why = _fastest(quick)
        why += f", since budget={FAST!r} leaves out the others"
    else:
        chosen, why = _by_cost(quick, slow, enough)
    return Choice(chosen, tuple(trials), f"{why}, on the {which} {f'{n} frames' if n > 1 else 'frame'}")


def pays(other: Trial, now: Trial) -> bool:
    """Whether new frames should be stored with another codec than now."""
    return _priced(other) <= _MIN_CHANGE * _priced(now)


def _distinct(frames: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Each frame once: environments that begin alike would show how frames compress that equal each other."""
    first: dict[bytes, int] = {}
    for k, frame in enumerate(frames):
        first.setdefault(frame.tobytes(), k)
    return frames[[*first.values()]]


def _candidates(layout: Layout, options: StoreOptions, n_consecutive: int) -> list[Candidate]:
    """The codecs to try on frames of a layout that are read so many together."""
    found, device = [], options.device
    for candidate in candidates_on(device):
        if options.block_frames is not None:
            candidate = replace(candidate, block_frames=options.block_frames)
        if device != "cpu" and not backend(device).decodes(candidate.spec, candidate.block_frames):
            continue
        if _accepts(candidate, layout):
            found.append(replace(candidate, cost=candidate.cost_of(n_consecutive)))
    return list(dict.fromkeys(found))  # those that differ in the frames of a block may be equal now


def _accepts(candidate: Candidate, layout: Layout) -> bool:
    """Whether a codec encodes such frames, and blocks of them: some encode images only, which blocks of rows are.

    Those of numbers of several bytes are not for frames of bytes.
    """
    if candidate.of_numbers and layout.dtype.itemsize == 1:
        return False
    try:
        new_codec(candidate.spec, layout)
        new_codec(candidate.spec, Layout((candidate.block_frames, *layout.shape), layout.dtype))
    except SpecError:
        return False
    return True


def _try_quick(candidates: list[Candidate], frames: npt.NDArray[np.generic]) -> tuple[list[Trial], list[Candidate]]:
    """Try codecs that are as fast as uncompressed arrays where patches are small; also returns the others."""
    trials, others, size = [], [], 0.0
    for candidate in candidates:
        if candidate.cost > _MAX_COST:
            others.append(candidate.with_patches(size))
            continue
        trial = _try(candidate.with_patches(size), frames)
        if candidate.spec == PATCHES:  # stands before those that make patches smaller
            size = trial.frame_bytes / max(1, frames[:1].nbytes)
            cost = candidate.with_patches(size).cost
            trial = replace(trial, cost=cost, fits=cost <= _MAX_COST)
        trials.append(trial)
    return trials, others


def _try_slow(candidates: list[Candidate], frames: npt.NDArray[np.generic], *, thorough: bool) -> list[Trial]:
    """Try those that suit the frames; larger blocks only as long as they save something.

    One codec of images is enough, unless all are asked for: each has kernels to compile.
    """
    trials, blocks = [], frames[:, None]  # as a store encodes them: three planes alone might be three images
    layout, has_one = Layout(blocks.shape[1:], blocks.dtype), False
    for spec, alike in groupby(candidates, key=attrgetter("spec")):
        if (spec.endswith(_OF_IMAGES) and has_one) or not new_codec(spec, layout).suits(blocks):
            continue
        has_one |= spec in _OF_IMAGES and not thorough
        if spec.endswith(_OF_IMAGES):
            prepare_codec(parse(spec)[-1].name)
        of_spec: list[Trial] = []
        for candidate in alike:
            if not thorough and len(of_spec) > 1 and of_spec[-1].frame_bytes > _MIN_GAIN * of_spec[-2].frame_bytes:
                break
            of_spec.append(_try(candidate, frames))
        trials += of_spec
    return trials


def _fastest(trials: list[Trial]) -> tuple[Trial, str]:
    """The smallest of those that are fast by the table of costs, and the reason."""
    return min((trial for trial in trials if trial.fits), key=_size), f"the smallest {_AS_FAST}"


def _by_cost(quick: list[Trial], slow: list[Trial], enough: float) -> tuple[Trial, str]:
    """The best trial by the table of costs, and the reason: a quick one if one has ``enough`` bytes, or fewer."""
    small, (fast, why) = min(quick, key=_size), _fastest(quick)
    slow = [trial for trial in (*quick, *slow) if not trial.fits]
    slow = [trial for trial in slow if trial.frame_bytes <= _MIN_SLOW_GAIN * fast.frame_bytes]
    if not slow:
        return fast, why
    if small.frame_bytes <= enough:
        return (small, "so small that no slow codec is needed") if small in slow else (fast, why)
    best = min(slow, key=_priced)
    return best, f"{1 - best.frame_bytes / fast.frame_bytes:.0%} smaller than any {_AS_FAST}"


def _worth(trials: list[Trial], layout: Layout) -> list[Trial]:
    """Those that are smaller than the frames by a twentieth, and ``raw``."""
    return [trial for trial in trials if trial.spec == "raw" or trial.frame_bytes <= _MIN_GAIN * layout.nbytes]


def _priced(trial: Trial) -> float:
    return trial.frame_bytes * float(trial.cost**_PRICE)


def _size(trial: Trial) -> tuple[float, float]:
    return trial.frame_bytes, trial.cost


def _try(candidate: Candidate, frames: npt.NDArray[np.generic]) -> Trial:
    """Encode the frames, in the order of time; the second half counts, with what the codec learned from the first."""
    store = FrameStore(
        Layout(frames.shape[1:], frames.dtype), codec=candidate.spec, block_frames=candidate.block_frames
    )
    half, one_sequence = len(frames) // 2, np.zeros(len(frames), np.int64)
    store.append(frames[:half], one_sequence[:half])
    before = store.log.train()
    store.append(frames[half:], one_sequence[half:])
    frame_bytes, cost = store.log.mean_frame_bytes(before), candidate.cost
    return Trial(candidate.spec, candidate.block_frames, frame_bytes, cost, fits=cost <= _MAX_COST)
