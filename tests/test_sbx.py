"""Real training with sbx, SB3 in JAX, which uses SB3's buffers: the same weights, to the last bit, from either."""

import warnings

import ale_py
import gymnasium
import numpy as np
import obscodec
import pytest
from obscodec_sb3 import CompressedDictReplayBuffer, CompressedReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what it imports
    import jax
    import sbx

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
gymnasium.register_envs(ale_py)

RUNS = {
    "DQN": (
        sbx.DQN,
        "CnnPolicy",
        lambda: VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=2, seed=0), n_stack=4),
        (ReplayBuffer, CompressedReplayBuffer),
    ),
    "SAC": (
        sbx.SAC,
        "MlpPolicy",
        lambda: make_vec_env("Pendulum-v1", n_envs=2, seed=0),
        (ReplayBuffer, CompressedReplayBuffer),
    ),
    "SAC, dict": (
        sbx.SAC,
        "MultiInputPolicy",
        lambda: make_vec_env(lambda: BitFlippingEnv(n_bits=4, continuous=True), n_envs=2, seed=0),
        (DictReplayBuffer, CompressedDictReplayBuffer),
    ),
}


def trained(algorithm: type, policy: str, env: VecEnv, buffer: type[ReplayBuffer], **options: object) -> object:
    model = algorithm(
        policy, env, seed=0, buffer_size=200, learning_starts=60, batch_size=16, train_freq=8,
        replay_buffer_class=buffer, replay_buffer_kwargs=options,
    )  # fmt: skip
    return model.learn(300)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("algorithm", "policy", "env", "buffers"), RUNS.values(), ids=RUNS.keys())
def test_training_in_jax_gives_the_same_weights(algorithm, policy, env, buffers):
    stock = trained(algorithm, policy, env(), buffers[0])
    compressed = trained(algorithm, policy, env(), buffers[1], codec="zstd:1")
    arrays = compressed.replay_buffer.observations
    assert isinstance(arrays["observation"] if isinstance(arrays, dict) else arrays, obscodec.TensorArray)
    found, expected = (jax.tree.leaves(model.policy.qf_state.params) for model in (compressed, stock))
    assert len(found) > 3
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)
