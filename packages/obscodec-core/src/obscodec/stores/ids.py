"""Ids: what they are made of, and how they go from one owner to another.

0 is the zero tensor in every store. The id of a frame is ``block * block_frames + place``. The id of a stack is mostly
``frame * depth``, of its newest frame; see ``frames.kernels.stacks``. The id of a tensor in a NarrowStore is ``2 * i``
where ``i`` is its id among the codes, or ``2 * i + 1`` where that is its id among the others. Arrays keep ids as int32.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.errors import DTypeError, ShapeError, SlotError
from obscodec.kernels import compiled
from obscodec.segments import Ints

NO_TENSOR: Final = 0  # the id of the zero tensor, which every store has from the start and nobody can release
_ALL_CODE_0: Final = 1  # in a NarrowStore the tensor whose codes are all 0, where that is not the zero tensor
FIRST_ID: Final = 2  # the least that an AutoStore gives out, as any store may be in it
_LAST_ID = (1 << 31) - 1


def last_frame_id(stack: int) -> int:
    """The greatest id of a frame whose stacks of ``stack`` frames, and their codes, have ids of 32 bits."""
    return _LAST_ID // (2 * stack)


def narrow_ids(inner: Ints, *, code_0_is_zero: bool) -> Ints:
    """The ids in a NarrowStore of tensors among its codes, where 0 is the tensor whose codes are all 0."""
    outer = 2 * inner
    if not code_0_is_zero:
        outer[inner == NO_TENSOR] = _ALL_CODE_0
    return outer


def wide_ids(inner: Ints) -> Ints:
    """The ids in a NarrowStore of tensors among its wide ones."""
    return np.where(inner == NO_TENSOR, NO_TENSOR, 2 * inner + 1)


def are_narrow(ids: Ints, *, code_0_is_zero: bool) -> npt.NDArray[np.bool_]:
    """``bool[n]``: which ids in a NarrowStore are of tensors among its codes."""
    narrow: npt.NDArray[np.bool_] = ids & 1 == 0
    if not code_0_is_zero:
        narrow[ids == NO_TENSOR] = False  # the zero tensor of the other store
        narrow[ids == _ALL_CODE_0] = True
    return narrow


def each_sequence(sequences: npt.ArrayLike, n: int) -> Ints:
    """The sequence of each of ``n`` tensors, from one for each or one for all.

    Raises:
        ShapeError: there are neither one nor ``n``.
        DTypeError: they are no integers.
    """
    given = np.asarray(sequences)
    if given.shape == (n,) and given.dtype == np.int64:
        return given
    if given.size and given.dtype.kind not in "iu":
        raise DTypeError(f"sequences are integers, got {given.dtype}")
    given = given.astype(np.int64)
    if given.shape == (n,):
        return given
    if given.size != 1:
        raise ShapeError(f"{n} tensors have {n} sequences or one for all, got {given.shape}")
    return np.full(n, given.item())


def as_ids(ids: npt.ArrayLike) -> Ints:
    """``ids`` as ``i64[n]``.

    Raises:
        SlotError: they are no integers.
        ShapeError: they have more than one axis.
    """
    if type(ids) is np.ndarray and ids.dtype == np.int64 and ids.ndim == 1:
        return ids
    given = np.asarray(ids)
    if given.size and given.dtype.kind not in "iu":
        raise SlotError(f"ids are integers, got {given.dtype}")
    if given.ndim > 1:
        raise ShapeError(f"ids have shape (n,), got {given.shape}")
    return np.atleast_1d(given.astype(np.int64))


@compiled
def hand_over(ids: Ints, taken: Ints) -> None:
    """Copy ``ids`` to ``taken``, and set them to 0."""
    for i in range(len(ids)):
        taken[i] = ids[i]
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
    """Hand the ids of a NarrowStore over to those of its two stores; see :func:`are_narrow`.

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
