"""Residuals in groups of 32 with as many bits for each as the largest needs: ``pred:fast``."""

from typing import Final

from obscodec.codecs.formats.images.geometry import GROUP_NBYTES, GROUP_STRIDE, SIDE, Geometry, Scratch
from obscodec.codecs.formats.images.tiles import N_SPATIAL, transform_bits
from obscodec.codecs.formats.images.words import unzigzag_bytes, zigzag_bytes
from obscodec.kernels import (
    compiled,
    copy,
    inlined,
    load_u8,
    load_u16,
    load_u64,
    signed,
    store_u8,
    store_u64,
    trailing_zeros,
    unsigned,
)
from obscodec.statuses import NO_SUCH_FRAME, OK, WIDE_GROUP

_MAX_WIDTH: Final = 8
_FEW_WIDTHS: Final = 3  # bits of a width if none is 7, which counts as 8 then
_ALL_WIDTHS: Final = 4
_FEW_KINDS: Final = 2  # bits of a kind in a frame without vectors
_WORDS: Final = GROUP_NBYTES // SIDE
_HALVES: Final = 0x0000000100000001
_QUARTERS: Final = 0x0001000100010001


@compiled
def unpack_groups(at: int, end: int, n_vectors: int, form: int, geometry: Geometry, scratch: Scratch) -> int:
    """Read the modes and residuals of a frame from the bytes at ``at``; returns a status.

    They end at ``end``, behind which bytes can be read.
    """
    mode_bits, width_bits = _bits_of_mode(n_vectors, geometry.n_channels), _FEW_WIDTHS if form else _ALL_WIDTHS
    widths = at + (geometry.n_tiles * mode_bits + 7 >> 3)
    words = widths + (geometry.n_groups * width_bits + 7 >> 3)
    if words > end:
        return NO_SUCH_FRAME
    for t in range(geometry.n_tiles):
        store_u8(scratch.modes + t, unsigned(_read_bits(at, t * mode_bits, mode_bits)))
    for g in range(geometry.n_groups):
        width = _read_bits(widths, g * width_bits, width_bits)
        if form and width == _MAX_WIDTH - 1:
            width = _MAX_WIDTH
        if width > _MAX_WIDTH:
            return WIDE_GROUP
        words = _unpack_group(words, width, scratch.residuals + GROUP_STRIDE * g)
        if words > end:
            return NO_SUCH_FRAME
    return OK if words == end else NO_SUCH_FRAME


@compiled
def pack_groups(out: int, most: int, n_vectors: int, geometry: Geometry, scratch: Scratch) -> tuple[int, int]:
    """Write the inverse of :func:`unpack_groups`, unless it has ``most`` bytes; returns its bytes and its form."""
    n_sevens, end = 0, scratch.bits
    for g in range(geometry.n_groups):
        width = _group_width(scratch.residuals + GROUP_STRIDE * g)
        n_sevens += width == _MAX_WIDTH - 1
        store_u8(scratch.labels + g, unsigned(width))
    form = GROUP_NBYTES * n_sevens < geometry.n_groups
    for g in range(geometry.n_groups):
        width = signed(load_u8(scratch.labels + g))
        if form and width == _MAX_WIDTH - 1:
            width = _MAX_WIDTH
        end = _pack_group(end, width, scratch.residuals + GROUP_STRIDE * g)
        store_u8(scratch.labels + g, unsigned(width - 1 if form and width == _MAX_WIDTH else width))
    mode_bits, width_bits = _bits_of_mode(n_vectors, geometry.n_channels), _FEW_WIDTHS if form else _ALL_WIDTHS
    nbytes = (geometry.n_tiles * mode_bits + 7 >> 3) + (geometry.n_groups * width_bits + 7 >> 3) + end - scratch.bits
    if nbytes < most:
        out = _write_bits(out, scratch.modes, geometry.n_tiles, mode_bits)
        out = _write_bits(out, scratch.labels, geometry.n_groups, width_bits)
        copy(out, scratch.bits, end - scratch.bits)
    return nbytes, int(form)


@inlined
def _masks(width: int) -> tuple[int, int, int, int, int]:
    """Masks of four numbers in a word, of every other two, of the two between, of every other one, of that between."""
    four = (unsigned(1) << unsigned(4 * width)) - unsigned(1)
    two = ((unsigned(1) << unsigned(2 * width)) - unsigned(1)) * unsigned(_HALVES)
    one = ((unsigned(1) << unsigned(width)) - unsigned(1)) * unsigned(_QUARTERS)
    return four, two, two << unsigned(2 * width), one, one << unsigned(width)


@compiled
def _unpack_group(at: int, width: int, residuals: int) -> int:
    """Write the 32 residuals of a group with ``width`` bits each, and return the address behind it.

    Seven bytes behind the group are read.
    """
    four, two, other_two, one, other_one = _masks(width)
    for k in range(_WORDS):
        word = load_u64(at)
        word = (word & four) | ((word >> unsigned(4 * width) & four) << unsigned(32))
        word = (word & two) | ((word & other_two) << unsigned(16 - 2 * width))
        word = (word & one) | ((word & other_one) << unsigned(8 - width))
        store_u64(residuals + SIDE * k, unzigzag_bytes(word))
        at += width
    return at


@compiled
def _pack_group(out: int, width: int, residuals: int) -> int:
    """The inverse of :func:`_unpack_group`: writes a group, and up to seven bytes more."""
    four, two, other_two, one, other_one = _masks(width)
    for k in range(_WORDS):
        word = zigzag_bytes(load_u64(residuals + SIDE * k))
        word = (word & one) | (word >> unsigned(8 - width) & other_one)
        word = (word & two) | (word >> unsigned(16 - 2 * width) & other_two)
        word = (word & four) | ((word >> unsigned(32) & four) << unsigned(4 * width))
        store_u64(out, word)
        out += width
    return out


@inlined
def _group_width(residuals: int) -> int:
    """The bits that the largest of 32 residuals needs, as zigzag."""
    every = unsigned(0)
    for k in range(_WORDS):
        every |= zigzag_bytes(load_u64(residuals + SIDE * k))
    every |= every >> unsigned(32)
    every |= every >> unsigned(16)
    every |= every >> unsigned(8)
    every &= unsigned(255)
    every |= every >> unsigned(1)
    every |= every >> unsigned(2)
    every |= every >> unsigned(4)
    return trailing_zeros(~every)


@inlined
def _read_bits(begin: int, position: int, n_bits: int) -> int:
    """The number in ``n_bits`` bits, at most 8, from bit ``position`` on; two bytes are read."""
    return signed(load_u16(begin + (position >> 3)) >> unsigned(position & 7)) & ((1 << n_bits) - 1)


@compiled
def _write_bits(out: int, values: int, n_values: int, n_bits: int) -> int:
    """Write ``u8[n_values]`` with ``n_bits`` bits each, the low bits first, and return the address behind them."""
    word, filled = unsigned(0), 0
    for at in range(values, values + n_values):
        word |= load_u8(at) << unsigned(filled)
        filled += n_bits
        while filled >= 8:
            store_u8(out, word)
            word >>= unsigned(8)
            filled -= 8
            out += 1
    if filled:
        store_u8(out, word)
        out += 1
    return out


@inlined
def _bits_of_mode(n_vectors: int, n_channels: int) -> int:
    """The bits of a mode in a frame with so many vectors, at most 8."""
    bits = _FEW_KINDS
    while (1 << bits) < N_SPATIAL + 2 * n_vectors:
        bits += 1
    return bits + transform_bits(n_channels)
