"""Records an episode with Minari, which imports JAX: ``record_minari.py FRAMES.npy``, into ``MINARI_DATASETS_PATH``.

``read.npy`` beside the frames has them as Minari reads them again.
"""

import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np


def recorded(frames):
    """An environment that shows the frames, one after the other, in what records it."""
    import minari  # here: it imports JAX, and doctests of this file are looked for

    class Moving(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 255, frames.shape[1:], np.uint8), gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.at = 0
            return frames[0], {}

        def step(self, action):
            self.at += 1
            return frames[self.at], 0.0, False, self.at == len(frames) - 1, {}

    return minari.DataCollector(Moving())


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # Minari wants to know more about the data set
    env = recorded(np.load(sys.argv[1]))
    env.reset()
    while not env.step(0)[3]:
        pass
    made = env.create_dataset(
        "moving/test-v0", algorithm_name="none", author="none", author_email="a@b.c", code_permalink="-"
    )
    np.save(Path(sys.argv[1]).with_name("read.npy"), made[0].observations)
    env.close()
