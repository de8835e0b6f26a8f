"""An actor thread adds while learners sample: each row of a batch is one transition."""

import os
import warnings

import numpy as np
import pytest
from gymnasium import spaces
from obscodec_sb3 import CompressedDictReplayBuffer, CompressedNStepReplayBuffer, CompressedReplayBuffer
from together import meanwhile

SECONDS = float(os.environ.get("THREADS_SECONDS", "1.5"))
IMAGE, ONE = spaces.Box(0, 255, (16, 16, 1), np.uint8), spaces.Box(-1e9, 1e9, (1,), np.float64)


def frames(steps):
    steps = np.asarray(steps)
    made = np.zeros((len(steps), 16, 16, 1), np.uint8)
    made[np.arange(len(steps)), steps % 16] = (1 + steps % 250)[:, None, None].astype(np.uint8)
    made[:, 0, :8, 0] = steps[:, None].astype(np.int64).view(np.uint8)
    return made


def as_space(buffer, images):
    return {"a": images} if isinstance(buffer.observation_space, spaces.Dict) else images


def add(buffer, step):
    after = as_space(buffer, frames([step + 1] * buffer.n_envs))
    n = buffer.n_envs
    obs = as_space(buffer, frames([step] * n))
    done = np.full(n, step % 50 == 49)
    buffer.add(obs, after, np.full((n, 1), float(step)), np.full(n, float(step % 9)), done, [{}] * n)


def assert_whole(buffer):
    batch = buffer.sample(16)
    obs, after = batch.observations, batch.next_observations
    if isinstance(obs, dict):
        obs, after = obs["a"], after["a"]
    steps = batch.actions[:, 0].numpy().astype(int)
    np.testing.assert_array_equal(obs.numpy(), frames(steps))
    n_steps = 1
    if isinstance(buffer, CompressedNStepReplayBuffer):  # fewer at the end of an episode, and of all that was added
        n_steps = np.rint(np.log(batch.discounts[:, 0].numpy()) / np.log(0.5)).astype(int)
        assert ((n_steps >= 1) & (n_steps <= np.minimum(3, 50 - steps % 50))).all()
    np.testing.assert_array_equal(after.numpy(), frames(steps + n_steps))
    if not isinstance(buffer, CompressedNStepReplayBuffer):
        np.testing.assert_array_equal(batch.rewards[:, 0].numpy(), steps % 9)
        np.testing.assert_array_equal(batch.dones[:, 0].numpy(), steps % 50 == 49)


KINDS = {
    "images": (CompressedReplayBuffer, {}),
    "two environments": (CompressedReplayBuffer, {"n_envs": 2}),
    "images ahead": (CompressedReplayBuffer, {"prefetch": True}),
    "dictionaries": (CompressedDictReplayBuffer, {}),
    "n steps": (CompressedNStepReplayBuffer, {"n_steps": 3, "gamma": 0.5}),
    "few bytes": (CompressedReplayBuffer, {"max_bytes": 5 << 20, "buffer_size": 100_000}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_has_whole_transitions_while_another_thread_adds(kind):
    cls, options = KINDS[kind]
    space = spaces.Dict(a=IMAGE) if cls is CompressedDictReplayBuffer else IMAGE
    arguments = {"buffer_size": 120, "codec": "delta-rle", "device": "cpu", **options}
    buffer, counts = cls(observation_space=space, action_space=ONE, **arguments), {"add": 0, "sample": 0}

    def actor():
        add(buffer, counts["add"])
        counts["add"] += 1

    def learner():
        assert_whole(buffer)
        counts["sample"] += 1

    for _ in range(150):
        actor()
    with warnings.catch_warnings(action="ignore"), meanwhile(actor, learner, learner, seconds=SECONDS):
        pass
    assert counts["add"] > 160
    assert counts["sample"] > 5
