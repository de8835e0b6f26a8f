"""Finds out how observations are made of frames."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from obscodec.layout import FrameStack

_MIN_SHIFTS = 4


def find_frame_stack(observations: npt.NDArray[np.generic], sequences: npt.NDArray[np.int64]) -> FrameStack | None:
    """How observations are made of frames, judged by their values.

    In a frame stack, each observation repeats all frames of the one before it but the oldest, shifted by one place. At
    least half of the consecutive observations that differ must do so; the first of an episode does not.

    Args:
        observations: ``[n, *shape]``, in the order of time for each sequence.
        sequences: ``i64[n]``, the sequence of each observation.

    Returns:
        The deepest stack that fits; None if none does.
    """
    pairs = [(observations[a], observations[b]) for a, b in _consecutive(sequences)]
    pairs = [(before, after) for before, after in pairs if before.tobytes() != after.tobytes()]
    if observations.ndim < 3 or len(pairs) < _MIN_SHIFTS:
        return None
    for axis in (0, -1):
        length = observations.shape[1:][axis]
        for channels in range(1, length // 2 + 1):
            if length % channels == 0:
                n = sum(_shifts(np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0), channels) for a, b in pairs)
                if n >= _MIN_SHIFTS and 2 * n >= len(pairs):
                    return FrameStack(length // channels, axis)
    return None


def _consecutive(sequences: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    last: dict[int, int] = {}
    for i, sequence in enumerate(sequences.tolist()):
        if sequence in last:
            yield last[sequence], i
        last[sequence] = i


def _shifts(before: npt.NDArray[np.generic], after: npt.NDArray[np.generic], channels: int) -> bool:
    return before[channels:].tobytes() == after[:-channels].tobytes()
