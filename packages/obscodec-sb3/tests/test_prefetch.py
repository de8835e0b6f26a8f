"""Batches that are decoded ahead hold what was stored when they were drawn, whatever is added in the meantime."""

import os
import pickle
import re

import numpy as np
import pytest
import torch
from atari_frames import frames
from forked import exit_status, forked
from gymnasium import spaces
from obscodec import AutoStore, Layout, TensorArray
from obscodec.arrays import DeferredRead
from obscodec_sb3 import CompressedReplayBuffer, CompressedRolloutBuffer, compressed
from obscodec_sb3.prefetcher import Prefetcher
from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer
from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

SPACES = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6)


def fill(buffer, played, steps):
    for i in steps:
        obs, next_obs = played[i : i + 4][None], played[i + 1 : i + 5][None]
        buffer.add(obs, next_obs, np.array([i % 6]), np.array([float(i)]), np.array([False]), [{}])


def filled(n, **options):
    """The frames of a game, and a buffer with so many steps of it."""
    played = frames("Pong", 400, seed=3)
    buffer = CompressedReplayBuffer(300, *SPACES, device="cpu", prefetch=True, **options)
    fill(buffer, played, range(n))
    return played, buffer


def assert_right(samples, played):
    for obs, next_obs, reward in zip(samples.observations, samples.next_observations, samples.rewards, strict=True):
        i = int(reward)
        np.testing.assert_array_equal(obs, played[i : i + 4])
        np.testing.assert_array_equal(next_obs, played[i + 1 : i + 5])


@pytest.mark.slow
def test_batches_are_right_while_steps_are_overwritten():
    played = frames("Pong", 700, seed=3)
    buffer = CompressedReplayBuffer(150, *SPACES, device="cpu", prefetch=True)
    held = []
    for first in range(0, 690, 3):
        fill(buffer, played, range(first, first + 3))
        held = [*held[-3:], buffer.sample(16)]
        for samples in held:
            assert_right(samples, played)


def test_batches_of_several_sizes_are_drawn_ahead():
    played, buffer = filled(390)
    for size in (1, 32, 7, 32, 1, 256):
        samples = buffer.sample(size)
        assert len(samples.rewards) == size
        assert_right(samples, played)


def test_a_buffer_that_works_ahead_can_be_pickled():
    played, buffer = filled(390)
    buffer.sample(32)
    assert_right(pickle.loads(pickle.dumps(buffer)).sample(32), played)


def test_a_reset_forgets_what_was_drawn():
    played, buffer = filled(300)
    buffer.sample(8)
    buffer.reset()
    fill(buffer, played, [377])
    assert buffer.sample(8).rewards.tolist() == [[377.0]] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_samples():
    played, buffer = filled(390, threads=1)
    buffer.sample(8)

    def sample():
        for _ in range(3):
            assert_right(buffer.sample(8), played)

    assert exit_status(forked(sample, seconds=20)) == 0


DICT = spaces.Dict({"image": SPACES[0], "speed": spaces.Box(-1, 1, (3,), np.float32)})
N_STEPS, N_ENVS = 24, 2


def fill_rollout(buffer, played, first=0):
    """One rollout of stacks of frames from ``first`` on."""
    for i in range(first, first + N_STEPS):
        images, numbers = np.stack([played[i : i + 4], played[i + 50 : i + 54]]), np.full((N_ENVS, 1), i % 6)
        obs = images if buffer.observation_space is not DICT else {"image": images, "speed": np.full((N_ENVS, 3), 0.5)}
        buffer.add(obs, numbers, numbers[:, 0], numbers[:, 0] > 4, torch.zeros(N_ENVS), torch.ones(N_ENVS))
    buffer.compute_returns_and_advantage(torch.zeros(N_ENVS), np.zeros(N_ENVS))


def observations_of(buffer, n=16):
    np.random.seed(1)
    for minibatch in buffer.get(n):
        obs = minibatch.observations
        yield {name: part.clone() for name, part in obs.items()} if isinstance(obs, dict) else {"": obs.clone()}


@pytest.mark.parametrize("stock", [RolloutBuffer, DictRolloutBuffer, MaskableRolloutBuffer])
def test_minibatches_are_those_of_sb3(stock):
    played, space = frames("Pong", 200, seed=3), DICT if stock is DictRolloutBuffer else SPACES[0]
    options = {"codec": "zstd:1", "decide_after": 8, "prefetch": True}
    buffers = [
        kind(N_STEPS, space, SPACES[1], device="cpu", n_envs=N_ENVS, **more)
        for kind, more in ((stock, {}), (compressed(stock), options))
    ]
    for first in (0, 30):
        for buffer in buffers:
            buffer.reset()
            fill_rollout(buffer, played, first)
        next(observations_of(buffers[1]))  # a loop that breaks, as with ``target_kl``
        both = [list(observations_of(buffer)) for buffer in buffers]
        assert len(both[0]) == len(both[1]) == 3
        for expected, found in zip(*both, strict=True):
            assert expected.keys() == found.keys()
            assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_the_next_minibatch_is_decoded_while_the_learner_has_one(monkeypatch):
    buffer = CompressedRolloutBuffer(N_STEPS, *SPACES, device="cpu", n_envs=N_ENVS, decide_after=8, prefetch=True)
    fill_rollout(buffer, frames("Pong", 200, seed=3))
    started, start = [], DeferredRead.start
    monkeypatch.setattr(DeferredRead, "start", lambda read: (started.append(read), start(read)))
    assert [len(started) for _ in buffer.get(16)] == [1, 2, 2]


def test_minibatches_that_another_class_draws_are_not_prefetched():
    text = "prefetch needs SB3's own get, CompressedRecurrentRolloutBuffer has another: leave prefetch out"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        compressed(RecurrentRolloutBuffer)(N_STEPS, *SPACES, (N_STEPS, 1, N_ENVS, 8), "cpu", prefetch=True)


def test_a_loaded_rollout_is_prefetched(tmp_path):
    buffer = CompressedRolloutBuffer(N_STEPS, *SPACES, device="cpu", n_envs=N_ENVS, prefetch=True)
    fill_rollout(buffer, frames("Pong", 200, seed=3))
    buffer.save(tmp_path)
    loaded = CompressedRolloutBuffer.load(tmp_path, device="cpu")
    assert loaded._prefetch
    for expected, found in zip(observations_of(buffer), observations_of(loaded), strict=True):
        assert torch.equal(expected[""], found[""])


def filled_array():
    array = TensorArray.zeros((8, 3), AutoStore(Layout((84, 84), np.uint8), codec="zstd:1"))
    array[...] = np.random.default_rng(0).integers(256, size=array.shape, dtype=np.uint8)
    return array


def test_read_ahead_gives_each_reading_once_and_in_order():
    array = filled_array()
    drawn = []

    def draw(kind):
        step = len(drawn) % 8
        drawn.append((kind, step))
        return DeferredRead(lambda: array[step])

    ahead = Prefetcher()
    np.testing.assert_array_equal(ahead.next("a", lambda: draw("a")).result(), array[0])
    np.testing.assert_array_equal(ahead.next("b", lambda: draw("b")).result(), array[2])
    np.testing.assert_array_equal(ahead.next("a", lambda: draw("a")).result(), array[1])
    np.testing.assert_array_equal(ahead.next("b", lambda: draw("b")).result(), array[3])
    assert [kind for kind, _ in drawn] == ["a", "a", "b", "b", "a", "b"]
    ahead.clear()
    np.testing.assert_array_equal(ahead.next("a", lambda: draw("a")).result(), array[6])


@pytest.mark.slow
@pytest.mark.needs("fork")
def test_a_process_is_forked_between_two_readings():
    array = filled_array()
    expected = array[:]
    ahead = Prefetcher()
    for _ in range(60):
        ahead.next(0, lambda: DeferredRead(lambda: [array[:], array[:4], array[3:]]))
        assert exit_status(forked(lambda: np.testing.assert_array_equal(array[:], expected), seconds=20)) == 0
