"""Writing the groups of a frame as streams of bits."""

from obscodec.codecs.formats.pred.geometry import GROUP_NBYTES, GROUP_STRIDE, SIDE
from obscodec.codecs.formats.pred.groups.classes import (
    ENDS,
    LIMIT_OF,
    MAX_BITS,
    MAX_STREAMS,
    MODES,
    N_CLASSES,
    N_MARKS,
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
def encode_groups(
    residuals: int,
    n_groups: int,
    modes: int,
    n_modes: int,
    n_streams: int,
    classes: int,
    codes: int,
    labels: int,
    order: int,
    bits: int,
    most: int,
    out: int,
    marks_at: int,
) -> int:
    """Write the inverse of :func:`decode_groups`, unless it has ``most`` bytes or more.

    Args:
        residuals: the address of the groups.
        n_groups: how many there are.
        modes: of ``u8[n_modes]``.
        n_modes: tiles of the frame.
        n_streams: how many streams to write.
        classes: of ``u8[N_KEYS]``, the class for each key of a group.
        codes: of ``u32[N_SYMBOLS]``: each code word, and its length from bit 16 on.
        labels: of ``u8[n_groups]``, changed.
        order: of ``u32[n_groups]``, changed.
        bits: where to put the streams at first, see :func:`bits_nbytes`.
        most: how many bytes are too many.
        out: where to write.
        marks_at: of ``i64[N_MARKS]``, changed.

    Returns:
        How many bytes there are; ``most`` if they are too many.
    """
    marks = int64s_at(marks_at, (N_MARKS,))
    for g in range(n_groups):
        store_u8(labels + g, load_u8(classes + group_key(residuals + GROUP_STRIDE * g)))
    sort_groups(labels, n_groups, order, marks_at)
    word, filled, begin = unsigned(0), 0, bits
    for g in range(0, n_groups, 2):
        code = _code(codes, PAIRS, 16 * signed(load_u8(labels + g)) + signed(load_u8(labels + g + 1)))
        word, filled, bits = _put_code(code, word, filled, bits)
    for t in range(n_modes):
        code = _code(codes, MODES, signed(load_u8(modes + t)))
        word, filled, bits = _put_code(code, word, filled, bits)
    store_u64(bits, word)
    bits += filled + 7 >> 3
    head_nbytes = bits - begin
    for s in range(n_streams):
        stream, word, filled = bits, unsigned(0), 0
        for k in range(1, N_CLASSES):
            width, limit = residuals_of_code(k), LIMIT_OF[k]
            for j in range(marks[k] + s, marks[k + 1], n_streams):
                group = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j))
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
        bits += filled + 7 >> 3
        marks[ENDS + s] = bits - stream
    nbytes = bits - begin + _varint_nbytes(head_nbytes)
    for s in range(n_streams - 1):
        nbytes += _varint_nbytes(marks[ENDS + s])
    if nbytes >= most:
        return most
    here = write_varint(out, head_nbytes)
    for s in range(n_streams - 1):
        here = write_varint(here, marks[ENDS + s])
    copy(here, begin, bits - begin)
    return nbytes


@inlined
def _varint_nbytes(value: int) -> int:
    """The bytes of a varint."""
    nbytes = 1
    while value > 0x7F:
        value >>= 7
        nbytes += 1
    return nbytes


def bits_nbytes(n_groups: int, n_modes: int) -> int:
    """The bytes that :func:`encode_groups` may write at ``bits``."""
    most_of_head = MAX_BITS * (n_groups // 2 + n_modes)
    return (most_of_head + MAX_BITS * GROUP_NBYTES * n_groups) // 8 + 8 * (MAX_STREAMS + 2)
