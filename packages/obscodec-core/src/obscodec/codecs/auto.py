"""``"auto"``: which codecs ``encode`` tries on a tensor."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from obscodec.layout import Layout

AUTO = "auto"
SAMPLE_NBYTES = 1 << 18  # of a larger tensor, codecs are tried on a sample of this size
_MIN_NBYTES = 64  # a smaller tensor would save less than its message has in front of it
_MAX_SHARE = 0.95  # of the raw size: for less than a twentieth, nobody should wait for a decoder
_MIN_ROW_NBYTES = 64  # each run that delta-rle writes takes two bytes or more
_SAMPLE_ROWS = 16  # or more: in runs of a quarter of them, since rows that follow each other may be alike
_N_RUNS = 4


def worth_trying(array: npt.NDArray[np.generic]) -> Iterator[str]:
    """The specs to try on a tensor, next to ``raw``; none for a tensor of less than 64 bytes.

    They are few, since each takes its time, and all end in ``zstd:3``, which is small and fast on most data. A filter
    before it is tried on the data that it is made for. Each of them is the smallest on some data; among these codecs,
    those that take much longer for little, such as ``zstd:19``, are left out.
    """
    layout = Layout.of(array)
    if layout.nbytes < _MIN_NBYTES:
        return
    yield "zstd:3"
    yield "rle|zstd:3"
    if layout.dtype.itemsize > 1:
        yield "shuffle|zstd:3"
        if layout.dtype.kind == "u":
            yield "delta|shuffle|zstd:3"
        if array.ndim > 1:
            yield "lorenzo|shuffle|zstd:3"
    if layout.dtype.kind == "b" and array.view(np.uint8).max() <= 1:  # bitpack refuses other bytes
        yield "bitpack|zstd:3"
    if array.ndim > 1 and len(array) > 1 and layout.nbytes // len(array) >= _MIN_ROW_NBYTES:
        yield "delta-rle|zstd:3"


def is_worth(stream_nbytes: int, raw_nbytes: int) -> bool:
    """Whether a stream is so small that decoding it is worth the time."""
    return stream_nbytes <= _MAX_SHARE * raw_nbytes


def sample_of(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """The tensor itself, or of one with more than 256 KiB a part that has at most as many.

    The part has as many axes. Along the first one it has four runs of rows, from the whole tensor; of its rows, if 16
    are too many, the middle.
    """
    if array.nbytes <= SAMPLE_NBYTES:
        return array
    room = SAMPLE_NBYTES // array.itemsize
    kept: list[int] = []
    for axis, length in enumerate(array.shape):
        least = 1 if kept else _SAMPLE_ROWS
        kept.append(min(length, max(room // math.prod(array.shape[axis + 1 :]), least)))
        room //= kept[-1]
    middles = [slice((n - k) // 2, (n + k) // 2) for n, k in zip(array.shape[1:], kept[1:], strict=True)]
    return _runs(array[:, *middles], kept[0])


def _runs(array: npt.NDArray[np.generic], n_rows: int) -> npt.NDArray[np.generic]:
    """``n_rows`` or a few less of the rows, in four runs at equal distances; all of them as they are."""
    if n_rows == len(array):
        return array
    of_run = n_rows // _N_RUNS
    begins = np.linspace(0, len(array) - of_run, _N_RUNS).astype(int)
    return np.concatenate([array[begin : begin + of_run] for begin in begins])
