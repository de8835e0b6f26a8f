"""Ids that go from one owner to another, each call in one step: a reference is never in two arrays, or in none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec.kernels import compiled
from obscodec.segments import Ints


@compiled
def hand_over(ids: Ints, taken: Ints) -> None:
    """Copy ``ids`` to ``taken``, and set them to 0."""
    for i in range(len(ids)):
        taken[i] = ids[i]
        ids[i] = 0


@compiled
def deal(ids: Ints, hands: Ints, begin: int) -> None:
    """Hand ``ids`` over to the rows of ``hands``, one to each row in turn, and set them to 0.

    Args:
        ids: ``i64[n * n_hands]``.
        hands: ``i64[n_hands, m]``, of which ``n`` columns are filled.
        begin: the first of these columns.
    """
    n_hands = len(hands)
    for i in range(len(ids)):
        hands[i % n_hands, begin + i // n_hands] = ids[i]
        ids[i] = 0


@compiled
def give_out(ids: Ints, first_id: int, begin: int, gone: npt.NDArray[np.bool_]) -> None:
    """Fill ``ids`` with ``first_id + begin`` and those that follow; what they name is not gone any more."""
    for i in range(len(ids)):
        ids[i] = first_id + begin + i
        gone[begin + i] = False


@compiled
def follow(ids: Ints, first_id: int, moved: Ints, gone: npt.NDArray[np.bool_], out: Ints) -> int:
    """Replace the ids ``first_id`` to ``first_id + len(moved) - 1`` by those in ``moved``; others stay.

    Args:
        ids: ``i64[n]``.
        first_id: of the tensors that were moved to another store.
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


@compiled
def hand_on(ids: Ints, first_id: int, moved: Ints, gone: npt.NDArray[np.bool_], taken: Ints) -> int:
    """:func:`follow` to ``taken``, which owns what ``ids`` did: these are set to 0, and those that were moved are gone.

    Returns:
        Where in ``ids`` the first one is that is gone, or named for the second time, and nothing was done; n if none.
    """
    for i in range(len(ids)):
        at = ids[i] - first_id
        if 0 <= at < len(moved):
            if gone[at]:
                for k in range(i):  # those before it are not gone
                    if 0 <= ids[k] - first_id < len(moved):
                        gone[ids[k] - first_id] = False
                return i
            gone[at] = True
    for i in range(len(ids)):
        at = ids[i] - first_id
        taken[i] = moved[at] if 0 <= at < len(moved) else ids[i]
        ids[i] = 0
    return len(ids)


@compiled
def part_narrow(ids: Ints, code_0_is_zero: bool, codes: Ints, wide: Ints) -> None:
    """Hand the ids of a NarrowStore over to those of its two stores; see ``NarrowStore``.

    Args:
        ids: ``i64[n]``, set to 0.
        code_0_is_zero: whether the tensor whose codes are all 0 is the zero tensor.
        codes: ``i64[n]`` of zeros, filled with the ids among the codes.
        wide: ``i64[n]`` of zeros, filled with those among the wide tensors.
    """
    for i in range(len(ids)):
        is_narrow = ids[i] & 1 == 0 or (ids[i] == 1 and not code_0_is_zero)
        if is_narrow:
            codes[i] = ids[i] >> 1
        else:
            wide[i] = ids[i] >> 1
        ids[i] = 0
