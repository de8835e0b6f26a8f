"""Rows of bytes."""

from __future__ import annotations

from obscodec.codecs.formats.delta_rle.patch import first_difference
from obscodec.kernels.compiled import compiled
from obscodec.kernels.memory import address
from obscodec.layout.layout import Rows


@compiled
def same(rows: Rows, a: int, b: int) -> bool:
    """Whether the rows ``a`` and ``b`` of ``u8[n, nbytes]``, contiguous, are equal in every byte."""
    nbytes = rows.shape[1]
    begin = address(rows)
    return bool(first_difference(begin + a * nbytes, begin + b * nbytes, 0, nbytes) == nbytes)
