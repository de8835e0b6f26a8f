"""A buffer of stacks, as games and wrappers make them, equals the stock one, and keeps each frame once."""

import gymnasium
import numpy as np
import pytest
from atari_frames import frames
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation
from obscodec.stats import StoreStats
from obscodec.stores.auto import shown
from obscodec_sb3 import CompressedReplayBuffer
from same_samples import assert_same_samples
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecTransposeImage

DEPTH = 4
SPACES = spaces.Box(0, 255, (DEPTH, 84, 84), np.uint8), spaces.Discrete(6)


PICTURES = {
    "MsPacman": lambda env: frames("MsPacman", 400, seed=env),
    "Breakout": lambda env: frames("Breakout", 400, seed=env),
    "a game that often stands still": lambda env: frames("Pong", 400, seed=env)[:140].repeat([1, 2, 3, 6] * 35, axis=0),
    "pictures that never repeat": lambda env: np.random.default_rng(env).integers(
        256, size=(400, 84, 84), dtype=np.uint8
    ),
}


def episodes(pictures, rng):
    """Observation, next observation, terminated, truncated: episodes of 1 to 60 steps, zeros before their beginning.

    The next observation of the last step is the terminal one, which no episode goes on from.
    """
    at = 0
    while True:
        stack = np.zeros((DEPTH, 84, 84), np.uint8)
        stack[-1] = pictures[at % len(pictures)]
        n_steps = int(rng.choice([1, 2, 3, rng.integers(4, 60)]))
        truncated = rng.random() < 0.5
        for i in range(n_steps):
            at += 1
            following = np.concatenate([stack[1:], pictures[at % len(pictures)][None]])
            last = i == n_steps - 1
            yield stack, following, last and not truncated, last and truncated
            stack = following
        at += 1


@pytest.mark.parametrize("codec", ["auto", "delta-rle|zstd:3", "zstd:1"])
@pytest.mark.parametrize("n_envs", [1, 4])
@pytest.mark.parametrize("kind", PICTURES)
def test_a_played_buffer_equals_the_stock_one(monkeypatch, kind, n_envs, codec):
    monkeypatch.setattr(shown, "_MAX", 64)  # tensors that are kept as they are before a codec is at work
    capacity, n_steps = 150 * n_envs, 390  # around the ring two and a half times
    stock = ReplayBuffer(capacity, *SPACES, device="cpu", n_envs=n_envs)
    ours = CompressedReplayBuffer(capacity, *SPACES, device="cpu", n_envs=n_envs, codec=codec, threads=2)
    rng = np.random.default_rng(0)
    games = [episodes(PICTURES[kind](env), np.random.default_rng(env)) for env in range(n_envs)]
    for step in range(n_steps):
        obs, next_obs, terminated, truncated = map(np.stack, zip(*map(next, games), strict=True))
        action, reward = rng.integers(6, size=n_envs), rng.random(n_envs)
        infos = [{"TimeLimit.truncated": bool(cut)} for cut in truncated]
        for buffer in (stock, ours):
            buffer.add(obs, next_obs, action, reward, terminated | truncated, infos)
        if step % 40 == 39:
            assert_same_samples(stock, ours, 50, step)
    np.testing.assert_array_equal(ours.observations[:], stock.observations)
    np.testing.assert_array_equal(ours.next_observations[:], stock.next_observations)
    ours.stats()  # which gives replaced observations back
    stats = ours.observation_store.stats()
    assert isinstance(stats, StoreStats)
    assert stats.n_tensors <= 2 * capacity
    if kind != "pictures that never repeat":
        assert stats.live_bytes < stats.raw_bytes / 20


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
            assert_same_samples(stock, compressed, 64, step)
    np.testing.assert_array_equal(compressed.observations, stock.observations)
    np.testing.assert_array_equal(compressed.next_observations, stock.next_observations)
    depth, axis = stack
    assert f"FrameStack(depth={depth}, axis={axis})" in repr(compressed.observation_store)
    stats = compressed.observation_store.stats()
    assert stats.live_bytes < stats.raw_bytes / (2 * depth) / (5 if codec == "auto" else 1)
