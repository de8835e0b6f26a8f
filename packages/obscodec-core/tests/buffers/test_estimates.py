"""An estimate before the training says what the buffer will take."""

import itertools
import re

import ale_py
import gymnasium as gym
import numpy as np
import obscodec
import pytest
from gymnasium import spaces
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from obscodec import DTypeError, Field, RingBuffer, ShapeError
from obscodec.buffers import random_steps

gym.register_envs(ale_py)


def breakout() -> gym.Env:
    return FrameStackObservation(AtariPreprocessing(gym.make("ALE/Breakout-v5", frameskip=1)), 4)


class Dictionaries(gym.Env):
    """Episodes of 10 steps, whose observations are an image that changes and a vector."""

    observation_space = spaces.Dict(image=spaces.Box(0, 255, (64, 64), np.uint8), vector=spaces.Box(-1, 1, (3,)))
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return self.observation(), {}

    def step(self, action):
        self.n += 1
        return self.observation(), 1.0, False, self.n == 10, {}

    def observation(self):
        image = self.np_random.integers(0, 256, (64, 64), np.uint8) * (np.arange(64) < 10)
        return {"image": image.astype(np.uint8), "vector": np.zeros(3, np.float32)}


@pytest.mark.slow
@pytest.mark.parametrize("n_envs", [None, 4])
def test_it_is_what_a_real_buffer_takes(n_envs):
    n = 8000
    env = breakout() if n_envs is None else gym.vector.SyncVectorEnv([breakout] * n_envs)
    estimated = obscodec.estimate(env, n, n_sample=1000)
    fields, buffer = {}, None
    for step in random_steps(env, n // (n_envs or 1), seed=3):
        if buffer is None:
            for name, array in step.items():
                shares = "observation" if name == "next observation" else None
                fields[name] = Field(array.shape[1:], array.dtype, shares=shares)
            buffer = RingBuffer(n // (n_envs or 1), fields, n_envs or 1)
        buffer.append(**step)
    assert estimated.nbytes == pytest.approx(buffer.stats().total_bytes, rel=0.15)
    assert estimated.raw_bytes == pytest.approx(buffer.stats().raw_bytes, rel=0.01)
    assert estimated.ratio > 100
    assert not estimated.is_upper_bound
    assert estimated.fields["observation"].codec == "delta-rle|lz4:6"
    assert estimated.fields["next observation"].nbytes == 0


def test_the_parts_of_dictionaries_are_fields():
    estimated = obscodec.estimate(Dictionaries(), 100_000, codec="zstd:1", n_sample=500)
    assert [*estimated.fields] == [
        "observation.image",
        "observation.vector",
        "next observation.image",
        "next observation.vector",
        "action",
        "reward",
        "terminated",
        "truncated",
    ]
    image, vector = estimated.fields["observation.image"], estimated.fields["observation.vector"]
    assert (image.codec, image.raw_bytes) == ("zstd:1", 100_000 * 4096)
    assert 100_000 * 640 < image.nbytes < 100_000 * 900  # ten columns of noise, and little besides
    assert vector.layout.shape == (3,)
    assert re.fullmatch(
        r"100,000 transitions take about [\d.]+ MB, 8\d\d MB without compression, judging by 500 transitions of "
        r"random actions",
        str(estimated),
    )


def test_a_space_gives_an_upper_bound():
    bound = obscodec.estimate(breakout().observation_space, 10_000, n_sample=300)
    assert bound.is_upper_bound
    assert 28_224 * 10_000 <= bound.nbytes <= 28_224 * 10_000 * 1.03
    assert str(bound).startswith("10,000 transitions take at most 28")
    assert str(bound).endswith("judging by 300 random observations of a space")


def test_steps_of_a_seed_are_the_same_and_consecutive():
    one, other = (list(random_steps(Dictionaries(), 30, seed=1)) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        assert all((a[name] == b[name]).all() for name in a)
    for i, (before, after) in enumerate(itertools.pairwise(one), 1):
        is_same = (before["next observation.image"] == after["observation.image"]).all()
        assert is_same != (i % 10 == 0)


def test_it_refuses_what_is_no_environment():
    text = "env must be an environment or a space of Gymnasium, got"
    with pytest.raises(DTypeError, match=rf"^{text} 'CartPole-v1': pass gym.make\('CartPole-v1'\)$"):
        obscodec.estimate("CartPole-v1")
    with pytest.raises(DTypeError, match=rf"^{text} dict: pass gymnasium.spaces.Dict\(x\) if it has spaces$"):
        obscodec.estimate({})
    with pytest.raises(ShapeError, match=r"^n_sample must be 256 or more, got 10$"):
        obscodec.estimate(Dictionaries(), n_sample=10)
