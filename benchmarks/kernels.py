"""The times of the parts of a sample and of an append: ``uv run benchmarks/kernels.py``.

It measures processor time of one thread, and takes the least of some rounds, so that other processes do not count.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from atari_frames import frames
from numba import njit
from obscodec import Layout
from obscodec.codecs.formats.delta_rle import DeltaRle
from obscodec.frames.kernels.append import _fingerprint
from obscodec.kernels.memory import address, copy
from obscodec.layout.layout import Rows
from obscodec.segments import Bytes
from obscodec.streams.blocks import NO_VERSIONS, read_blocks
from obscodec.streams.patch import are_equal, encode_patch, frame_scratch, runs_bound

GAMES = ("MsPacman", "Pong", "Breakout")
BATCH_FRAMES = 2048  # obs and next_obs of 256 transitions
BATCH_BLOCKS = 330  # where their frames are
BLOCK_FRAMES = 16
MEAN_PLACE = 9


@njit(nogil=True)
def _copy_all(source: Bytes, rows: Rows) -> None:
    for i in range(len(rows)):
        copy(address(rows) + i * rows.shape[1], address(source), rows.shape[1])


@njit(nogil=True)
def _compare_all(rows: Rows, distance: int) -> int:
    total = 0
    for i in range(len(rows) - distance):
        other = address(rows) + (i + distance) * rows.shape[1]
        total += are_equal(address(rows) + i * rows.shape[1], other, rows.shape[1])
    return total


@njit(nogil=True)
def _fingerprint_all(rows: Rows) -> int:
    total = 0
    for i in range(len(rows)):
        total += _fingerprint(address(rows) + i * rows.shape[1], rows.shape[1])
    return total


@njit(nogil=True)
def _encode_all(rows: Rows, runs: Bytes, literals: Bytes) -> int:
    total = 0
    for i in range(len(rows) - 1):
        new = address(rows) + (i + 1) * rows.shape[1]
        old = new - rows.shape[1]
        runs_nbytes, n_literals = encode_patch(old, new, rows.shape[1], address(runs), address(literals))
        total += runs_nbytes + n_literals
    return total


def seconds(work: Callable[[], object], rounds: int = 30) -> float:
    """The least processor time of some calls; the first one, which compiles, does not count."""
    work()
    times = []
    for _ in range(rounds):
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return min(times)


def walk_s(played: Rows) -> float:
    """Seconds to decode each block of a batch up to its middle, and read one frame of it."""
    codec = DeltaRle(Layout((BLOCK_FRAMES, 84, 84), np.uint8))
    items = codec.layout.tensors(played[: BATCH_BLOCKS * BLOCK_FRAMES].reshape(BATCH_BLOCKS, -1))
    codec = codec.fit(items)
    rows = codec.layout.rows(items)
    streams = codec.encode_batch(rows, np.empty(len(rows) * codec.bound(), np.uint8))
    references = np.frombuffer(bytes(codec.frame_nbytes) + codec.dictionary, np.uint8).reshape(-1, codec.frame_nbytes)
    entries = np.arange(BATCH_BLOCKS)
    out = np.empty((BATCH_BLOCKS, codec.frame_nbytes), np.uint8)
    places = np.full(BATCH_BLOCKS, MEAN_PLACE)
    addresses = streams.addresses().astype(np.int64)
    starts = np.arange(BATCH_BLOCKS + 1)
    room = frame_scratch(codec.frame_nbytes)
    where = addresses, streams.lengths, references
    return seconds(lambda: read_blocks(starts, places, entries, out, *where, -1, NO_VERSIONS, room))


def main() -> None:
    """Measure and print."""
    batch = np.empty((BATCH_FRAMES, 84 * 84), np.uint8)
    copy_s = seconds(lambda: _copy_all(np.zeros(84 * 84, np.uint8), batch))
    print(f"write a batch of {batch.nbytes / 1e6:.1f} MB: {copy_s * 1e6:.0f} us")
    runs, literals = np.empty(runs_bound(84 * 84), np.uint8), np.empty(84 * 84, np.uint8)
    print(f"{'':10}{'walk ' + str(BATCH_BLOCKS) + ' blocks':>18}{'compare':>10}{'fingerprint':>13}{'make a patch':>14}")
    for game in GAMES:
        played = frames(game, BATCH_BLOCKS * BLOCK_FRAMES, seed=0).reshape(-1, 84 * 84).copy()
        some = played[:8]  # as many as are compared with, they stay in the cache
        figures = (
            walk_s(played) * 1e6,
            seconds(partial(_compare_all, some, 0)) / len(some) * 1e9,
            seconds(partial(_fingerprint_all, some)) / len(some) * 1e9,
            seconds(partial(_encode_all, played, runs, literals)) / (len(played) - 1) * 1e9,
        )
        print(f"{game:10}{figures[0]:>15.0f} us{figures[1]:>7.0f} ns{figures[2]:>10.0f} ns{figures[3]:>11.0f} ns")


if __name__ == "__main__":
    main()
