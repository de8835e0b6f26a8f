"""An estimate before the training says what the buffer will take."""

import itertools
import pickle
import re
from dataclasses import replace

import ale_py
import gymnasium as gym
import numpy as np
import obscodec
import pytest
from gymnasium import spaces
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from obscodec import DTypeError, Field, RingBuffer, ShapeError
from obscodec.buffers import fit, play
from obscodec.stats import in_units

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
@pytest.mark.parametrize("n_envs", [pytest.param(None, marks=pytest.mark.long), 4])
def test_it_is_what_a_real_buffer_takes(n_envs):
    n = 8000
    env = breakout() if n_envs is None else gym.vector.SyncVectorEnv([breakout] * n_envs)
    estimated = obscodec.estimate(env, n, n_sample=1000)
    fields, buffer = {}, None
    for step in play(env, n // (n_envs or 1), seed=3):
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
        r"random actions; agents that play well may see more\. This machine has [\d.]+ [MGT]B free: the full buffer "
        r"fits",
        str(estimated),
    )


def test_a_space_gives_an_upper_bound():
    bound = obscodec.estimate(breakout().observation_space, 10_000, n_sample=300)
    assert bound.is_upper_bound
    assert 28_224 * 10_000 <= bound.nbytes <= 28_224 * 10_000 * 1.03
    assert str(bound).startswith("10,000 transitions take at most 28")
    assert "judging by 300 random observations of a space. This machine has " in str(bound)
    assert "agents" not in str(bound)
    assert bound.optimized_bytes == bound.raw_bytes - 28_224 * 10_000
    assert "(282 MB with SB3's optimize_memory_usage)" in str(bound)


def test_steps_of_a_seed_are_the_same_and_consecutive():
    one, other = (list(play(Dictionaries(), 30, seed=1)) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        assert all((a[name] == b[name]).all() for name in a)
    for i, (before, after) in enumerate(itertools.pairwise(one), 1):
        is_same = (before["next observation.image"] == after["observation.image"]).all()
        assert is_same != (i % 10 == 0)


class Later(Dictionaries):
    """Half is nearly black, then noise: early steps take less than late ones."""

    observation_space = spaces.Box(0, 255, (64, 64), np.uint8)
    n_seen = 0

    def observation(self):
        self.n_seen += 1
        if self.n_seen < 1024:
            return np.eye(64, dtype=np.uint8) * np.uint8(self.n_seen % 100)
        return self.np_random.integers(0, 256, (64, 64), np.uint8)


def test_the_parts_of_a_sample_give_a_range():
    estimated = obscodec.estimate(Later(), 100_000, codec="delta-rle", n_sample=2048)
    assert 3_900 * 100_000 < estimated.most_bytes < 4_700 * 100_000  # as if all were noise
    assert estimated.least_bytes < 0.2 * estimated.most_bytes
    assert estimated.least_bytes < 0.6 * estimated.most_bytes < estimated.nbytes * 1.5 < 1.5 * estimated.most_bytes
    between = f"{in_units(estimated.least_bytes)} to {in_units(estimated.most_bytes)} by parts of the sample"
    assert f"take about {in_units(estimated.nbytes)}, {between}, " in str(estimated)
    few = obscodec.estimate(Later(), 100_000, codec="delta-rle", n_sample=512)
    assert few.least_bytes == few.most_bytes == few.nbytes  # no part before a store has decided


def test_whether_it_fits():
    assert fit(1e9, 2e9, None) == ""
    assert fit(1e9, 2e9, 2 * 10**9) == "This machine has 2 GB free: the full buffer fits"
    remedy = "make it smaller, or pass max_bytes, with spill=folder"
    assert fit(1e9, 3e9, 2 * 10**9) == f"This machine has 2 GB free: the full buffer may not fit, {remedy}"
    assert fit(2.5e9, 3e9, 2 * 10**9) == f"This machine has 2 GB free: the full buffer does not fit, {remedy}"
    assert str(replace(obscodec.estimate(Dictionaries(), n_sample=256), free_bytes=None)).endswith("may see more")


@pytest.mark.parametrize("n_envs", [None, 3])
def test_a_policy_plays(n_envs):
    seen = []

    def policy(observations):
        seen.append({key: of.shape for key, of in observations.items()})
        return np.full(n_envs or 1, 2)

    env = Dictionaries() if n_envs is None else gym.vector.SyncVectorEnv([Dictionaries] * n_envs)
    steps = list(play(env, 20, policy=policy))
    assert seen == [{"image": (n_envs or 1, 64, 64), "vector": (n_envs or 1, 3)}] * 20
    assert all((step["action"] == 2).all() for step in steps)
    estimated = obscodec.estimate(env, 1000, n_sample=256, policy=policy)
    assert estimated.is_of_policy
    assert f"judging by {estimated.n_sampled} transitions of the policy. This machine" in str(estimated)
    assert pickle.loads(pickle.dumps(estimated)) == estimated


def test_it_refuses_what_is_no_policy():
    wanted = "policy must be a function from a batch of observations to a batch of actions, or None, got"
    with pytest.raises(DTypeError, match=rf"^{wanted} str$"):
        obscodec.estimate(Dictionaries(), policy="random")
    model = type("PPO", (), {"predict": lambda self, observations: ([0], None)})()
    with pytest.raises(
        DTypeError, match=rf"^{wanted} PPO: pass lambda observations: model.predict\(observations\)\[0\]$"
    ):
        obscodec.estimate(Dictionaries(), policy=model)
    with pytest.raises(DTypeError, match=rf"^{wanted} a space to play in$"):
        obscodec.estimate(Dictionaries.observation_space, policy=lambda _: [0])
    batch = re.escape("policy must return an array of actions, [1, ...], for a batch of 1 observations, got")
    with pytest.raises(ShapeError, match=rf"^{batch} shape \(\)$"):
        obscodec.estimate(Dictionaries(), policy=lambda _: 0)
    with pytest.raises(ShapeError, match=rf"^{batch} a tuple: pass lambda observations: model.predict"):
        obscodec.estimate(Dictionaries(), policy=lambda _: ([0], None))
    with pytest.raises(ShapeError, match=rf"^{batch} list: setting an array element"):
        obscodec.estimate(Dictionaries(), policy=lambda _: [[0], [0, 1]])


def test_the_range_has_the_estimate():
    space = gym.spaces.Box(0, 255, (48, 48, 1), np.uint8)
    found = obscodec.estimate(space, n_sample=1024)
    assert found.least_bytes <= found.nbytes <= found.most_bytes


def test_it_refuses_what_is_no_environment():
    text = "env must be an environment or a space of Gymnasium, or a vector of environments, got"
    with pytest.raises(DTypeError, match=rf"^{text} 'CartPole-v1': pass gym.make\('CartPole-v1'\)$"):
        obscodec.estimate("CartPole-v1")
    with pytest.raises(DTypeError, match=rf"^{text} dict: pass gymnasium.spaces.Dict\(x\) if it has spaces$"):
        obscodec.estimate({})
    with pytest.raises(ShapeError, match=r"^n_sample must be 256 or more, got 10$"):
        obscodec.estimate(Dictionaries(), n_sample=10)
