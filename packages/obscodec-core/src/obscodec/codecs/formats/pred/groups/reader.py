"""Reading the groups of a frame from their streams of bits."""

from obscodec.codecs.formats.pred.geometry import GROUP_NBYTES, GROUP_STRIDE, SIDE
from obscodec.codecs.formats.pred.groups.classes import (
    ENDS,
    MAX_BITS,
    MODES,
    N_MARKS,
    PAIRS,
    POSITIONS,
    RAW,
    TABLE_NBYTES,
    residuals_of_code,
    sort_groups,
)
from obscodec.kernels import (
    compiled,
    fill_zeros,
    inlined,
    int64s_at,
    load_u32,
    load_u64,
    signed,
    store_u8,
    store_u32,
    unsigned,
)
from obscodec.statuses import NO_SUCH_BITS, OK
from obscodec.streams import read_varint


@compiled
def decode_head(
    at: int, end: int, n_bytes: int, n_groups: int, n_modes: int, tables: int, labels: int, modes: int
) -> int:
    """Read the classes of the groups and the modes of the tiles from the bits at ``at``, ``n_bytes`` of them."""
    position, mask = 0, unsigned((1 << MAX_BITS) - 1)
    table, target, step = tables + PAIRS * TABLE_NBYTES, labels, 2
    for part in range(2):
        n_codes = n_groups >> 1
        if part:
            table, target, n_codes, step = tables + MODES * TABLE_NBYTES, modes, n_modes, 1
        done = 0
        while done < n_codes:
            if position > 8 * (end - at):
                return NO_SUCH_BITS
            word = load_u64(at + (position >> 3)) >> unsigned(position & 7)
            for _ in range(4):
                if done < n_codes:
                    entry = load_u64(table + signed((word & mask) << unsigned(3)))
                    length = entry >> unsigned(32)
                    word >>= length
                    position += signed(length)
                    store_u8(target, entry)
                    if step == 2:
                        store_u8(target + 1, entry >> unsigned(8))
                    target += step
                    done += 1
    return OK if position + 7 >> 3 == n_bytes else NO_SUCH_BITS


@inlined
def _put_next(table: int, word: int, bit: int, out: int, width: int) -> tuple[int, int, int]:
    """Write what the next code word in ``word`` stands for; returns the word, the bit and the address behind it."""
    entry = load_u64(table + signed((word & unsigned((1 << MAX_BITS) - 1)) << unsigned(3)))
    store_u32(out, entry)
    length = entry >> unsigned(32)
    return word >> length, bit + signed(length), out + width


@compiled
def decode_groups(
    at: int,
    end: int,
    n_streams: int,
    n_groups: int,
    n_modes: int,
    tables: int,
    labels: int,
    order: int,
    modes: int,
    residuals: int,
    marks_at: int,
) -> int:
    """Read the modes and residuals of a frame; :data:`SLACK` bytes behind its ``end`` are read.

    Args:
        at: the address of the lengths of its streams.
        end: where its last stream ends.
        n_streams: how many streams there are, a multiple of 4.
        n_groups: groups of the frame.
        n_modes: tiles of the frame.
        tables: of ``u64[16, 2048]``.
        labels: of ``u8[n_groups]``, changed.
        order: of ``u32[n_groups]``, changed.
        modes: of ``u8[n_modes]``, filled.
        residuals: of the groups, filled.
        marks_at: of ``i64[N_MARKS]``, changed.

    Returns:
        A status.
    """
    marks = int64s_at(marks_at, (N_MARKS,))
    head_nbytes, at = read_varint(at, end)
    if at < 0:
        return -at
    for s in range(n_streams - 1):
        marks[ENDS + s], at = read_varint(at, end)
        if at < 0:
            return -at
    if head_nbytes > end - at:
        return NO_SUCH_BITS
    begin = head_nbytes
    for s in range(n_streams):
        marks[POSITIONS + s] = 8 * begin
        if s < n_streams - 1:
            if marks[ENDS + s] > end - at - begin:
                return NO_SUCH_BITS
            begin += marks[ENDS + s]
            marks[ENDS + s] = begin
    marks[ENDS + n_streams - 1] = end - at
    status = decode_head(at, end, head_nbytes, n_groups, n_modes, tables, labels, modes)
    if status != OK:
        return status
    sort_groups(labels, n_groups, order, marks_at)
    for j in range(marks[1]):
        fill_zeros(residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j)), GROUP_NBYTES)
    last = 8 * (end - at)
    for k in range(1, RAW):
        table, width = tables + k * TABLE_NBYTES, residuals_of_code(k)
        j, stream, behind = marks[k], POSITIONS, marks[k + 1]
        while j + 4 <= behind:
            out0 = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j))
            out1 = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j + 4))
            out2 = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j + 8))
            out3 = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j + 12))
            bit0, bit1, bit2, bit3 = marks[stream], marks[stream + 1], marks[stream + 2], marks[stream + 3]
            if max(max(bit0, bit1), max(bit2, bit3)) > last:
                return NO_SUCH_BITS
            for _ in range(SIDE // width):
                word0 = load_u64(at + (bit0 >> 3)) >> unsigned(bit0 & 7)
                word1 = load_u64(at + (bit1 >> 3)) >> unsigned(bit1 & 7)
                word2 = load_u64(at + (bit2 >> 3)) >> unsigned(bit2 & 7)
                word3 = load_u64(at + (bit3 >> 3)) >> unsigned(bit3 & 7)
                for _ in range(4):
                    word0, bit0, out0 = _put_next(table, word0, bit0, out0, width)
                    word1, bit1, out1 = _put_next(table, word1, bit1, out1, width)
                    word2, bit2, out2 = _put_next(table, word2, bit2, out2, width)
                    word3, bit3, out3 = _put_next(table, word3, bit3, out3, width)
            marks[stream], marks[stream + 1], marks[stream + 2], marks[stream + 3] = bit0, bit1, bit2, bit3
            j += 4
            stream = POSITIONS + (j - marks[k] & n_streams - 1)
        while j < behind:
            out, bit = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j)), marks[stream]
            if bit > last:
                return NO_SUCH_BITS
            for _ in range(SIDE // width):
                word = load_u64(at + (bit >> 3)) >> unsigned(bit & 7)
                for _ in range(4):
                    word, bit, out = _put_next(table, word, bit, out, width)
            marks[stream] = bit
            j += 1
            stream += 1
    for j in range(marks[RAW], marks[RAW + 1]):
        stream = POSITIONS + (j - marks[RAW] & n_streams - 1)
        out, bit = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j)), marks[stream]
        if bit > last:
            return NO_SUCH_BITS
        for target in range(out, out + GROUP_NBYTES, 4):
            store_u32(target, load_u64(at + (bit >> 3)) >> unsigned(bit & 7))
            bit += 32
        marks[stream] = bit
    for s in range(n_streams):
        if marks[POSITIONS + s] + 7 >> 3 != marks[ENDS + s]:
            return NO_SUCH_BITS
    return OK
