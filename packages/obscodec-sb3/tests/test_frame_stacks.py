"""However an environment stacks its frames, each is stored once, and comes back as it was."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation
from obscodec_sb3 import CompressedReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecTransposeImage

N_ENVS, N_STEPS = 2, 300


class Wall(gymnasium.Env):
    """A coloured square on a wall; episodes of some 30 steps."""

    action_space = spaces.Discrete(3)

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.observation_space = spaces.Box(0, 255, (40, 40, channels) if channels else (40, 40), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.wall = self.np_random.integers(0, 50, (40, 40, self.channels or 1), np.uint8)
        self.at = 0
        return self.picture(), {}

    def step(self, action):
        self.at += 1
        return self.picture(), float(action), self.at == 30, False, {}

    def picture(self):
        picture = self.wall.copy()
        picture[self.at : self.at + 8, 3 * self.at % 32 : 3 * self.at % 32 + 8] = 200 + np.arange(self.channels or 1)
        return picture if self.channels else picture[..., 0]


def walls(channels: int, wrapper: object = lambda env: env) -> VecEnv:
    return make_vec_env(lambda: wrapper(Wall(channels)), N_ENVS, seed=0)


STACKS = {
    "grey, last": (lambda: VecFrameStack(walls(1), 4), (40, 40, 4), (4, -1)),
    "grey, first": (lambda: VecFrameStack(VecTransposeImage(walls(1)), 4), (4, 40, 40), (4, 0)),
    "colours, last": (lambda: VecFrameStack(walls(3), 4), (40, 40, 12), (4, -1)),
    "colours, first": (lambda: VecFrameStack(VecTransposeImage(walls(3)), 4), (12, 40, 40), (4, 0)),
    "colours, turned": (lambda: VecTransposeImage(VecFrameStack(walls(3), 3)), (9, 40, 40), (3, 0)),
    "Gymnasium, grey": (lambda: walls(0, lambda env: FrameStackObservation(env, 4)), (4, 40, 40), (4, 0)),
    "Gymnasium, colours": (lambda: walls(3, lambda env: FrameStackObservation(env, 5)), (5, 40, 40, 3), (5, 0)),
}


@pytest.mark.parametrize("codec", ["auto", "zstd:1"])
@pytest.mark.parametrize(("make", "shape", "stack"), STACKS.values(), ids=STACKS.keys())
def test_stacks_are_found_and_come_back_as_they_were(make, shape, stack, codec):
    env = make()
    assert env.observation_space.shape == shape
    arguments = 400, env.observation_space, env.action_space, "cpu", N_ENVS
    stock, compressed = ReplayBuffer(*arguments), CompressedReplayBuffer(*arguments, codec=codec)
    rng = np.random.default_rng(0)
    obs = env.reset()
    for step in range(N_STEPS):
        action = rng.integers(3, size=N_ENVS)
        new, reward, done, infos = env.step(action)
        next_obs = np.stack([infos[i].get("terminal_observation", new[i]) for i in range(N_ENVS)])
        for buffer in (stock, compressed):
            buffer.add(obs, next_obs, action, reward, done, infos)
        obs = new
        if step in (100, 299):
            batches = []
            for buffer in (stock, compressed):
                np.random.seed(step)
                batches.append(buffer.sample(64))
            for expected, found in zip(*batches, strict=True):
                assert found is expected is None or torch.equal(found, expected)
    np.testing.assert_array_equal(compressed.observations, stock.observations)
    np.testing.assert_array_equal(compressed.next_observations, stock.next_observations)
    depth, axis = stack
    assert f"FrameStack(depth={depth}, axis={axis})" in repr(compressed.observation_store)
    frames = compressed.observation_store.stats()
    assert frames.live_bytes < frames.raw_bytes / (2 * depth) / (5 if codec == "auto" else 1)
