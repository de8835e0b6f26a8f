"""An estimate of a vector of Stable-Baselines3 is that of what its buffers get."""

import ale_py
import gymnasium as gym
import numpy as np
import obscodec
import pytest
from gymnasium import spaces
from obscodec.buffers import play
from obscodec_sb3 import CompressedReplayBuffer
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack

gym.register_envs(ale_py)


class Counting(gym.Env):
    """Episodes of 5 steps that end and of 7 that are cut off, in turns; each observation has the number of its step."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict(image=spaces.Box(0, 255, (3, 4), np.uint8), n=spaces.Box(0, 255, (1,)))
    episode = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.n = self.episode + 1, 0
        return self.observation(), {}

    def step(self, action):
        self.n += 1
        is_odd = bool(self.episode % 2)
        return self.observation(), 1.0, is_odd and self.n == 5, not is_odd and self.n == 7, {}

    def observation(self):
        return {"image": np.full((3, 4), self.n, np.uint8), "n": np.full(1, self.n, np.float32)}


def test_the_steps_of_a_vector_have_the_last_observations():
    steps = list(play(make_vec_env(Counting, n_envs=2), 24))
    counts = [*range(5), *range(7)] * 2
    for name in ("image", "n"):
        before = [step[f"observation.{name}"][0].flat[0] for step in steps]
        after = [step[f"next observation.{name}"][1].flat[0] for step in steps]
        assert (before, after) == (counts, [n + 1 for n in counts])
    ends = {name: [k for k, step in enumerate(steps) if step[name].all()] for name in ("terminated", "truncated")}
    assert ends == {"terminated": [4, 16], "truncated": [11, 23]}
    assert [k for k, step in enumerate(steps) if step["terminated"].any() or step["truncated"].any()] == [4, 11, 16, 23]
    assert {step["action"].shape for step in steps} == {(2,)}


def test_a_vector_has_the_steps_of_its_environments():
    one, other = (list(play(make_vec_env("CartPole-v1", n_envs=3), 30, seed=4)) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        assert all((a[name] == b[name]).all() for name in a)


@pytest.mark.slow
def test_it_is_what_a_buffer_of_sb3_takes():
    n = 6000
    estimated = obscodec.estimate(VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=2), n_stack=4), n)
    env = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=2, seed=1), n_stack=4)
    model = DQN("CnnPolicy", env, buffer_size=n, learning_starts=n, replay_buffer_class=CompressedReplayBuffer)
    model.learn(n)
    model.replay_buffer.decide()
    stats = model.replay_buffer.stats()
    (stored,) = stats.fields.values()
    assert estimated.fields["observation"].codec == stored.codec
    assert estimated.nbytes == pytest.approx(stats.total_bytes, rel=0.25)
    assert estimated.raw_bytes == pytest.approx(stats.raw_bytes, rel=0.01)


def test_a_trained_model_plays():
    model = DQN("MlpPolicy", make_vec_env("CartPole-v1"), buffer_size=100)
    env = make_vec_env("CartPole-v1", n_envs=2)
    for of in (env, gym.make("CartPole-v1")):
        estimated = obscodec.estimate(of, n_sample=256, policy=lambda obs: model.predict(obs, deterministic=True)[0])
        assert estimated.is_of_policy


def test_no_seed_leaves_the_global_generator_of_numpy():
    env = make_vec_env(Counting, n_envs=2)
    before = np.random.get_state()[1].copy()
    list(play(env, 2, seed=None))
    assert (np.random.get_state()[1] == before).all()
