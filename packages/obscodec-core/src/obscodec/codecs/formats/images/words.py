"""Arithmetic on eight bytes at once: intrinsics of kernels for images.

Eight bytes in a word, a ``uint64``, are added and compared each for itself, modulo 256. The types for Python are in
``words.pyi``.
"""

from llvmlite import ir
from numba import types

from obscodec.kernels import emits

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)


def _bytes_of(builder, word):
    return builder.bitcast(word, ir.VectorType(_BYTE, 8))


def _eight(value):
    return ir.Constant(ir.VectorType(_BYTE, 8), [value] * 8)


@emits(types.uint64(types.uint64, types.uint64))
def add_bytes(builder, a, b):
    """The sums of eight bytes and eight others."""
    return builder.bitcast(builder.add(_bytes_of(builder, a), _bytes_of(builder, b)), _WORD)


@emits(types.uint64(types.uint64, types.uint64))
def subtract_bytes(builder, a, b):
    """The differences of eight bytes and eight others."""
    return builder.bitcast(builder.sub(_bytes_of(builder, a), _bytes_of(builder, b)), _WORD)


@emits(types.uint64(types.uint64, types.uint64))
def max_bytes(builder, a, b):
    """The greater of each two bytes."""
    left, right = _bytes_of(builder, a), _bytes_of(builder, b)
    return builder.bitcast(builder.select(builder.icmp_unsigned(">", left, right), left, right), _WORD)


@emits(types.uint64(types.uint64))
def sum_bytes_up_to(builder, word):
    """Each byte plus all bytes below it."""
    total = _bytes_of(builder, word)
    for distance in (1, 2, 4):
        places = [k - distance if k >= distance else 8 for k in range(8)]
        mask = ir.Constant(ir.VectorType(ir.IntType(32), 8), places)
        total = builder.add(total, builder.shuffle_vector(total, _eight(0), mask))
    return builder.bitcast(total, _WORD)


@emits(types.uint64(types.uint64))
def zigzag_bytes(builder, word):
    """Eight signed bytes 0, -1, 1, -2, ... as 0, 1, 2, 3, ..."""
    signed = _bytes_of(builder, word)
    return builder.bitcast(builder.xor(builder.add(signed, signed), builder.ashr(signed, _eight(7))), _WORD)


@emits(types.uint64(types.uint64))
def unzigzag_bytes(builder, word):
    """The inverse of ``zigzag_bytes``."""
    zigzag = _bytes_of(builder, word)
    sign = builder.sub(_eight(0), builder.and_(zigzag, _eight(1)))
    return builder.bitcast(builder.xor(builder.lshr(zigzag, _eight(1)), sign), _WORD)


def _divider(shift):
    @emits(types.uint64(types.uint64))
    def divide(builder, word):
        return builder.bitcast(builder.ashr(_bytes_of(builder, word), _eight(shift)), _WORD)

    return divide


half_bytes = _divider(1)  # a half of each of eight signed bytes, rounded down
quarter_bytes = _divider(2)  # a quarter


@emits(types.int64(types.uint64))
def bits_of_bytes(builder, word):
    """How many bits eight bytes need without their leading zeros, all together."""
    filled = _bytes_of(builder, word)
    for distance in (1, 2, 4):
        filled = builder.or_(filled, builder.lshr(filled, _eight(distance)))
    return builder.ctpop(builder.bitcast(filled, _WORD))
