"""Environments that take turns are told apart by what they show."""

from __future__ import annotations

import numpy as np
import pytest
from obscodec import FrameStore, Layout, TensorArray
from obscodec_torchrl.arrays import NewTensors, interleaved_envs

FRAME = (20, 20)


def steps(n_envs: int, n_steps: int, episode: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """Noise that nobody has twice; ``[n_steps, n_envs]`` as one axis, with an episode that ends every so often."""
    drawn = np.random.default_rng(n_envs).integers(0, 256, (n_steps + 1, n_envs, *FRAME), np.uint8)
    following = drawn[1:].copy()
    following[episode - 1 :: episode] ^= 1  # then another observation follows
    return drawn[:-1].reshape(-1, *FRAME), following.reshape(-1, *FRAME)


@pytest.mark.parametrize("n_envs", [1, 2, 3, 8, 64])
def test_the_number_of_environments_is_found(n_envs: int) -> None:
    assert interleaved_envs(*steps(n_envs, 40)) == n_envs


def test_what_shows_no_turns_is_one_stream() -> None:
    observations, following = steps(1, 100)
    assert interleaved_envs(observations[:0], following[:0]) == 1
    assert interleaved_envs(observations[:1], following[:1]) == 1
    shuffled = np.random.default_rng(0).permutation(100)
    assert interleaved_envs(observations[shuffled], following[shuffled]) == 1
    assert interleaved_envs(*steps(65, 3)) == 1
    still = np.zeros((50, *FRAME), np.uint8)
    assert interleaved_envs(still, still) == 1


def test_environments_that_take_turns_store_each_frame_once() -> None:
    store = FrameStore(Layout(FRAME, np.uint8))
    arrays = [TensorArray.zeros((600,), store) for _ in range(2)]
    observations, following = steps(12, 50, episode=10**9)
    for part in (slice(begin, begin + 120) for begin in range(0, 600, 120)):
        NewTensors(arrays, [observations[part], following[part]], part).put()
    assert store.stats().n_tensors == 12 * 51


@pytest.mark.parametrize("batch", [(50, 12), (50, 4, 3), (200, 3)], ids=["environments", "and agents", "in turns"])
def test_each_environment_and_each_of_its_agents_is_a_stream(batch: tuple[int, ...]) -> None:
    store = FrameStore(Layout(FRAME, np.uint8))
    arrays = [TensorArray.zeros(batch, store) for _ in range(2)]
    observations, following = (frames.reshape(*batch, *FRAME) for frames in steps(12, 50, episode=10**9))
    for part in (slice(begin, begin + batch[0] // 5) for begin in range(0, batch[0], batch[0] // 5)):
        NewTensors(arrays, [observations[part], following[part]], part).put()
    assert store.stats().n_tensors == 12 * 51
