"""Batches that are decoded ahead hold what was stored when they were drawn, whatever is added in the meantime."""

import os
import pickle
import signal

import numpy as np
import pytest
import torch
from atari_frames import frames
from gymnasium import spaces
from obscodec_sb3 import CompressedReplayBuffer

SPACES = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6)


def fill(buffer, played, steps):
    for i in steps:
        obs, next_obs = played[i : i + 4][None], played[i + 1 : i + 5][None]
        buffer.add(obs, next_obs, np.array([i % 6]), np.array([float(i)]), np.array([False]), [{}])


def assert_right(samples, played):
    for obs, next_obs, reward in zip(samples.observations, samples.next_observations, samples.rewards, strict=True):
        i = int(reward)
        np.testing.assert_array_equal(obs, played[i : i + 4])
        np.testing.assert_array_equal(next_obs, played[i + 1 : i + 5])


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
    played = frames("Pong", 400, seed=3)
    buffer = CompressedReplayBuffer(300, *SPACES, device="cpu", prefetch=True)
    fill(buffer, played, range(390))
    for size in (1, 32, 7, 32, 1, 256):
        samples = buffer.sample(size)
        assert len(samples.rewards) == size
        assert_right(samples, played)


def test_the_first_batch_is_that_of_a_buffer_without_prefetch():
    played = frames("Pong", 400, seed=3)
    batches = []
    for prefetch in (False, True):
        buffer = CompressedReplayBuffer(300, *SPACES, device="cpu", prefetch=prefetch)
        fill(buffer, played, range(390))
        np.random.seed(0)
        batches.append(buffer.sample(32))
    for x, y in zip(*batches, strict=True):
        assert x is y is None or torch.equal(x, y)


def test_a_buffer_that_works_ahead_can_be_pickled():
    played = frames("Pong", 400, seed=3)
    buffer = CompressedReplayBuffer(300, *SPACES, device="cpu", prefetch=True)
    fill(buffer, played, range(390))
    buffer.sample(32)
    assert_right(pickle.loads(pickle.dumps(buffer)).sample(32), played)


def test_a_reset_forgets_what_was_drawn():
    played = frames("Pong", 400, seed=3)
    buffer = CompressedReplayBuffer(300, *SPACES, device="cpu", prefetch=True)
    fill(buffer, played, range(300))
    buffer.sample(8)
    buffer.reset()
    fill(buffer, played, [377])
    assert buffer.sample(8).rewards.tolist() == [[377.0]] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_samples():
    played = frames("Pong", 400, seed=3)
    buffer = CompressedReplayBuffer(300, *SPACES, device="cpu", prefetch=True, threads=1)
    fill(buffer, played, range(390))
    buffer.sample(8)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a deadlock ends the child
        try:
            for _ in range(3):
                assert_right(buffer.sample(8), played)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_loaded_buffer_has_a_write_buffer():
    played = frames("Pong", 400, seed=3)
    buffer = CompressedReplayBuffer(300, *SPACES, device="cpu")
    fill(buffer, played, range(300))
    loaded = pickle.loads(pickle.dumps(buffer, protocol=pickle.HIGHEST_PROTOCOL))
    fill(loaded, played, range(300, 301))
    assert loaded.observations.write_buffer is loaded.next_observations.write_buffer is not None
    assert_right(loaded.sample(32), played)
