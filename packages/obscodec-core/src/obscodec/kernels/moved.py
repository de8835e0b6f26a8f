"""Ids of tensors that were moved to another store: what they are there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec.kernels.compiled import compiled
from obscodec.segments import Ints


@compiled
def follow(ids: Ints, first_id: int, moved: Ints, gone: npt.NDArray[np.bool_], out: Ints) -> int:
    """Replace the ids ``first_id`` to ``first_id + len(moved) - 1`` by those in ``moved``; others stay.

    Args:
        ids: ``i64[n]``.
        first_id: of the tensors that were moved.
        moved: ``i64[m]``, where each of them is now.
        gone: ``bool[m]``, which of them nobody may ask for any more.
        out: ``i64[n]``, filled.

    Returns:
        Where in ``ids`` the first one is that is gone, n if there is none.
    """
    for i in range(len(ids)):
        at = ids[i] - first_id
        if 0 <= at < len(moved):
            if gone[at]:
                return i
            out[i] = moved[at]
        else:
            out[i] = ids[i]
    return len(ids)
