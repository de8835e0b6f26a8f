"""Finds out which small integers floats are made of."""

from contextlib import suppress
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.arguments import check_kind
from obscodec.errors import SpecError
from obscodec.layout import Layout, storable
from obscodec.stores.narrow.lookup import Patterns
from obscodec.stores.narrow.narrow import Narrow, Steps, is_wide, pattern_dtype

# How images become floats: ToTensor, division or multiplication by the reciprocal (torch on a GPU), -1..1 or -0.5..0.5,
# and a cast of integers. The first two are for integers, too.
_OF_8_BITS: Final[tuple[Steps, ...]] = (
    (),
    (("-", 128),),
    (("/", 255),),
    (("*", 1 / 255),),
    (("/", 256),),
    (("/", 127.5), ("-", 1)),
    (("*", 1 / 127.5), ("-", 1)),
    (("/", 255), ("-", 0.5)),
    (("*", 1 / 255), ("-", 0.5)),
    (("/", 255), ("-", 0.5), ("/", 0.5)),
    (("/", 255), ("*", 2), ("-", 1)),
    (("-", 127.5), ("/", 127.5)),
    (("-", 128), ("/", 128)),
)
# Also depth images, in metres.
_OF_16_BITS: Final[tuple[Steps, ...]] = (
    (),
    (("-", 32768),),
    (("/", 65535),),
    (("*", 1 / 65535),),
    (("/", 65536),),
    (("/", 32767.5), ("-", 1)),
    (("/", 1000),),
    (("*", 0.001),),
    (("/", 5000),),
)
_PIECE = 1 << 18  # elements to look through at once


def find_narrow(samples: npt.NDArray[np.generic]) -> Narrow | None:
    """A :class:`Narrow` that fits each element of ``samples``, typical tensors ``[n, *shape]``.

    It knows how programs scale images, and prefers codes of 8 bits. The same samples always give the same answer: None
    if nothing that it knows makes all elements, if the dtype has 8 bits or is neither float nor integer, or if all
    elements are equal, such as the zeros of a fresh buffer.

    Raises:
        DTypeError: ``samples`` is no array, or its dtype can't be stored.

    Example:
        >>> pixels = np.arange(200, dtype=np.uint8)
        >>> print(find_narrow((pixels / 255).astype(np.float32)))
        k / 255 in float32
        >>> find_narrow(np.random.default_rng(0).random(200)) is None
        True
    """
    check_kind("samples", samples, np.ndarray, "a numpy array [n, *shape]")
    dtype = storable(samples.dtype)
    patterns = _distinct(samples, dtype) if is_wide(dtype) else None
    if patterns is None or len(patterns) < 2:
        return None
    is_integer = dtype.kind in "iu"
    arithmetics = [np.dtype(np.float64)] if is_integer else dict.fromkeys([dtype, *map(np.dtype, ("f4", "f8", "f2"))])
    for bits, known in ((8, _OF_8_BITS), (16, _OF_16_BITS)):
        if bits < 8 * dtype.itemsize and len(patterns) <= 1 << bits:
            for steps, arithmetic in product(known[:2] if is_integer else known, arithmetics):
                with suppress(SpecError):
                    narrow = Narrow(dtype, bits, steps, arithmetic)
                    if np.isin(patterns, narrow.tables.patterns).all():
                        return narrow
    return None


def _distinct(samples: npt.NDArray[np.generic], dtype: np.dtype[np.generic]) -> Patterns | None:
    """The bits of the different elements; None if there are more than codes."""
    patterns = Layout(samples.shape[1:], dtype).rows(samples).reshape(-1).view(pattern_dtype(dtype))
    most = 1 << (8 if dtype.itemsize == 2 else 16)
    known = patterns[:0]
    for start in range(0, len(patterns), _PIECE):
        known = np.union1d(known, patterns[start : start + _PIECE])
        if len(known) > most:
            return None
    return known
