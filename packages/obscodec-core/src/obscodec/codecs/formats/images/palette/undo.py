"""Tiles of places in a palette from the ranks of these."""

from typing import Final

from obscodec.codecs.formats.images.geometry import SIDE, row_offset
from obscodec.codecs.formats.images.palette.orders import N_FIRST, Orders, late_colour
from obscodec.codecs.formats.images.scratch import N_COLOURS
from obscodec.codecs.formats.images.tiles import N_SPATIAL
from obscodec.codecs.formats.images.words import zigzag_bytes
from obscodec.kernels import compiled, inlined, load_u8, load_u64, signed, store_u8, store_u64, unsigned

# How a tile is predicted: from the pixel above or that of the frame before, and for some from another one, too.
ABOVE: Final = 0
ABOVE_LEFT: Final = 1
BEFORE: Final = 0  # behind N_SPATIAL, and 2 for each vector
BEFORE_ABOVE: Final = 1
_LATE: Final = 0xF0F0F0F0F0F0F0F0  # the bits of ranks of 16 or more


@inlined
def is_after_two(mode: int) -> bool:
    """Whether the colours of two pixels say what to expect, not of one."""
    return bool((mode - N_SPATIAL if mode >= N_SPATIAL else mode) & 1)


@compiled
def undo_tile(mode: int, target: int, before: int, residuals: int, stride: int, orders: Orders) -> None:
    """Turn the residuals of a tile into places at the address ``target``; ``before`` is where its vector leads."""
    n, is_temporal = orders.n, mode >= N_SPATIAL
    order = orders.before if is_temporal else orders.above
    firsts = orders.before_above if is_temporal else orders.above_left
    if is_after_two(mode) and not is_temporal:
        _undo_above_left(target, residuals, stride, n, firsts, order)
        return
    above = load_u64(target - stride)
    for y in range(SIDE):
        ranks, contexts = _ranks(residuals, y), load_u64(before) if is_temporal else above
        if not is_after_two(mode):
            above = _after_one(ranks, contexts, n, order)
        elif ranks & unsigned(_LATE):
            above = _late_row(target, ranks, before, target - stride, n, firsts, order)
        else:
            above = _after_two(ranks, contexts, above, n, firsts)
        store_u64(target, above)
        target += stride
        before += stride


@inlined
def _ranks(residuals: int, y: int) -> int:
    """The ranks of a row of a tile."""
    return zigzag_bytes(load_u64(residuals + row_offset(y)))


@inlined
def _byte(word: int, x: int) -> int:
    return signed(word >> unsigned(8 * x) & unsigned(0xFF))


@inlined
def _after_one(ranks: int, contexts: int, n: int, order: int) -> int:
    """The eight colours with some ranks, each after one."""
    word = unsigned(0)
    for x in range(SIDE):
        at = order + N_COLOURS * min(n, _byte(contexts, x)) + _byte(ranks, x)
        word |= load_u8(at) << unsigned(8 * x)
    return word


@inlined
def _after_two(ranks: int, contexts: int, above: int, n: int, firsts: int) -> int:
    """The eight colours with some ranks, all of them below 16, each after two that are known."""
    word = unsigned(0)
    for x in range(SIDE):
        own = firsts + N_FIRST * (min(n, _byte(contexts, x)) * (n + 1) + min(n, _byte(above, x)))
        word |= load_u8(own + _byte(ranks, x)) << unsigned(8 * x)
    return word


@compiled
def _late_row(target: int, ranks: int, before: int, second: int, n: int, firsts: int, order: int) -> int:
    """Undo eight pixels with any ranks, after those at the addresses ``before`` and ``second``, one by one."""
    for x in range(SIDE):
        context, rank = min(n, signed(load_u8(before + x))), _byte(ranks, x)
        own = firsts + N_FIRST * (context * (n + 1) + min(n, signed(load_u8(second + x))))
        if rank < N_FIRST:
            store_u8(target + x, load_u8(own + rank))
        else:
            store_u8(target + x, unsigned(late_colour(rank, own, order + N_COLOURS * context)))
    return load_u64(target)


@compiled
def _undo_above_left(target: int, residuals: int, stride: int, n: int, firsts: int, order: int) -> None:
    """Undo a tile in which each pixel needs the one before it.

    Bytes are loaded and stored one by one, so that a processor begins a row before it ends the row above.
    """
    for y in range(SIDE):
        ranks = _ranks(residuals, y)
        if ranks & unsigned(_LATE):
            _late_row(target, ranks, target - stride, target - 1, n, firsts, order)
        else:
            left = min(n, signed(load_u8(target - 1)))
            for x in range(SIDE):
                own = firsts + N_FIRST * (min(n, signed(load_u8(target - stride + x))) * (n + 1) + left)
                colour = load_u8(own + _byte(ranks, x))
                store_u8(target + x, colour)
                left = min(n, signed(colour))
        target += stride
