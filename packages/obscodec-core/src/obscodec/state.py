"""State: what a part of a buffer holds, in plain values, from which an equal part is made.

The parts of stores and buffers have two methods: ``state()`` returns a :data:`State`, and ``restore(state)`` fills a
part that was made with equal arguments, and is empty. Pickles and snapshots consist of states.

A state that is restored may come from a stranger. So each part checks what it gets, with the functions here, and
computes what follows from the rest, such as a list of free places, instead of reading it.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream

# Values are None, numbers, texts, numpy arrays, Segments, Layouts, FrameStacks and Codecs, lists of them, and states.
State = dict[str, Any]

T = TypeVar("T", bound=np.generic)
V = TypeVar("V")
_MOST = (1 << 63) - 1


def part_of(state: Mapping[str, Any], name: str, kind: type[V]) -> V:
    """A value of a state.

    Raises:
        CorruptStream: there is none, or it is of another type.
    """
    value = state.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise CorruptStream(f"{name!r} of a state is a {kind.__name__}, got {type(value).__name__}")
    return value


def number_of(state: Mapping[str, Any], name: str, least: int = 0, most: int = _MOST) -> int:
    """A whole number of a state.

    Raises:
        CorruptStream: there is none, or it is out of range.
    """
    value = part_of(state, name, int)
    if not least <= value <= most:
        raise CorruptStream(f"{name!r} of a state is in {least}..{most}, got {value}")
    return value


def array_of(
    state: Mapping[str, Any], name: str, dtype: type[T] | np.dtype[T], shape: tuple[int | None, ...]
) -> npt.NDArray[T]:
    """A copy of an array of a state.

    Args:
        state: has it.
        name: its name.
        dtype: its dtype.
        shape: its shape, None for an axis of any length.

    Raises:
        CorruptStream: there is none, or it has another dtype or shape.
    """
    array = part_of(state, name, np.ndarray)
    fits = len(array.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits:
        wanted = ", ".join("n" if n is None else str(n) for n in shape)
        raise CorruptStream(f"{name!r} of a state is {np.dtype(dtype)}[{wanted}], got {array.dtype}{[*array.shape]}")
    return np.array(array, dtype, order="C")


def check_range(name: str, numbers: npt.NDArray[Any], least: int, most: int) -> None:
    """Make sure that all numbers of an array are in a range.

    Raises:
        CorruptStream: one is not.
    """
    if numbers.size and not least <= numbers.min() <= numbers.max() <= most:
        raise CorruptStream(f"{name!r} of a state is in {least}..{most}, got {numbers.min()}..{numbers.max()}")
