"""What was saved and what is given are compared before anything is built, and both are named."""

import os
import re

import numpy as np
import pytest
from gymnasium import spaces
from obscodec import DTypeError, Snapshot, SpecError
from obscodec.snapshots import OpenGeneration
from obscodec_sb3 import (
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
    SnapshotCallback,
    compressed,
    resume,
)
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv, IdentityEnvBox
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy

IMAGE = spaces.Box(0, 255, (4, 42, 42), np.uint8)
OPTIONS = {"learning_starts": 20, "buffer_size": 1001, "device": "cpu", "replay_buffer_class": CompressedReplayBuffer}


class Unbuilt(DQN):
    """An algorithm that is never to be loaded."""

    @classmethod
    def load(cls, *_, **__):
        raise AssertionError("something was built")


@pytest.fixture
def folder(request, tmp_path):
    """Checkpoints of a training with two environments, of which no block can be read."""
    env = make_vec_env("CartPole-v1", n_envs=2)
    env = VecNormalize(env) if getattr(request, "param", False) else env
    model = DQN("MlpPolicy", env, **OPTIONS, replay_buffer_kwargs={"codec": "zstd:1"})
    model.learn(40, callback=SnapshotCallback(10, tmp_path))
    for file in tmp_path.glob("*/*.segment"):
        file.write_bytes(b"")
    return tmp_path


def env_of(n):
    return make_vec_env("CartPole-v1", n_envs=n)


@pytest.mark.parametrize("folder", [False, True], indirect=True)
@pytest.mark.parametrize("given", [4, 1])
def test_resume_refuses_other_environments(folder, given):
    env, buffer = env_of(given), folder / "rl_model_replay_buffer"
    with pytest.raises(SpecError) as refused:
        resume(Unbuilt, folder, env if given > 1 else "CartPole-v1", device="cpu")
    assert str(refused.value) == (
        f"{buffer} has a CompressedReplayBuffer of 2 environments (n_envs), and env has {given}: pass an env of 2, or "
        f"convert the buffer: CompressedReplayBuffer.load({str(buffer)!r}, generation=40).with_envs({given}) is one "
        "for the model that Unbuilt.load loads from rl_model_40_steps.zip with this env"
    )


def test_the_remedy_works(tmp_path):
    DQN("MlpPolicy", env_of(2), **OPTIONS).learn(42, callback=SnapshotCallback(10, tmp_path))
    path = tmp_path / "rl_model_replay_buffer"
    model = DQN.load(tmp_path / "rl_model_40_steps.zip", env=env_of(3), device="cpu")
    with pytest.warns(UserWarning, match="38 steps can't all be kept in 3 environments: the oldest 2 are left out"):
        model.replay_buffer = CompressedReplayBuffer.load(path, generation=40, device="cpu").with_envs(3)
    model.learn(60, callback=SnapshotCallback(10, tmp_path), reset_num_timesteps=False)
    resumed = resume(DQN, tmp_path, env_of(3), device="cpu")
    assert (resumed.buffer.n_envs, resumed.step) == (3, 100)


def test_resume_refuses_other_spaces(folder):
    env = DummyVecEnv([lambda: IdentityEnvBox(-1, 1)] * 2)
    of_env = re.escape(f"{env.observation_space}")
    with pytest.raises(
        SpecError, match=rf"whose observation_space is Box\(.*4,.*, and that of env is {of_env}: pass an"
    ):
        resume(Unbuilt, folder, env, device="cpu")
    text = r"whose action_space is Discrete\(2\), and that of env is Discrete\(3\): pass an env with the spaces of the "
    for env, also in ((env_of(2), ""), (env_of(4), r"of 2 environments \(n_envs\), and env has 4: .*; and ")):
        env.action_space = spaces.Discrete(3)
        with pytest.raises(SpecError, match=also + text):
            resume(Unbuilt, folder, env, device="cpu")


def test_resume_refuses_another_algorithm(folder):
    class UnbuiltSAC(Unbuilt):
        policy_aliases = SAC.policy_aliases

    text = (
        r"rl_model_40_steps.zip has a DQNPolicy, and UnbuiltSAC takes CnnPolicy or MultiInputPolicy or SACPolicy: pass"
    )
    with pytest.raises(SpecError, match=text):
        resume(UnbuiltSAC, folder, env_of(2), device="cpu")
    with pytest.raises(DTypeError, match=r"^algorithm must be one with a replay buffer, such as DQN, got PPO$"):
        resume(PPO, folder, env_of(2), device="cpu")


class OfAUser(BasePolicy):
    """A policy that no algorithm names."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.of_sb3 = DQNPolicy(*args, **kwargs)

    def __getattr__(self, name):
        if name in ("q_net", "q_net_target", "optimizer"):
            return getattr(self.of_sb3, name)
        return super().__getattr__(name)

    def _predict(self, observation, deterministic=False):
        return self.of_sb3._predict(observation, deterministic)


def test_a_policy_of_a_user_is_for_any_algorithm(tmp_path):
    model = DQN(OfAUser, "CartPole-v1", learning_starts=5, device="cpu", replay_buffer_class=CompressedReplayBuffer)
    model.learn(20, callback=SnapshotCallback(20, tmp_path))
    assert isinstance(resume(DQN, tmp_path, "CartPole-v1", device="cpu").model.policy, OfAUser)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"replay_buffer_class": CompressedNStepReplayBuffer},
         "has a CompressedReplayBuffer, and the replay_buffer_class of the model is CompressedNStepReplayBuffer: pass "
         "replay_buffer_class=CompressedReplayBuffer"),
        ({"custom_objects": {"replay_buffer_class": ReplayBuffer}},
         "has a CompressedReplayBuffer, and the replay_buffer_class of the model is ReplayBuffer: pass "),
        ({"buffer_size": 500},
         "has a CompressedReplayBuffer with buffer_size=1000, got 500: leave it out, or make another buffer"),
        ({"replay_buffer_kwargs": {"codec": "raw"}},
         "has a CompressedReplayBuffer with codec='zstd:1', got 'raw': leave it out, or make another buffer"),
        ({"replay_buffer_kwargs": {"codec": "raw", "n_envs": 3}},
         "codec='zstd:1', got 'raw': leave it out, or make another buffer; with n_envs=2, got 3: leave"),
    ],
)  # fmt: skip
def test_resume_refuses_another_buffer(folder, arguments, text):
    with pytest.raises(SpecError, match=re.escape(text)):
        resume(Unbuilt, folder, env_of(2), device="cpu", **arguments)


@pytest.mark.parametrize(("env", "named"), [(None, "None"), (2, "int")])
def test_resume_wants_an_environment(folder, env, named):
    with pytest.raises(DTypeError, match=f"^env must be an environment or its id, got {named}$"):
        resume(Unbuilt, folder, env)


def test_the_class_in_a_model_is_known_before_it_is_loaded(tmp_path):
    model, other = DQN("MlpPolicy", "CartPole-v1", **OPTIONS), tmp_path / "rl_model_40_steps.zip"
    model.learn(20, callback=SnapshotCallback(20, tmp_path))
    DQN("MlpPolicy", "CartPole-v1", buffer_size=1000).save(other)
    with Snapshot(tmp_path / "rl_model_replay_buffer") as snapshot:
        snapshot.write(model.replay_buffer, generation=40, beside={"model": other})
    with pytest.raises(
        SpecError, match="has a CompressedReplayBuffer, and the replay_buffer_class of the model is Repl"
    ):
        resume(Unbuilt, tmp_path, "CartPole-v1")


def test_what_a_process_chooses_is_replaced(tmp_path):
    model = DQN("MlpPolicy", env_of(2), **OPTIONS).learn(40, callback=SnapshotCallback(10, tmp_path))
    resumed = resume(
        DQN, tmp_path, env_of(2), device="cpu", buffer_size=1001, replay_buffer_kwargs={"prefetch": True, "threads": 1}
    )
    assert (resumed.buffer._prefetch, resumed.buffer.threads) == (True, 1)
    assert resumed.buffer.buffer_size == model.replay_buffer.buffer_size == 500


@pytest.mark.parametrize(
    ("name", "value", "saved", "remedy"),
    [
        ("n_envs", 4, "2", "convert the buffer: {cls}.load({path!r}).with_envs(4)"),
        ("buffer_size", 300, "100", "make another buffer"),
        ("codec", "raw", "'zstd:1'", "make another buffer"),
        ("frame_stack", 2, "4", "make another buffer"),
        ("block_frames", 2, "None", "make another buffer"),
        ("handle_timeout_termination", False, "True", "make another buffer"),
        ("n_steps", 5, "3", "make another buffer"),
        ("gamma", 0.5, "0.99", "make another buffer"),
        ("observation_space", spaces.Box(0, 255, (4, 84, 84), np.uint8), f"{IMAGE}", "make another buffer"),
        ("action_space", spaces.Discrete(5), "Discrete(4)", "make another buffer"),
    ],
)
def test_load_refuses_what_was_saved_otherwise(tmp_path, name, value, saved, remedy):
    cls, path = CompressedNStepReplayBuffer, os.fspath(tmp_path)
    buffer = cls(101, IMAGE, spaces.Discrete(4), "cpu", n_envs=2, codec="zstd:1", frame_stack=4)
    for _ in range(5):
        buffer.add(*np.zeros((2, 2, 4, 42, 42), np.uint8), np.zeros((2, 1)), np.zeros(2), np.zeros(2), [{}] * 2)
    buffer.save(path)
    same = {"n_envs": np.int64(2), "buffer_size": 101, "codec": "zstd:1", "observation_space": IMAGE, "threads": 1}
    assert cls.load(path, device="cpu", **same).threads == 1
    for file in tmp_path.glob("*.segment"):
        file.unlink()
    with pytest.raises(SpecError) as refused:
        cls.load(path, device="cpu", **{name: value})
    assert str(refused.value) == (
        f"{path} has a {cls.__name__} with {name}={saved}, got {value!r}: leave it out, or "
        + remedy.format(cls=cls.__name__, path=path)
    )


def test_arguments_of_other_classes_are_compared(tmp_path):
    env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=4)])
    spaces_of_env = env.observation_space, env.action_space
    CompressedHerReplayBuffer(200, *spaces_of_env, env, "cpu", goal_selection_strategy="final").save(tmp_path / "her")
    load = CompressedHerReplayBuffer.load
    assert load(tmp_path / "her", env=env, device="cpu", goal_selection_strategy="final").env is env
    with pytest.raises(SpecError, match="with goal_selection_strategy='final', got 'future'"):
        load(tmp_path / "her", env=env, goal_selection_strategy="future")
    CompressedRolloutBuffer(20, IMAGE, spaces.Discrete(4), "cpu", n_envs=2).save(tmp_path / "rollout")
    with pytest.raises(SpecError, match=r"with n_envs=2, got 4: leave it out, or make another buffer$"):
        CompressedRolloutBuffer.load(tmp_path / "rollout", n_envs=4)

    class Weighted(ReplayBuffer):
        def __init__(self, *args, weights=None, **kwargs):
            super().__init__(*args, **kwargs)
            self.weights = np.array([0.5, 0.5] if weights is None else weights)

    cls = compressed(Weighted)
    cls(20, IMAGE, spaces.Discrete(4), "cpu").save(tmp_path / "own")
    assert cls.load(tmp_path / "own", device="cpu", weights=[0.5, 0.5]).buffer_size == 20
    for weights in ([0.5, 0.25], [1.0, 2.0, 3.0]):
        with pytest.raises(SpecError, match="with weights="):
            cls.load(tmp_path / "own", device="cpu", weights=weights)


def test_large_bounds_of_spaces_are_compared(tmp_path):
    space = spaces.Box(np.zeros((4, 200, 200), np.float32), np.ones((4, 200, 200), np.float32))  # bounds take pages
    CompressedReplayBuffer(100_000, space, spaces.Discrete(4), "cpu", codec="zstd:1").save(tmp_path)
    opened = OpenGeneration(tmp_path)
    kind, arguments = opened.kind, opened.arguments()
    assert (kind, arguments["n_envs"], arguments["buffer_size"]) == ("CompressedReplayBuffer", 1, 100_000)
    np.testing.assert_array_equal(arguments["observation_space"]["high"], space.high)
