"""Real training: every algorithm that has a buffer learns the same, to the last bit, from either buffer."""

import warnings

import ale_py
import gymnasium
import numpy as np
import obscodec
import obscodec_sb3
import pytest
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from same_samples import assert_same_samples
from sb3_contrib import QRDQN, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv, SimpleMultiObsEnv
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecNormalize

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
gymnasium.register_envs(ale_py)
torch.set_num_threads(1)

OFF_POLICY = {"buffer_size": 200, "learning_starts": 60, "batch_size": 16, "seed": 0, "device": "cpu", "train_freq": 8}
ROLLOUT = {"n_steps": 16, "seed": 0, "device": "cpu"}


def masked(env: gymnasium.Env) -> gymnasium.Env:
    return ActionMasker(AtariWrapper(env), lambda env: np.arange(env.action_space.n) != env.unwrapped.ale.lives() % 3)


def atari(wrapper: object = AtariWrapper) -> VecEnv:
    return VecFrameStack(make_vec_env("BreakoutNoFrameskip-v4", n_envs=2, seed=0, wrapper_class=wrapper), n_stack=4)


def gymnasium_stacks() -> VecEnv:
    return make_vec_env(lambda: FrameStackObservation(breakout(grayscale_obs=True), stack_size=4), n_envs=2, seed=0)


def rgb_stacks() -> VecEnv:
    return VecFrameStack(make_vec_env(lambda: breakout(grayscale_obs=False), n_envs=2, seed=0), n_stack=4)


def breakout(**options: bool) -> gymnasium.Env:
    return AtariPreprocessing(gymnasium.make("ALE/Breakout-v5", frameskip=1), **options)


def pendulum() -> VecEnv:
    return VecNormalize(make_vec_env("Pendulum-v1", n_envs=2, seed=0))


def multi_obs() -> VecEnv:
    np.random.seed(0)  # it draws its images when it is made
    return make_vec_env(lambda: SimpleMultiObsEnv(random_start=False), n_envs=2, seed=0)


def bit_flipping() -> VecEnv:
    return make_vec_env(lambda: BitFlippingEnv(n_bits=4, continuous=True), n_envs=2, seed=0)


EARLY = {"decide_after": 8, "block_frames": 4}  # stores decide in the first steps
DELTAS = {"codec": "delta-rle", **EARLY}


def assert_same_weights(stock: BaseAlgorithm, compressed: BaseAlgorithm) -> None:
    found = compressed.policy.state_dict()
    for name, weights in stock.policy.state_dict().items():
        assert torch.equal(weights, found[name]), name


def assert_compressed(buffer: obscodec_sb3.CompressedReplayBuffer | obscodec_sb3.CompressedRolloutBuffer) -> None:
    observations = buffer.observations
    arrays = observations.values() if isinstance(observations, dict) else [observations]
    assert any(isinstance(array, obscodec.TensorArray) for array in arrays)


OFF_POLICY_RUNS = {
    "DQN": (DQN, "CnnPolicy", atari, ReplayBuffer, {}),
    "DQN, stacks of Gymnasium": (DQN, "CnnPolicy", gymnasium_stacks, ReplayBuffer, {}),
    "DQN, stacks of colours": (DQN, "CnnPolicy", rgb_stacks, ReplayBuffer, {}),
    "DQN, dict": (DQN, "MultiInputPolicy", multi_obs, DictReplayBuffer, {}),
    "DQN, n-step": (DQN, "CnnPolicy", atari, NStepReplayBuffer, {"n_steps": 4, "gamma": 0.9}),
    "QR-DQN": (QRDQN, "CnnPolicy", atari, ReplayBuffer, {}),
    "SAC": (SAC, "MlpPolicy", pendulum, ReplayBuffer, {}),
    "SAC, n-step": (SAC, "MlpPolicy", pendulum, NStepReplayBuffer, {"n_steps": 4}),
    "TD3": (TD3, "MlpPolicy", pendulum, ReplayBuffer, {}),
    "DDPG": (DDPG, "MlpPolicy", pendulum, ReplayBuffer, {}),
    "TQC": (TQC, "MlpPolicy", pendulum, ReplayBuffer, {}),
    "CrossQ": (CrossQ, "MlpPolicy", pendulum, ReplayBuffer, {}),
    "SAC, HER": (SAC, "MultiInputPolicy", bit_flipping, HerReplayBuffer, {"goal_selection_strategy": "episode"}),
    "TD3, HER": (TD3, "MultiInputPolicy", bit_flipping, HerReplayBuffer, {"copy_info_dict": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "policy", "env", "buffer", "kwargs"), OFF_POLICY_RUNS.values(), ids=OFF_POLICY_RUNS.keys()
)
def test_off_policy_training_gives_the_same_weights(algorithm, policy, env, buffer, kwargs):
    models = []
    for buffer_class, more in ((buffer, {}), (obscodec_sb3.compressed(buffer), {"codec": "zstd:1", **EARLY})):
        options = {**OFF_POLICY, "replay_buffer_class": buffer_class}
        model = algorithm(policy, env(), **options, replay_buffer_kwargs={**kwargs, **more})
        models.append(model.learn(220))  # which fills the buffer, and goes on
    assert_compressed(models[1].replay_buffer)
    assert models[1].replay_buffer.full
    assert_same_weights(*models)


@pytest.mark.slow
def test_another_environment_may_go_on_with_the_buffer():
    models = []
    for buffer_class, more in ((ReplayBuffer, {}), (obscodec_sb3.CompressedReplayBuffer, DELTAS)):
        model = DQN("CnnPolicy", atari(), **OFF_POLICY, replay_buffer_class=buffer_class, replay_buffer_kwargs=more)
        model.learn(150)
        model.set_env(atari())
        models.append(model.learn(150, reset_num_timesteps=False))
    assert models[1].replay_buffer.full
    assert_same_weights(*models)


@pytest.mark.parametrize("algorithm", [DQN, SAC], ids=lambda algorithm: algorithm.__name__)
def test_training_with_both_memory_options_gives_the_weights_of_the_optimized_stock_buffer(algorithm):
    models = []
    for buffer, timeouts in ((ReplayBuffer, False), (obscodec_sb3.CompressedReplayBuffer, True)):
        more = {"codec": "zstd:1", **EARLY} if timeouts else {}
        env = make_vec_env("CartPole-v1" if algorithm is DQN else "Pendulum-v1", seed=0, wrapper_class=EndsItself)
        kwargs = {"handle_timeout_termination": timeouts, **more}
        model = algorithm("MlpPolicy", env, **OFF_POLICY, optimize_memory_usage=True, replay_buffer_class=buffer,
                          replay_buffer_kwargs=kwargs)  # fmt: skip
        models.append(model.learn(400))
    assert_same_weights(*models)


OPTIMIZED = {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}


@pytest.mark.parametrize("arguments", [{}, OPTIMIZED], ids=["plain", "optimized"])
def test_a_saved_replay_buffer_is_loaded_with_all_it_holds(tmp_path, arguments):
    options = OFF_POLICY | {"buffer_size": 300, "learning_starts": 450} | arguments
    model = DQN("CnnPolicy", atari(), **options, replay_buffer_class=obscodec_sb3.CompressedReplayBuffer).learn(500)
    model.save_replay_buffer(tmp_path / "buffer")
    other = DQN("CnnPolicy", atari(), device="cpu", buffer_size=10)
    other.load_replay_buffer(tmp_path / "buffer", truncate_last_traj=False)
    assert_compressed(other.replay_buffer)
    assert (tmp_path / "buffer.pkl").stat().st_size < 300 * 28_224 / 4
    assert_same_samples(model.replay_buffer, other.replay_buffer, 200)
    with warnings.catch_warnings(action="ignore"):  # SB3 says that it truncates the last trajectory
        other.load_replay_buffer(tmp_path / "buffer", truncate_last_traj=True)
    other.learn(50)


class EndsItself(gymnasium.Wrapper):
    """Truncation is termination, so that next observations at the end of an episode don't matter."""

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated or truncated, False, info


ON_POLICY_RUNS = {
    "PPO": (PPO, "CnnPolicy", atari, {"n_epochs": 2, "batch_size": 16}),
    "PPO, dict": (PPO, "MultiInputPolicy", multi_obs, {"n_epochs": 2, "batch_size": 16}),
    "A2C": (A2C, "CnnPolicy", atari, {}),
    "TRPO": (TRPO, "CnnPolicy", atari, {"batch_size": 16, "cg_max_steps": 2, "n_critic_updates": 2}),
    "MaskablePPO": (MaskablePPO, "CnnPolicy", lambda: atari(masked), {"n_epochs": 2, "batch_size": 16}),
    "RecurrentPPO": (RecurrentPPO, "CnnLstmPolicy", atari, {"n_epochs": 2, "batch_size": 16}),
    "RecurrentPPO, dict": (RecurrentPPO, "MultiInputLstmPolicy", multi_obs, {"n_epochs": 2, "batch_size": 16}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "policy", "env", "options"), ON_POLICY_RUNS.values(), ids=ON_POLICY_RUNS.keys())
def test_on_policy_training_gives_the_same_weights(algorithm, policy, env, options):
    stock = algorithm(policy, env(), **ROLLOUT, **options)
    stock.learn(64)  # two rollouts
    buffer_class = obscodec_sb3.compressed(type(stock.rollout_buffer))
    if algorithm is RecurrentPPO:  # it has no argument for that
        compressed = algorithm(policy, env(), **ROLLOUT, **options)
        compressed.rollout_buffer = buffer_class.like(compressed.rollout_buffer, **DELTAS)
    else:
        more = {"rollout_buffer_class": buffer_class, "rollout_buffer_kwargs": DELTAS}
        compressed = algorithm(policy, env(), **ROLLOUT, **options, **more)
    compressed.learn(64)
    assert_compressed(compressed.rollout_buffer)
    assert_same_weights(stock, compressed)


def test_a_buffer_like_a_compressed_one_may_have_other_options():
    model = A2C("CnnPolicy", atari(), **ROLLOUT, rollout_buffer_class=obscodec_sb3.CompressedRolloutBuffer)
    buffer = obscodec_sb3.CompressedRolloutBuffer.like(model.rollout_buffer, codec="zstd:1")
    assert (buffer.codec, buffer.buffer_size) == ("zstd:1", model.rollout_buffer.buffer_size)
