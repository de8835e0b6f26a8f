"""Placeholders: arrays for observations with an additional axis of length 0, which take no memory."""

from collections.abc import Mapping

import numpy as np
from obscodec import Layout


def placeholder_layouts(
    arrays: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Layout] | None:
    """The layouts of the observations that placeholders stand for.

    Args:
        arrays: the placeholders by key.
        shapes: the shape of one observation by key.

    Returns:
        The layouts by key; None if the keys differ, or a value is no numpy array ``[..., 0, *shape]``.

    Raises:
        DTypeError: observations of this dtype can't be stored.

    Example:
        >>> str(placeholder_layouts({"obs": np.zeros((100, 2, 0, 84, 84), np.uint8)}, {"obs": (84, 84)})["obs"])
        'uint8[84, 84]'
    """
    if arrays.keys() != shapes.keys():
        return None
    layouts = {}
    for key, array in arrays.items():
        end = (0, *shapes[key])
        if not isinstance(array, np.ndarray) or array.shape[-len(end) :] != end:
            return None
        layouts[key] = Layout(shapes[key], array.dtype)
    return layouts
