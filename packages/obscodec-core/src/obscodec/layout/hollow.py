"""Hollow arrays: what a library allocates for items that have an axis of length 0 before their others, no memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from obscodec.layout.layout import Layout

K = TypeVar("K")


def hollow_layouts(arrays: Mapping[K, object], shapes: Mapping[K, tuple[int, ...]]) -> dict[K, Layout] | None:
    """The layouts of the items that hollow arrays stand for.

    Args:
        arrays: under any names.
        shapes: of the items, by the same names, without the axis of length 0.

    Returns:
        The layouts; None if there are other names, or one is no numpy array ``[..., 0, *shape]``.

    Raises:
        DTypeError: items of this dtype can't be stored.

    Example:
        >>> str(hollow_layouts({"obs": np.zeros((100, 2, 0, 84, 84), np.uint8)}, {"obs": (84, 84)})["obs"])
        'uint8[84, 84]'
    """
    if arrays.keys() != shapes.keys():
        return None
    layouts = {}
    for name, array in arrays.items():
        hollow = (0, *shapes[name])
        if not isinstance(array, np.ndarray) or array.shape[-len(hollow) :] != hollow:
            return None
        layouts[name] = Layout(shapes[name], array.dtype)
    return layouts
