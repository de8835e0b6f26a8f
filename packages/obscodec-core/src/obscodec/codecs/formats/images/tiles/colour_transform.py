"""Colour transforms: what the residuals of red and blue have in common with those of green is subtracted from them.

A share of green is subtracted from red, and a share of green, or of red, from blue. Shares are in quarters.
"""

from typing import Final

from obscodec.codecs.formats.images.geometry import GROUP_STRIDE, GROUPS_OF_TILE, SIDE, row_offset
from obscodec.codecs.formats.images.words import (
    add_bytes,
    bits_of_bytes,
    half_bytes,
    quarter_bytes,
    subtract_bytes,
    zigzag_bytes,
)
from obscodec.kernels import compiled, inlined, load_u64, store_u64, unsigned

TRANSFORM_BITS: Final = 3
N_TRANSFORMS: Final = 1 << TRANSFORM_BITS
PLANE_NBYTES: Final = GROUPS_OF_TILE * GROUP_STRIDE  # of a plane of a tile among the residuals
_RED_SHARES: Final = (0, 4, 4, 2, 4, 1, 5, 3)  # of green, for each transform
_BLUE_SHARES: Final = (0, 2, 4, 2, 4, 0, 3, 4)
_OF_RED: Final = (False, False, False, False, True, False, False, True)  # whether blue shares with red


@inlined
def transform_bits(n_channels: int) -> int:
    """The bits of a mode that say which transform it has: 0 where there are no three colours."""
    return TRANSFORM_BITS if n_channels == 3 else 0


@inlined
def _share(word: int, quarters: int) -> int:
    """So many quarters of eight signed bytes, each quarter, half and whole rounded down."""
    share = unsigned(0)
    if quarters & 4:
        share = word
    if quarters & 2:
        share = add_bytes(share, half_bytes(word))
    if quarters & 1:
        share = add_bytes(share, quarter_bytes(word))
    return share


@compiled
def undo_transform(transform: int, residuals: int) -> None:
    """Give the residuals of a tile what they have in common; ``residuals`` is the address of its groups."""
    red, blue = residuals + PLANE_NBYTES, residuals + 2 * PLANE_NBYTES
    _add(red, residuals, _RED_SHARES[transform], unsigned(0))
    _add(blue, red if _OF_RED[transform] else residuals, _BLUE_SHARES[transform], unsigned(0))


@compiled
def _add(target: int, source: int, quarters: int, flip: int) -> None:
    """Add a share of a plane of a tile to another; subtract it if ``flip`` has all bits: ``~(~x + y)`` is ``x - y``."""
    if quarters:
        for y in range(SIDE):
            at = row_offset(y)
            share = _share(load_u64(source + at), quarters)
            store_u64(target + at, flip ^ add_bytes(flip ^ load_u64(target + at), share))


@compiled
def apply_best_transform(residuals: int) -> int:
    """Choose a transform for the residuals of a tile, apply it, and return it."""
    transform = _best_transform(residuals)
    red, blue = residuals + PLANE_NBYTES, residuals + 2 * PLANE_NBYTES
    _add(blue, red if _OF_RED[transform] else residuals, _BLUE_SHARES[transform], ~unsigned(0))
    _add(red, residuals, _RED_SHARES[transform], ~unsigned(0))
    return transform


@inlined
def _bits(word: int) -> int:
    return bits_of_bytes(zigzag_bytes(word))


@compiled
def _best_transform(residuals: int) -> int:
    """The transform after which a tile needs the fewest bits."""
    red_0, red_1, red_2, red_3, red_4, red_5, blue_0, blue_2, blue_3, blue_4, blue_of_red = (0,) * 11
    for y in range(SIDE):
        at = residuals + row_offset(y)
        green, red, blue = load_u64(at), load_u64(at + PLANE_NBYTES), load_u64(at + 2 * PLANE_NBYTES)
        half_green, quarter = half_bytes(green), quarter_bytes(green)
        three = add_bytes(half_green, quarter)
        less = subtract_bytes(red, green)
        red_0 += _bits(red)
        red_1 += _bits(subtract_bytes(red, quarter))
        red_2 += _bits(subtract_bytes(red, half_green))
        red_3 += _bits(subtract_bytes(red, three))
        red_4 += _bits(less)
        red_5 += _bits(subtract_bytes(less, quarter))
        blue_0 += _bits(blue)
        blue_2 += _bits(subtract_bytes(blue, half_green))
        blue_3 += _bits(subtract_bytes(blue, three))
        blue_4 += _bits(subtract_bytes(blue, green))
        blue_of_red += _bits(subtract_bytes(blue, red))
    best, fewest = 0, red_0 + blue_0
    best, fewest = _fewer(best, fewest, 1, red_4 + blue_2)
    best, fewest = _fewer(best, fewest, 2, red_4 + blue_4)
    best, fewest = _fewer(best, fewest, 3, red_2 + blue_2)
    best, fewest = _fewer(best, fewest, 4, red_4 + blue_of_red)
    best, fewest = _fewer(best, fewest, 5, red_1 + blue_0)
    best, fewest = _fewer(best, fewest, 6, red_5 + blue_3)
    best, fewest = _fewer(best, fewest, 7, red_3 + blue_of_red)
    return best


@inlined
def _fewer(best: int, fewest: int, transform: int, bits: int) -> tuple[int, int]:
    return (transform, bits) if bits < fewest else (best, fewest)
