"""Training with sbx, SB3 in JAX, which uses SB3's buffers: ``trained_in_jax.py RUN``, RUN being one of ``RUNS``.

Trains with SB3's buffer and with ours, and fails if any weight differs.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import ale_py
import gymnasium
import numpy as np
import obscodec
from obscodec_sb3 import CompressedDictReplayBuffer, CompressedReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

RUNS: dict[str, tuple[str, str, Callable[[], VecEnv], tuple[type[ReplayBuffer], type[ReplayBuffer]]]] = {
    "DQN": (
        "DQN",
        "CnnPolicy",
        lambda: VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=2, seed=0), n_stack=4),
        (ReplayBuffer, CompressedReplayBuffer),
    ),
    "SAC": (
        "SAC",
        "MultiInputPolicy",
        lambda: make_vec_env(lambda: BitFlippingEnv(n_bits=4, continuous=True), n_envs=2, seed=0),
        (DictReplayBuffer, CompressedDictReplayBuffer),
    ),
}


def trained(algorithm: type, policy: str, env: VecEnv, buffer: type[ReplayBuffer], **options: object) -> Any:
    model = algorithm(
        policy, env, seed=0, buffer_size=200, learning_starts=60, batch_size=16, train_freq=8,
        replay_buffer_class=buffer, replay_buffer_kwargs=options,
    )  # fmt: skip
    return model.learn(300)


def compare(run: str) -> None:
    """Train twice, and compare the weights."""
    import jax  # here: it warns of each fork in a process that has imported it
    import sbx

    algorithm, policy, env, buffers = RUNS[run]
    stock = trained(getattr(sbx, algorithm), policy, env(), buffers[0])
    compressed = trained(getattr(sbx, algorithm), policy, env(), buffers[1], codec="zstd:1")
    arrays = compressed.replay_buffer.observations
    assert isinstance(arrays["observation"] if isinstance(arrays, dict) else arrays, obscodec.TensorArray)
    found, expected = (jax.tree.leaves(model.policy.qf_state.params) for model in (compressed, stock))
    assert len(found) > 3
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of the libraries
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    compare(sys.argv[1])
