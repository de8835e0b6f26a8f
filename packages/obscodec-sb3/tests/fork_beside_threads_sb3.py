"""Forks while threads sample a buffer of SB3, or add to it: ``... FORKS [sample] [add]``."""

import sys

import numpy as np
import torch as th
from forks import fork_beside
from gymnasium import spaces
from obscodec_sb3 import CompressedReplayBuffer

SIZE = 60


def frame(k):
    """``u8[1, 32, 32]``."""
    made = np.full((1, 32, 32), k % 199, np.uint8)
    made[0, k % 32] = 1 + k % 251
    return made


def add(buffer, k):
    buffer.add(frame(k), frame(k + 1), np.array([k % 3]), np.array([float(k)]), np.array([k % 7 == 0]), [{}])


def samples(buffer):
    """Whether sampled transitions are whole."""
    batch = buffer.sample(16)
    for obs, action, after, reward in zip(
        batch.observations, batch.actions, batch.next_observations, batch.rewards, strict=True
    ):
        k = int(reward.item())
        if not (np.array_equal(obs, frame(k)[0]) and np.array_equal(after, frame(k + 1)[0]) and action.item() == k % 3):
            return False
    return True


def goes_on(buffer):
    """Whether the buffer takes the next transitions and has whole ones."""
    if not samples(buffer):
        return False
    for k in range(1000, 1000 + 2 * SIZE):
        add(buffer, k)
    return samples(buffer)


def main(kind, n_forks):
    """Fork so many times."""
    th.set_num_threads(1)  # torch's own threads do not exist in a child
    space = spaces.Box(0, 255, (32, 32), np.uint8)
    buffer = CompressedReplayBuffer(SIZE, space, spaces.Discrete(3), codec="delta-rle")
    for k in range(300):
        add(buffer, k)
    numbers = iter(range(300, 1 << 20))
    work = [lambda: buffer.sample(16)] * 2 if kind == "sample" else [lambda: add(buffer, next(numbers))]
    fork_beside(work, lambda: goes_on(buffer), n_forks)
    assert goes_on(buffer)


if __name__ == "__main__":
    for kind in sys.argv[2:]:  # in one process, which takes seconds to load torch
        main(kind, int(sys.argv[1]))
    sys.stdout.write(f"all children of {', '.join(sys.argv[2:])} ended\n")
