"""Rows of bytes."""

from obscodec.codecs.formats.delta_rle import first_difference
from obscodec.kernels import address, compiled
from obscodec.layout import Rows


@compiled
def same(rows: Rows, a: int, b: int) -> bool:
    """Whether the rows ``a`` and ``b`` of ``u8[n, nbytes]``, contiguous, are equal in every byte."""
    nbytes = rows.shape[1]
    begin = address(rows)
    return bool(first_difference(begin + a * nbytes, begin + b * nbytes, 0, nbytes) == nbytes)
