"""Reading the groups of a frame from their streams of bits."""

from obscodec.codecs.formats.images.geometry import GROUP_NBYTES, GROUP_STRIDE, SIDE, Geometry, Scratch
from obscodec.codecs.formats.images.groups.classes import (
    ENDS,
    MAX_BITS,
    MODES,
    N_MARKS,
    N_STREAMS,
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
from obscodec.segments import Ints
from obscodec.statuses import NO_SUCH_BITS, OK
from obscodec.streams import read_varint


@compiled
def decode_groups(at: int, end: int, geometry: Geometry, tables: int, scratch: Scratch) -> int:
    """Read the modes and residuals of a frame into ``scratch``; returns a status.

    The lengths of its streams are at ``at``, and the last stream ends at ``end``, behind which :data:`SLACK` bytes are
    read. ``tables`` is the address of ``u64[16, 2048]``.
    """
    marks = int64s_at(scratch.marks, (N_MARKS,))
    head_nbytes, at = _read_lengths(at, end, marks)
    if at < 0:
        return -at
    status = decode_head(at, end, head_nbytes, geometry, tables, scratch)
    if status != OK:
        return status
    sort_groups(geometry.n_groups, scratch)
    for j in range(marks[1]):
        fill_zeros(_group(scratch, j), GROUP_NBYTES)
    last = 8 * (end - at)
    for k in range(1, RAW):
        if not _decode_class(at, last, tables + k * TABLE_NBYTES, residuals_of_code(k), k, marks, scratch):
            return NO_SUCH_BITS
    for j in range(marks[RAW], marks[RAW + 1]):
        stream = POSITIONS + (j - marks[RAW] & N_STREAMS - 1)
        out, bit = _group(scratch, j), marks[stream]
        if bit > last:
            return NO_SUCH_BITS
        for target in range(out, out + GROUP_NBYTES, 4):
            store_u32(target, load_u64(at + (bit >> 3)) >> unsigned(bit & 7))
            bit += 32
        marks[stream] = bit
    for s in range(N_STREAMS):
        if marks[POSITIONS + s] + 7 >> 3 != marks[ENDS + s]:
            return NO_SUCH_BITS
    return OK


@inlined
def _read_lengths(at: int, end: int, marks: Ints) -> tuple[int, int]:
    """The bytes of the head bits, and their address, or minus a status; marks say where streams begin and end then."""
    head_nbytes, at = read_varint(at, end)
    for s in range(N_STREAMS - 1):
        if at >= 0:
            marks[ENDS + s], at = read_varint(at, end)
    if at < 0:
        return 0, at
    begin, nbytes = 0, head_nbytes
    for s in range(N_STREAMS):
        if nbytes > end - at - begin:
            return 0, -NO_SUCH_BITS
        begin += nbytes
        nbytes, marks[POSITIONS + s] = marks[ENDS + s], 8 * begin
        if s:
            marks[ENDS + s - 1] = begin
    marks[ENDS + N_STREAMS - 1] = end - at
    return head_nbytes, at


@inlined
def _group(scratch: Scratch, j: int) -> int:
    """The address of the residuals of a group, by its place among the sorted ones."""
    return scratch.residuals + GROUP_STRIDE * signed(load_u32(scratch.order + 4 * j))


@compiled
def decode_head(at: int, end: int, nbytes: int, geometry: Geometry, tables: int, scratch: Scratch) -> int:
    """Read the classes of the groups and the modes of the tiles from the bits at ``at``, which have ``nbytes``."""
    position, mask = 0, unsigned((1 << MAX_BITS) - 1)
    table, target, step = tables + PAIRS * TABLE_NBYTES, scratch.labels, 2
    for part in range(2):
        n_codes = geometry.n_groups >> 1
        if part:
            table, target, n_codes, step = tables + MODES * TABLE_NBYTES, scratch.modes, geometry.n_tiles, 1
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
    return OK if position + 7 >> 3 == nbytes else NO_SUCH_BITS


@inlined
def _put_next(table: int, word: int, bit: int, out: int, width: int) -> tuple[int, int, int]:
    """Write what the next code word in ``word`` stands for; returns the word, the bit and the address behind it."""
    entry = load_u64(table + signed((word & unsigned((1 << MAX_BITS) - 1)) << unsigned(3)))
    store_u32(out, entry)
    length = entry >> unsigned(32)
    return word >> length, bit + signed(length), out + width


@inlined
def _decode_class(at: int, last: int, table: int, width: int, k: int, marks: Ints, scratch: Scratch) -> bool:
    """Read the groups of a class; False if a stream goes beyond the bit ``last``."""
    j, behind = marks[k], marks[k + 1]
    bit0, bit1, bit2, bit3 = marks[POSITIONS], marks[POSITIONS + 1], marks[POSITIONS + 2], marks[POSITIONS + 3]
    while j + 4 <= behind:
        out0, out1, out2, out3 = (
            _group(scratch, j),
            _group(scratch, j + 1),
            _group(scratch, j + 2),
            _group(scratch, j + 3),
        )
        if max(max(bit0, bit1), max(bit2, bit3)) > last:
            return False
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
        j += 4
    marks[POSITIONS], marks[POSITIONS + 1], marks[POSITIONS + 2], marks[POSITIONS + 3] = bit0, bit1, bit2, bit3
    for stream in range(POSITIONS, POSITIONS + behind - j):
        out, bit = _group(scratch, j), marks[stream]
        if bit > last:
            return False
        for _ in range(SIDE // width):
            word = load_u64(at + (bit >> 3)) >> unsigned(bit & 7)
            for _ in range(4):
                word, bit, out = _put_next(table, word, bit, out, width)
        marks[stream] = bit
        j += 1
    return True
