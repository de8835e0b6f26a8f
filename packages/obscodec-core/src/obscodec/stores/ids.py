"""Ids: how stores make them, and how they pass from one owner to another.

Id 0 is the zero tensor in every store. A frame has the id ``block * block_frames + place``, a stack mostly
``frame * depth`` with its newest frame; see ``frames.kernels.stacks``. A NarrowStore has two stores: it makes ``2 * i``
of an id ``i`` in the store of codes, and ``2 * i + 1`` of an id in the other store. Arrays keep ids as int32.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_integers
from obscodec.errors import ShapeError, SlotError
from obscodec.runtime import assign
from obscodec.segments import Ints

NO_TENSOR: Final = 0  # the zero tensor, which every store has from the start and nobody can release
_ALL_CODE_0: Final = 1  # in a NarrowStore: the tensor whose codes are all 0, if code 0 is not the number 0
FIRST_ID: Final = 2  # the least id of an AutoStore, which may have a NarrowStore inside
_LAST_ID = (1 << 31) - 1


def last_frame_id(stack: int) -> int:
    """The greatest id of a frame, such that ids of its stacks fit into 32 bits, in a NarrowStore, too."""
    return _LAST_ID // (2 * stack)


def narrow_ids(inner: Ints, *, code_0_is_zero: bool) -> Ints:
    """Ids in a NarrowStore of tensors that have the ids ``inner`` in its store of codes."""
    outer = 2 * inner
    if not code_0_is_zero:
        outer[inner == NO_TENSOR] = _ALL_CODE_0
    return outer


def wide_ids(inner: Ints) -> Ints:
    """Ids in a NarrowStore of tensors that have the ids ``inner`` in its store of wide tensors."""
    return np.where(inner == NO_TENSOR, NO_TENSOR, 2 * inner + 1)


def are_narrow(ids: Ints, *, code_0_is_zero: bool) -> npt.NDArray[np.bool_]:
    """``bool[n]``: which ids in a NarrowStore are of tensors in its store of codes."""
    narrow: npt.NDArray[np.bool_] = ids & 1 == 0
    if not code_0_is_zero:
        narrow[ids == NO_TENSOR] = False  # the zero tensor is a wide one
        narrow[ids == _ALL_CODE_0] = True
    return narrow


def each_sequence(sequences: npt.ArrayLike, n: int) -> Ints:
    """``i64[n]``, the sequence of each of ``n`` tensors, from one number for each or one for all."""
    given = as_integers("sequences", sequences)
    if given.shape == (n,):
        return given
    if given.size != 1:
        raise ShapeError(f"{n} tensors have {n} sequences or one for all, got {given.shape}")
    return np.full(n, given.item())


def as_ids(ids: npt.ArrayLike) -> Ints:
    """``ids`` as ``i64[n]``, refused by SlotError if they are no integers, by ShapeError if they have more axes."""
    if type(ids) is np.ndarray and ids.dtype == np.int64 and ids.ndim == 1:
        return ids
    given = as_integers("ids", ids, SlotError)
    if given.ndim > 1:
        raise ShapeError(f"ids have shape (n,), got {given.shape}")
    return np.atleast_1d(given)


def hand_over(ids: Ints, taken: Ints) -> None:
    """Move ``ids`` to ``taken``, and leave zeros."""
    assign((taken, ..., ids), (ids, ..., np.zeros_like(ids)))
