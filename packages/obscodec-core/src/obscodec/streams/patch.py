"""Patches, which turn one frame into the next: runs of bytes to keep (skip) and bytes to replace (literals).

A patch has two parts, so that a GPU can find every run with prefix sums: its runs, ``varint count`` and then
``varint skip, varint length`` for each, and its literals, the bytes of all runs one behind the other. Frames, runs and
literals are given by their addresses; frames have ``nbytes`` bytes.
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
    store_u64,
    trailing_zeros,
    unsigned,
)
from obscodec.segments import Bytes
from obscodec.statuses import NO_LITERALS, OUTSIDE_FRAME
from obscodec.streams.varints import read_varint, write_varint
from obscodec.varint import MAX_VARINT_NBYTES

# Two runs with so few equal bytes between them are shorter as one: a run takes two bytes, and a turn of the decoder's
# loop. Measured: benchmarks/sizes.py.
_MERGE_GAP: Final = 3
_PIECE_NBYTES: Final = 512  # compared without a branch, twice as fast as in pieces of 64
_PADDING: Final = 8  # bytes behind a frame that apply_patch may write


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
def are_equal(a: int, b: int, nbytes: int) -> bool:
    """Whether two frames are equal in every byte."""
    at = 0
    while at + _PIECE_NBYTES <= nbytes:
        different = unsigned(0)
        for k in range(0, _PIECE_NBYTES, 8):
            different |= load_u64(a + at + k) ^ load_u64(b + at + k)
        if different != 0:
            return False
        at += _PIECE_NBYTES
    return bool(first_difference(a, b, at, nbytes) == nbytes)


@inlined
def run_end(a: int, b: int, at: int, nbytes: int) -> int:
    """The end of the run of differences that begins at ``at``, including short gaps of equal bytes."""
    end = at + 1
    at += 1
    while at < nbytes and at - end <= _MERGE_GAP:
        if load_u8(a + at) != load_u8(b + at):
            end = at + 1
        at += 1
    return end


@compiled
def encode_patch(old: int, new: int, nbytes: int, runs: int, literals: int) -> tuple[int, int]:
    """Write the patch that turns the frame ``old`` into ``new``.

    There must be room for ``runs_bound(nbytes)`` bytes at ``runs``, and for ``nbytes`` at ``literals``.

    Returns:
        Bytes of the runs, their count included, and bytes of the literals.
    """
    begin, count, position, literals_begin = runs + MAX_VARINT_NBYTES, 0, 0, literals
    runs_begin, runs = runs, begin
    start = first_difference(old, new, signed(0), nbytes)
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
    """The most bytes that :func:`encode_patch` needs for runs.

    A run and the gap before it are 5 bytes of the frame or more. Lengths that take more than one byte are rarer still.
    """
    return 2 * (nbytes // (_MERGE_GAP + 2) + 1) + 4 * MAX_VARINT_NBYTES


def frame_scratch(nbytes: int) -> Bytes:
    """``u8[:]``, memory for one frame, in which :func:`apply_patch` works."""
    return np.empty(nbytes + _PADDING, np.uint8)


@inlined
def _next_run(runs: int, runs_end: int, n_left: int, n_literals: int) -> tuple[int, int, int]:
    """How many bytes a run skips and replaces, and the address behind it; or minus a status if it is bad.

    It must fit into the ``n_left`` bytes that are left of the frame, and ``n_literals`` literals.
    """
    if runs + 2 <= runs_end and signed(load_u16(runs)) & 0x8080 == 0:  # nearly always
        pair = signed(load_u16(runs))
        skip, length = pair & 0x7F, pair >> 8
        runs += 2
    else:
        skip, length = 0, 0
        skip, runs = read_varint(runs, runs_end)
        if runs >= 0:
            length, runs = read_varint(runs, runs_end)
    if runs >= 0 and (skip > n_left or length > n_left - skip):
        runs = -OUTSIDE_FRAME
    elif runs >= 0 and length > n_literals:
        runs = -NO_LITERALS
    return skip, length, runs


@compiled
def apply_patch(frame: int, nbytes: int, runs: int, runs_end: int, literals: int, literals_end: int) -> tuple[int, int]:
    """Turn a frame in a :func:`frame_scratch` into the next one.

    Whatever the two sections hold, nothing is written outside of the scratch, and nothing read outside of the sections.

    Returns:
        The addresses behind what was read of the runs and of the literals; minus a status in place of the first if the
        patch is bad.
    """
    count, runs = read_varint(runs, runs_end)
    if runs < 0:
        return runs, literals
    position = 0
    for _ in range(count):
        skip, length, runs = _next_run(runs, runs_end, nbytes - position, literals_end - literals)
        if runs < 0:
            return runs, literals
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
