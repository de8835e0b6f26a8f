"""Adds to a buffer of SB3 until the memory is full, in a process that has refused none before."""

import sys

import numpy as np
from gymnasium import spaces
from limited_memory import limited_memory
from obscodec_sb3 import CompressedDictReplayBuffer, CompressedReplayBuffer

SHAPE = 84, 84


def frame(t):
    """``u8[1, 84, 84]``."""
    return np.random.default_rng(t).integers(0, 256, (1, *SHAPE), np.uint8)


def main(kind):
    """Add, and look at all that was not refused."""
    space = spaces.Box(0, 255, SHAPE, np.uint8)
    if kind == "dict":
        space = spaces.Dict({"image": space, "t": spaces.Box(0, 1e9, (1,), np.float64)})
    of = CompressedDictReplayBuffer if kind == "dict" else CompressedReplayBuffer
    buffer = of(20_000, space, spaces.Discrete(3), codec="delta-rle")

    def add(t):
        obs, after = frame(t), frame(t + 1)
        if kind == "dict":
            obs, after = ({"image": x, "t": np.array([[u]], np.float64)} for x, u in ((obs, t), (after, t + 1)))
        buffer.add(obs, after, np.array([t % 3]), np.array([float(t)]), np.array([False]), [{}])

    for t in range(600):
        add(t)
    n_refused, t = 0, 600
    with limited_memory(0):
        while n_refused < 20 and t < 6000:
            try:
                add(t)
            except MemoryError:
                n_refused += 1
            t += 1
    assert n_refused == 20
    for more in range(t, t + 50):
        add(more)
    n = buffer.size()
    for i in range(0, n, 7):
        t = int(buffer.rewards[i, 0])
        obs, after = buffer.observations, buffer.next_observations
        obs, after = (obs["image"], after["image"]) if kind == "dict" else (obs, after)
        np.testing.assert_array_equal(obs[i], frame(t))
        np.testing.assert_array_equal(after[i], frame(t + 1))


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.write("all is there\n")
