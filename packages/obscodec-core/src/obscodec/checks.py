"""Whether arrays have the shapes and kinds that others have."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from obscodec.errors import DTypeError, FieldError, ShapeError

K = TypeVar("K", bound=Hashable)
Described = tuple[tuple[int, ...], str | None]


def check_alike(given: Mapping[K, Described], expected: Mapping[K, Described]) -> None:
    """Make sure that each of some arrays is there, as it should be.

    Args:
        given: the shape of each array and what else matters, such as the dtype, in words.
        expected: what they should be, None in place of words that don't matter.

    Raises:
        FieldError: one is missing.
        ShapeError: one has another shape.
        DTypeError: one differs in what else matters.

    Example:
        >>> check_alike({"obs": ((8, 84, 84), "uint8"), "more": ((), None)}, {"obs": ((8, 84, 84), "uint8")})
    """
    for key, (shape, kind) in expected.items():
        if key not in given:
            raise FieldError(f"key {key} is missing, there are {', '.join(map(str, given))}")
        if given[key][0] != shape:
            raise ShapeError(f"key {key}: expected shape {shape}, got {given[key][0]}")
        if kind is not None and given[key][1] != kind:
            raise DTypeError(f"key {key}: items are {kind}, got {given[key][1]}")
