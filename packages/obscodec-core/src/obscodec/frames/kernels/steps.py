"""A step of an array of stacks: a stack of each sequence, or of some, whose ids take the place of others.

A call from Python takes longer for each array that it passes. So a kernel that is called for every step gets one array
with the addresses of all others, ``state``, which ``StepWriter`` keeps right.
"""

from typing import Final

import numpy as np

from obscodec.columns import N_WORDS as N_COLUMN_WORDS
from obscodec.columns import find_items, swap_row
from obscodec.frames.kernels.append import OpenTables, append_frame
from obscodec.frames.kernels.counts import Tables
from obscodec.frames.kernels.queue import is_due
from obscodec.frames.kernels.stacks import LISTED, StackTables, name_stacks
from obscodec.kernels import (
    address,
    bools_at,
    bytes_at,
    compiled,
    inlined,
    int32s_at,
    int64s_at,
    load_i32,
    load_u64,
    signed,
    store_u32,
    store_u64,
    unsigned,
)
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints

# What :func:`exchange_step` returns when all is done.
DONE: Final = -1
DONE_AND_DUE: Final = -2  # blocks in the queue should be compressed
NO_ROOM: Final = -3  # nothing is done: there is no room for replaced ids
NEW_NUMBERS: Final = -4  # nothing is done: a column must learn numbers of its row

PICKED_STEPS: Final = -1  # in place of a step: one for each of some sequences

# The words of ``state``.
N: Final = 0  # how many sequences there are
NBYTES: Final = 1  # of a stack
CHANNELS: Final = 2  # of each of two arrays: into how many channels to part its stacks, 0 for none
IDS: Final = 4  # of each of two arrays: the address of its ids
ID_NBYTES: Final = 6  # of each of two arrays: the bytes of an id, 4 or 8
STACK: Final = 8  # address of room for a stack
SCRATCH: Final = 9  # address of room for frames with a reference each, for ids, and for 0..n-1
REPLACED: Final = 10  # address of the rows of replaced ids
WHERE: Final = 11  # address of a table with the place of each of these rows: address, bytes of an id, step
MOST_REPLACED: Final = 12  # how many rows these have
N_REPLACED: Final = 13  # how many of them are used
N_BEGUN: Final = 14  # how many were used when the step began
SEQUENCES: Final = 15  # these are addresses, and the axes of some tables
REFERENCES: Final = 18
N_REFERENCES: Final = 21
QUEUE: Final = 22
BLOCK_FRAMES: Final = 25
FRAMES: Final = 26
BLOCKS: Final = 28
DEAD: Final = 30
TALLIES: Final = 31
LISTED_ROWS: Final = 32
FREE_ROWS: Final = 35
CHANGED_ROWS: Final = 36
STACK_TALLIES: Final = 37
N_CHANGED: Final = 38  # of how many columns the last step changed a row
FIRST: Final = 39  # the first sequence
STRIDE: Final = 40  # 1, or 0 if there is one sequence
PICKED: Final = 41  # address of a table of steps and sequences, counted from the first: those that a call is for
COLUMNS: Final = 42  # of each column: the addresses of its words, of the new row, and of room for its items
MAX_COLUMNS: Final = 32
N_WORDS: Final = COLUMNS + 3 * MAX_COLUMNS


@compiled
def exchange_step(
    first_rows: Rows, second_rows: Rows, n_arrays: int, n_columns: int, step: int, first: int, state: Ints
) -> int:
    """Store a row of one array or two, put the ids into the arrays, and keep the ids that were there.

    The rows, ``u8[n, nbytes]`` and contiguous, have the number ``step``. Two arrays are a whole step, so that
    :func:`undo_step` undoes this call alone; ``n_columns`` columns get a row, too. With PICKED_STEPS, the stacks are
    of the ``n`` sequences that are picked, of a step for each; nothing undoes that. ``first`` is the frame to begin
    with, of all frames; those before it are in the scratch. ``state`` is changed, as is what it has addresses of.

    Returns DONE, DONE_AND_DUE, NO_ROOM or NEW_NUMBERS; or the frame that needs what ``append_frame`` says; or the
    number of all frames if there must be room to list as many stacks more.
    """
    if state[N_REPLACED] + n_arrays > state[MOST_REPLACED]:
        return NO_ROOM
    if not first:
        for c in range(COLUMNS, COLUMNS + 3 * n_columns, 3):
            if not find_items(int64s_at(state[c], N_COLUMN_WORDS), state[c + 1], state[c + 2]):
                return NEW_NUMBERS
    if n_arrays == 2:
        state[N_BEGUN] = state[N_REPLACED]
    n_blocks, n_rows, depth = state[BLOCKS + 1], state[LISTED_ROWS + 1], state[LISTED_ROWS + 2]
    open_blocks = (
        int64s_at(state[SEQUENCES], (state[SEQUENCES + 1], state[SEQUENCES + 2])),
        bytes_at(state[REFERENCES], (state[REFERENCES + 1], state[REFERENCES + 2])),
        int64s_at(state[N_REFERENCES], 1),
        int64s_at(state[QUEUE], (state[QUEUE + 1], state[QUEUE + 2])),
        state[BLOCK_FRAMES],
        depth,
    )
    tables = (
        int32s_at(state[FRAMES], (2, state[FRAMES + 1])),
        int32s_at(state[BLOCKS], (3, n_blocks)),
        int32s_at(state[DEAD], 2 * n_blocks),
        int64s_at(state[TALLIES], 3),
    )
    stacks = (
        int32s_at(state[LISTED_ROWS], (n_rows, depth)),
        int32s_at(state[FREE_ROWS], n_rows),
        bools_at(state[CHANGED_ROWS], n_rows),
        int64s_at(state[STACK_TALLIES], 3),
    )
    done: int = _exchange(first_rows, second_rows, n_arrays, n_columns, step, first, state, open_blocks, tables, stacks)
    return done


@inlined
def _exchange(
    first_rows: Rows,
    second_rows: Rows,
    n_arrays: int,
    n_columns: int,
    step: int,
    first: int,
    state: Ints,
    open_blocks: OpenTables,
    tables: Tables,
    stacks: StackTables,
) -> int:
    n, depth, n_all = len(first_rows), stacks[LISTED].shape[1], state[N]
    in_row, nbytes = n * depth, state[NBYTES] // depth
    n_frames, n_stacks = n_arrays * in_row, n_arrays * n
    held = int64s_at(state[SCRATCH], n_frames)
    ids = int64s_at(state[SCRATCH] + 16 * n_all * depth, n_stacks)
    which = int64s_at(state[SCRATCH] + 16 * n_all * (depth + 1), n_stacks)
    picked = int64s_at(state[PICKED], (2, n_all))
    for i in range(first, n_frames):
        at = 0 if i < in_row else 1
        row, k = i % in_row // depth, i % depth
        stack = address(second_rows if at else first_rows) + row * state[NBYTES]
        if state[CHANNELS + at]:
            if i == first or k == 0:
                pixels, channels = bytes_at(stack, state[NBYTES]), bytes_at(state[STACK], state[NBYTES])
                _part_channels(pixels, state[CHANNELS + at], channels)
            stack = state[STACK]
        sequence = state[FIRST] + (row if step != PICKED_STEPS else picked[1, row]) * state[STRIDE]
        frame_id = append_frame(stack + k * nbytes, k == 0, held[i - 1] if k else 0, sequence, open_blocks, tables)
        if frame_id < 0:
            return i
        held[i] = frame_id
    for i in range(n_stacks):
        which[i] = i
    if not name_stacks(held, which, tables, stacks, ids):
        return int(n_frames)
    for at in range(n_arrays):
        id_nbytes, where = state[ID_NBYTES + at], int64s_at(state[WHERE] + 24 * state[N_REPLACED], 3)
        old = int64s_at(state[REPLACED] + 8 * n_all * state[N_REPLACED], n)
        for i in range(n):
            old[i] = ids[at * n + i]
        where[2] = step
        if step != PICKED_STEPS:
            where[0], where[1] = state[IDS + at] + step * n * id_nbytes, id_nbytes
            _swap(where, old)
        else:
            for i in range(n):
                place = picked[0, i] * n_all + picked[1, i]
                _swap_one(state[IDS + at] + place * id_nbytes, id_nbytes, old, i)
        state[N_REPLACED] += 1
    _swap_columns(step, n_columns, state)
    return int(DONE_AND_DUE if is_due(open_blocks[3]) else DONE)


@compiled
def undo_step(step: int, state: Ints) -> None:
    """Put the ids back that rows of this number had when the step began."""
    for r in range(state[N_BEGUN], state[N_REPLACED]):
        where = int64s_at(state[WHERE] + 24 * r, 3)
        if where[2] == step:
            _swap(where, int64s_at(state[REPLACED] + 8 * state[N] * r, state[N]))
            where[2] = -1
            _swap_columns(step, state[N_CHANGED], state)
            state[N_CHANGED] = 0


@compiled
def _swap_columns(step: int, n_columns: int, state: Ints) -> None:
    """Exchange rows of columns with their new rows."""
    for c in range(COLUMNS, COLUMNS + 3 * n_columns, 3):
        swap_row(int64s_at(state[c], N_COLUMN_WORDS), step, state[c + 2])
    state[N_CHANGED] = n_columns


@compiled
def _swap(where: Ints, ids: Ints) -> None:
    """Exchange ids with those that are at an address; ``where``: the address, and the bytes of an id there."""
    at, nbytes = where[0], where[1]
    for i in range(len(ids)):
        _swap_one(at + i * nbytes, nbytes, ids, i)


@inlined
def _swap_one(at: int, nbytes: int, ids: Ints, i: int) -> None:
    """Exchange an id with the one that is at an address, of so many bytes."""
    new = ids[i]
    ids[i] = load_i32(at) if nbytes == 4 else signed(load_u64(at))
    if nbytes == 4:
        store_u32(at, unsigned(new))
    else:
        store_u64(at, unsigned(new))


@inlined
def _part_channels(pixels: Bytes, n_channels: int, channels: Bytes) -> None:
    """Put the bytes of each channel side by side."""
    n_pixels = len(pixels) // n_channels
    if n_channels == 4:  # LLVM makes vector instructions of it
        words = int32s_at(address(pixels), n_pixels)
        for k in range(4):
            channel = channels[k * n_pixels : (k + 1) * n_pixels]
            for p in range(n_pixels):
                channel[p] = np.uint8(words[p] >> np.int32(8 * k))
        return
    for k in range(n_channels):
        for p in range(n_pixels):
            channels[k * n_pixels + p] = pixels[p * n_channels + k]
