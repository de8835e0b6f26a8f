"""Records an episode with Minari, which imports JAX: ``record_minari.py FRAMES.npy``, into ``MINARI_DATASETS_PATH``."""

import sys
import warnings

import gymnasium as gym
import minari
import numpy as np

FRAMES = np.load(sys.argv[1])


class Moving(gym.Env):
    """Shows the frames, one after the other."""

    observation_space, action_space = gym.spaces.Box(0, 255, FRAMES.shape[1:], np.uint8), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return FRAMES[0], {}

    def step(self, action):
        self.at += 1
        return FRAMES[self.at], 0.0, False, self.at == len(FRAMES) - 1, {}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # Minari wants to know more about the data set
    env = minari.DataCollector(Moving())
    env.reset()
    while not env.step(0)[3]:
        pass
    env.create_dataset("moving/test-v0", algorithm_name="none", author="none", author_email="a@b.c", code_permalink="-")
    env.close()
