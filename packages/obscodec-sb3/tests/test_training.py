"""Real training on real Atari: DQN learns the same, to the last bit, from either buffer."""

import warnings

import ale_py
import gymnasium
import numpy as np
import pytest
import torch
from obscodec_sb3 import CompressedReplayBuffer
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
gymnasium.register_envs(ale_py)
torch.set_num_threads(1)  # the network is small; more threads wait for each other


def pong(n_envs: int = 1) -> VecEnv:
    return VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=n_envs, seed=0), n_stack=4)


def trained(n_envs: int = 1, **arguments: object) -> DQN:
    model = DQN(
        "CnnPolicy", pong(n_envs), seed=0, device="cpu", buffer_size=300, learning_starts=100, batch_size=16,
        train_freq=16, target_update_interval=100, **arguments,
    )  # fmt: skip
    return model.learn(500)


@pytest.mark.slow
def test_stock_and_compressed_buffer_give_the_same_weights():
    stock = trained()
    compressed = trained(replay_buffer_class=CompressedReplayBuffer)
    assert isinstance(compressed.replay_buffer, CompressedReplayBuffer)
    assert compressed.replay_buffer.full
    for name, weights in stock.policy.state_dict().items():
        assert torch.equal(weights, compressed.policy.state_dict()[name]), name
    for name in ("observations", "next_observations"):
        stored = getattr(compressed.replay_buffer, name)[:]
        np.testing.assert_array_equal(stored, getattr(stock.replay_buffer, name))


OPTIMIZED = {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}


@pytest.mark.parametrize("arguments", [{}, OPTIMIZED], ids=["plain", "optimized"])
def test_a_saved_replay_buffer_is_loaded_with_all_it_holds(tmp_path, arguments):
    model = trained(n_envs=2, replay_buffer_class=CompressedReplayBuffer, **arguments)
    model.save_replay_buffer(tmp_path / "buffer")
    other = DQN("CnnPolicy", pong(2), device="cpu", buffer_size=10)
    other.load_replay_buffer(tmp_path / "buffer", truncate_last_traj=False)
    assert isinstance(other.replay_buffer, CompressedReplayBuffer)
    assert (tmp_path / "buffer.pkl").stat().st_size < 300 * 28_224 / 4
    samples = []
    for buffer in (model.replay_buffer, other.replay_buffer):
        np.random.seed(0)
        samples.append(buffer.sample(200))
    for expected, found in zip(*samples, strict=True):
        if expected is not None:
            assert torch.equal(found, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SB3 says that it truncates the last trajectory
        other.load_replay_buffer(tmp_path / "buffer", truncate_last_traj=True)
    other.learn(50)
