"""Decode in several threads, and compare each byte: ``decode_in_threads.py WHAT,SPEC,NBYTES,N_THREADS,ROUNDS ...``.

A program, so that ``test_kernel_memory.py`` can have it run under a hostile allocator, and see it die.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np
from obscodec import FrameStore, Layout, codec
from obscodec.segments import Segments

BATCH_NBYTES = 1 << 20  # of the frames of a round; two frames or more

Round = Callable[[np.random.Generator], bool]  # decodes, and says whether all bytes are right


def moving(nbytes: int) -> np.ndarray:
    """``u8[n, nbytes]``: noise, and some bytes of it change from frame to frame."""
    rng = np.random.default_rng(0)
    n = min(max(2, BATCH_NBYTES // nbytes), 64)
    frames = np.empty((n, nbytes), np.uint8)
    frames[0] = rng.integers(256, size=nbytes, dtype=np.uint8)
    for before, frame in pairwise(frames):
        frame[:] = before
        frame[rng.integers(nbytes, size=1 + nbytes // 64)] += 1
    return frames


def item(nbytes: int, spec: str) -> Round:
    """A codec alone."""
    frames = moving(nbytes)
    tested = codec(spec, Layout.of(frames))
    encoded = tested.encode(frames)
    return lambda rng: np.array_equal(tested.decode(encoded), frames)


def batch(nbytes: int, spec: str) -> Round:
    """A codec alone, with several items at once."""
    frames = moving(nbytes)
    tested = codec(spec, Layout((2, nbytes), np.uint8))
    rows = tested.layout.rows(frames[: len(frames) // 2 * 2].reshape(-1, 2, nbytes))
    streams = tested.encode_batch(rows, np.empty(len(rows) * tested.bound(), np.uint8))
    assert isinstance(streams, Segments)

    def decode(rng: np.random.Generator) -> bool:
        decoded = np.empty_like(rows)
        tested.decode_batch(streams, decoded)
        return np.array_equal(decoded, rows)

    return decode


def stored(nbytes: int, spec: str, depth: int | None = None) -> Round:
    """A store of frames, or of stacks of them."""
    tensors = moving(nbytes)
    if depth is not None:
        tensors = tensors[np.maximum(0, np.arange(len(tensors))[:, None] + np.arange(1 - depth, 1))]
    store = FrameStore(Layout.of(tensors[0]), frame_stack=depth, codec=spec, block_frames=8, threads=2)
    ids = store.append(tensors)

    def read(rng: np.random.Generator) -> bool:
        which = rng.integers(len(ids), size=max(1, len(ids) // (depth or 1)))
        return np.array_equal(store.read(ids[which]), tensors[which])

    return read


MAKERS = {"item": item, "batch": batch, "frames": stored, "stacks": partial(stored, depth=4)}


def run(what: str, spec: str, nbytes: int, n_threads: int, rounds: int) -> None:
    """One case; prints how many rounds gave the right bytes."""
    once, right = MAKERS[what](nbytes, spec), [0] * n_threads

    def work(k: int) -> None:
        rng = np.random.default_rng(k)
        right[k] = sum(once(rng) for _ in range(rounds))

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, range(n_threads)))
    print(f"{what},{spec},{nbytes},{n_threads},{rounds}: {sum(right)} right", flush=True)  # noqa: T201


if __name__ == "__main__":
    for case in sys.argv[1:]:
        what, spec, *numbers = case.split(",")
        run(what, spec, *map(int, numbers))
