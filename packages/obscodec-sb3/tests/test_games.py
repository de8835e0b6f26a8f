"""A buffer of games as they come from ``VecFrameStack`` equals the stock one, through codecs and around the ring."""

import numpy as np
import pytest
import torch
from atari_frames import frames
from gymnasium import spaces
from obscodec.stats import StoreStats
from obscodec.stores.auto import plan
from obscodec_sb3 import CompressedReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer

DEPTH = 4
SPACES = spaces.Box(0, 255, (DEPTH, 84, 84), np.uint8), spaces.Discrete(6)


def never_repeating(env):
    return np.random.default_rng(env).integers(256, size=(400, 84, 84), dtype=np.uint8)


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
    monkeypatch.setattr(plan, "_MAX_FIRST", 64)  # tensors that are kept as they are before a codec is at work
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
            batches = []
            for buffer in (stock, ours):
                np.random.seed(step)
                batches.append(buffer.sample(50))
            for expected, got in zip(*batches, strict=True):
                assert expected is got is None or (torch.equal(expected, got) and expected.dtype == got.dtype)
    np.testing.assert_array_equal(ours.observations[:], stock.observations)
    np.testing.assert_array_equal(ours.next_observations[:], stock.next_observations)
    ours.stats()  # which gives replaced observations back
    stats = ours.observation_store.stats()
    assert isinstance(stats, StoreStats)
    assert stats.n_tensors <= 2 * capacity
    if kind != "pictures that never repeat":
        assert stats.live_bytes < stats.raw_bytes / 20
