"""Writing the groups of a frame as streams of bits."""

from obscodec.codecs.formats.images.geometry import GROUP_NBYTES, GROUP_STRIDE, SIDE, Geometry, Scratch
from obscodec.codecs.formats.images.groups.classes import (
    ENDS,
    LIMIT_OF,
    MAX_BITS,
    MODES,
    N_CLASSES,
    N_MARKS,
    N_STREAMS,
    PAIRS,
    RAW,
    STARTS,
    group_key,
    residuals_of_code,
    sort_groups,
    symbols_of,
)
from obscodec.kernels import (
    compiled,
    copy,
    inlined,
    int64s_at,
    load_u8,
    load_u32,
    load_u64,
    signed,
    store_u8,
    store_u32,
    store_u64,
    unsigned,
)
from obscodec.segments import Ints
from obscodec.streams import write_varint


@inlined
def _code(codes: int, book: int, symbol: int) -> int:
    return signed(load_u32(codes + 4 * (STARTS[book] + symbol)))


@inlined
def _put_code(code: int, word: int, filled: int, bits: int) -> tuple[int, int, int]:
    """Put a code word behind the ``filled`` bits of ``word``, and its first 32 bits at ``bits`` once it has so many."""
    word |= unsigned(code & 0xFFFF) << unsigned(filled)
    filled += code >> 16
    if filled >= 32:
        store_u32(bits, word)
        word, filled, bits = word >> unsigned(32), filled - 32, bits + 4
    return word, filled, bits


@compiled
def encode_groups(out: int, most: int, geometry: Geometry, classes: int, codes: int, scratch: Scratch) -> int:
    """Write the modes and residuals of a frame as :func:`decode_groups` reads them, unless they take ``most`` bytes.

    At ``classes`` is ``u8[N_KEYS]``, the class for each key of a group, and at ``codes`` ``u32[N_SYMBOLS]``, each code
    word, and its length from bit 16 on. Returns how many bytes there are; ``most`` if they are too many.
    """
    marks, labels, bits = int64s_at(scratch.marks, (N_MARKS,)), scratch.labels, scratch.bits
    for g in range(geometry.n_groups):
        store_u8(labels + g, load_u8(classes + group_key(scratch.residuals + GROUP_STRIDE * g)))
    sort_groups(geometry.n_groups, scratch)
    word, filled = unsigned(0), 0
    for g in range(0, geometry.n_groups, 2):
        code = _code(codes, PAIRS, 16 * signed(load_u8(labels + g)) + signed(load_u8(labels + g + 1)))
        word, filled, bits = _put_code(code, word, filled, bits)
    for t in range(geometry.n_tiles):
        code = _code(codes, MODES, signed(load_u8(scratch.modes + t)))
        word, filled, bits = _put_code(code, word, filled, bits)
    store_u64(bits, word)
    bits += filled + 7 >> 3
    head_nbytes = bits - scratch.bits
    for s in range(N_STREAMS):
        stream, bits = bits, _write_stream(s, bits, codes, marks, scratch)
        marks[ENDS + s] = bits - stream
    behind = write_varint(bits, head_nbytes)
    for s in range(N_STREAMS - 1):
        behind = write_varint(behind, marks[ENDS + s])
    nbytes = behind - scratch.bits
    if nbytes >= most:
        return most
    copy(out, bits, behind - bits)
    copy(out + behind - bits, scratch.bits, bits - scratch.bits)
    return nbytes


@inlined
def _write_stream(s: int, bits: int, codes: int, marks: Ints, scratch: Scratch) -> int:
    """Write every fourth group of each class at the address ``bits``, from number ``s`` on; the address behind them."""
    word, filled = unsigned(0), 0
    for k in range(1, N_CLASSES):
        width, limit = residuals_of_code(k), LIMIT_OF[k]
        for j in range(marks[k] + s, marks[k + 1], N_STREAMS):
            group = scratch.residuals + GROUP_STRIDE * signed(load_u32(scratch.order + 4 * j))
            for at in range(group, group + GROUP_NBYTES, SIDE):
                if k == RAW:
                    for part in range(0, SIDE, 4):
                        word |= load_u32(at + part) << unsigned(filled)
                        store_u32(bits, word)
                        word, bits = word >> unsigned(32), bits + 4
                else:
                    symbols = symbols_of(load_u64(at), width, limit)
                    symbol_mask = (unsigned(1) << unsigned(8 * width)) - unsigned(1)
                    for _ in range(SIDE // width):
                        code = _code(codes, k, signed(symbols & symbol_mask))
                        symbols >>= unsigned(8 * width)
                        word, filled, bits = _put_code(code, word, filled, bits)
    store_u64(bits, word)
    return bits + (filled + 7 >> 3)


def bits_nbytes(n_groups: int, n_modes: int) -> int:
    """The bytes that :func:`encode_groups` may write at ``scratch.bits``."""
    most_of_head = MAX_BITS * (n_groups // 2 + n_modes)
    return (most_of_head + MAX_BITS * GROUP_NBYTES * n_groups) // 8 + 8 * (N_STREAMS + 2)
