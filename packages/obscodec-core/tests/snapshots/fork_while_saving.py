"""Forks at random moments while a buffer is saved and blocks are compressed: ``fork_while_saving.py FORKS [SEED]``.

The child samples, adds and saves to a folder of its own, and the parent goes on; both have exactly the steps that they
added.
"""

import faulthandler
import random
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
from obscodec import Field, RingBuffer, load, save

sys.path.insert(0, str(Path(__file__).parents[1]))
from forked import exit_status, forked

SHAPE, N_ENVS, CAPACITY = (40, 40), 4, 60


def step(k):
    """``u8[N_ENVS, 40, 40]``: step ``k``."""
    frames = np.zeros((N_ENVS, *SHAPE), np.uint8)
    for env in range(N_ENVS):
        frames[env, k % 40] = 1 + (k + env) % 255
        frames[env, :, (k * 3 + env) % 40] = 1 + k % 200
    return frames


def check(buffer, n_steps):
    """The buffer has the last of so many steps."""
    assert len(buffer) == min(n_steps, CAPACITY)
    found = buffer[:]
    for at, k in enumerate(range(n_steps - len(buffer), n_steps)):
        np.testing.assert_array_equal(found["frame"][at], step(k))
    sampled = buffer.sample(20, n_steps)
    for frame, k in zip(sampled["frame"], sampled["k"], strict=True):
        assert (frame == step(int(k))).all(axis=(1, 2)).any()


def add(buffer, begin, end):
    for k in range(begin, end):
        buffer.append(frame=step(k), k=np.full(N_ENVS, k))


def in_child(buffer, n_steps, path):
    """What the child does."""
    faulthandler.dump_traceback_later(20, exit=True)  # a deadlock ends it
    check(buffer, n_steps)
    add(buffer, n_steps, n_steps + 90)
    check(buffer, n_steps + 90)
    save(buffer, path)
    check(load(path), n_steps + 90)


def fork_while_saving(n_forks, seed, folder, codec):
    """So many forks; a thread saves meanwhile, if nothing is added."""
    rng, buffer = (
        random.Random(seed),
        RingBuffer(
            CAPACITY, {"frame": Field(SHAPE, np.uint8, codec, block_frames=4), "k": Field((), np.int64)}, N_ENVS
        ),
    )
    n_steps, failed = 0, []
    for turn in range(n_forks):
        more = rng.randrange(1, 80)
        add(buffer, n_steps, n_steps + more)  # the thread in the background compresses blocks
        n_steps += more
        saves = rng.random() < 0.7

        def save_mine(n_steps=n_steps):
            try:
                save(buffer, folder / "mine")
            except BaseException as error:
                failed.append((n_steps, error))

        saving = threading.Thread(target=save_mine)
        if saves:
            saving.start()
            time.sleep(0.02 * rng.random() ** 2)
        child = forked(partial(in_child, buffer, n_steps, folder / f"child-{turn}"))
        if saves:
            saving.join()
            assert not failed, failed
            save(buffer, folder / "mine")  # though the child is still there
        check(buffer, n_steps)
        add(buffer, n_steps, n_steps + 20)
        n_steps += 20
        assert exit_status(child) == 0, f"fork {turn}"
        check(buffer, n_steps)
        if saves:
            loaded = load(folder / "mine")
            check(loaded, n_steps - 20)
    return n_forks


if __name__ == "__main__":
    n_forks, seed = int(sys.argv[1]), int([*sys.argv, "0"][2])
    for codec in ("delta-rle|lz4", "zstd:1", "auto"):
        with tempfile.TemporaryDirectory() as folder:
            fork_while_saving(n_forks, seed, Path(folder), codec)
    sys.stdout.write(f"{3 * n_forks} forks: both processes had all of their steps\n")
