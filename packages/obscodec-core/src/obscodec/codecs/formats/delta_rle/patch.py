"""Patches: what turns one frame into the next, as runs of bytes to keep (skip) and bytes to replace (literals).

A patch has two parts, so that a GPU can find every run with prefix sums: its runs, ``varint count`` and then
``varint skip, varint length`` for each, and its literals, the bytes of all runs one behind the other.
"""

from typing import Final

import numpy as np

from obscodec.kernels import (
    compiled,
    copy,
    inlined,
    load_u8,
    load_u16,
    load_u64,
    move,
    signed,
    store_u8,
    store_u64,
    trailing_zeros,
    unsigned,
)
from obscodec.segments import Bytes

OK: Final = 0
SHORT: Final = 1
LONG_VARINT: Final = 2
OUTSIDE_FRAME: Final = 3
NO_LITERALS: Final = 4

EXPLANATIONS: Final = {
    SHORT: "its runs end inside a varint",
    LONG_VARINT: "a varint is longer than it needs to be, or than 9 bytes",
    OUTSIDE_FRAME: "a run reaches beyond the end of the frame",
    NO_LITERALS: "it has fewer literals than its runs need",
}

# Equal bytes between two runs that are cheaper to store as literals than as the end of one run and the start of
# another, which take two bytes and a turn of the decoder's loop. Measured: benchmarks/sizes.py.
_MERGE_GAP: Final = 3
MAX_VARINT_NBYTES: Final = 9
_PADDING: Final = 8  # bytes behind a frame that apply_patch may write


@inlined
def write_varint(at: int, value: int) -> int:
    """Write a varint to the address ``at``; returns the address behind it."""
    while value > 0x7F:
        store_u8(at, unsigned(value & 0x7F | 0x80))
        value >>= 7
        at += 1
    store_u8(at, unsigned(value))
    return at + 1


@compiled
def read_varint(at: int, end: int) -> tuple[int, int]:
    """The varint at the address ``at``, and the address behind it, or minus a status code if it is bad."""
    value = 0
    for k in range(9):
        if at + k >= end:
            return 0, -SHORT
        byte = signed(load_u8(at + k))
        value |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            if byte == 0 and k > 0:
                return 0, -LONG_VARINT
            return value, at + k + 1
    return 0, -LONG_VARINT


@compiled
def first_difference(a: int, b: int, at: int, nbytes: int) -> int:
    """The first position from ``at`` on where two frames differ, ``nbytes`` if there is none."""
    while at + 64 <= nbytes:  # eight words without a branch become vector instructions
        different = unsigned(0)
        for k in range(0, 64, 8):
            different |= load_u64(a + at + k) ^ load_u64(b + at + k)
        if different != 0:
            break
        at += 64
    while at + 8 <= nbytes:
        x = load_u64(a + at) ^ load_u64(b + at)
        if x != 0:
            return at + (trailing_zeros(x) >> 3)
        at += 8
    while at < nbytes and load_u8(a + at) == load_u8(b + at):
        at += 1
    return at


@compiled
def run_end(a: int, b: int, at: int, nbytes: int) -> int:
    """The end of the run of differences that begins at ``at``; short gaps of equal bytes belong to it."""
    end = at + 1
    at += 1
    while at < nbytes and at - end <= _MERGE_GAP:
        if load_u8(a + at) != load_u8(b + at):
            end = at + 1
        at += 1
    return end


@compiled
def encode_patch(old: int, new: int, nbytes: int, runs: int, literals: int) -> tuple[int, int]:
    """Write the patch that turns the frame at ``old`` into the one at ``new``.

    Args:
        old: address of ``nbytes`` bytes.
        new: likewise.
        nbytes: of a frame.
        runs: address of room for ``runs_bound(nbytes)`` bytes.
        literals: address of room for ``nbytes`` bytes.

    Returns:
        Bytes of the runs, their count included, and bytes of the literals.
    """
    begin, count, position, literals_begin = runs + MAX_VARINT_NBYTES, 0, 0, literals
    runs_begin, runs = runs, begin
    start = first_difference(old, new, 0, nbytes)
    while start < nbytes:
        end = run_end(old, new, start, nbytes)
        runs = write_varint(write_varint(runs, start - position), end - start)
        copy(literals, new + start, end - start)
        literals += end - start
        position = end
        count += 1
        start = first_difference(old, new, end, nbytes)
    behind_count = write_varint(runs_begin, count)  # known only now
    move(behind_count, begin, runs - begin)
    return behind_count - runs_begin + runs - begin, literals - literals_begin


def runs_bound(nbytes: int) -> int:
    """The most bytes that the runs of one patch take while it is made.

    A run and the gap before it are 5 bytes of the frame or more. Lengths that take more than one byte are rarer still.
    """
    return 2 * (nbytes // (_MERGE_GAP + 2) + 1) + 4 * MAX_VARINT_NBYTES


@compiled
def _read_run(runs: int, runs_end: int) -> tuple[int, int, int]:
    """How many bytes a run skips and replaces, and the address behind it, or minus a status code if it is bad."""
    skip, runs = read_varint(runs, runs_end)
    if runs < 0:
        return 0, 0, runs
    length, runs = read_varint(runs, runs_end)
    return skip, length, runs


def frame_room(nbytes: int) -> Bytes:
    """``u8[:]``, memory for one frame of ``nbytes`` bytes, in which :func:`apply_patch` works."""
    return np.empty(nbytes + _PADDING, np.uint8)


@compiled
def apply_patch(frame: int, nbytes: int, runs: int, runs_end: int, literals: int, literals_end: int) -> tuple[int, int]:
    """Turn the frame at ``frame`` into the next one.

    ``frame`` is the address of ``nbytes`` bytes and 8 more that may be written, see :func:`frame_room`. Nothing outside
    of these is written, and nothing outside of the two sections is read, whatever they hold.

    Returns:
        The addresses behind what was read of the runs and of the literals; minus a status code in place of the first
        if the patch is bad.
    """
    count, runs = read_varint(runs, runs_end)
    if runs < 0:
        return runs, literals
    position = 0
    for _ in range(count):
        if runs + 2 <= runs_end and signed(load_u16(runs)) & 0x8080 == 0:  # nearly always
            pair = signed(load_u16(runs))
            skip, length = pair & 0x7F, pair >> 8
            runs += 2
        else:
            skip, length, runs = _read_run(runs, runs_end)
            if runs < 0:
                return runs, literals
        if skip > nbytes - position or length > nbytes - position - skip:
            return -OUTSIDE_FRAME, literals
        if length > literals_end - literals:
            return -NO_LITERALS, literals
        position += skip
        if length <= 8 and literals_end - literals >= 8:
            keep = ~unsigned(0) << unsigned(8 * length) if length < 8 else unsigned(0)
            target = frame + position
            store_u64(target, (load_u64(target) & keep) | (load_u64(literals) & ~keep))
        else:
            copy(frame + position, literals, length)
        position += length
        literals += length
    return runs, literals


@compiled
def check_patch(nbytes: int, runs: int, runs_end: int, literals: int, literals_end: int) -> tuple[int, int]:
    """:func:`apply_patch` without a frame: it changes nothing, and returns the same."""
    count, runs = read_varint(runs, runs_end)
    if runs < 0:
        return runs, literals
    position = 0
    for _ in range(count):
        skip, length, runs = _read_run(runs, runs_end)
        if runs < 0:
            return runs, literals
        if skip > nbytes - position or length > nbytes - position - skip:
            return -OUTSIDE_FRAME, literals
        if length > literals_end - literals:
            return -NO_LITERALS, literals
        position += skip + length
        literals += length
    return runs, literals
