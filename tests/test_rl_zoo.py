"""What docs/rl-zoo.md says, through the calls that rl_zoo3 2.9.2 makes in its exp_manager.py and enjoy.py.

rl_zoo3 itself is not installed: it needs older versions of packages than this project is tested with.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import ale_py
import gymnasium as gym
import pytest
import yaml
from obscodec_sb3 import CompressedReplayBuffer, CompressedRolloutBuffer
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecTransposeImage

PAGE = (Path(__file__).parents[1] / "docs" / "rl-zoo.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def by_path(path: str) -> Any:
    module, name = path.rsplit(".", 1)
    return getattr(import_module(module), name)


@pytest.fixture
def hyperparams() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(block("yaml"))["atari"]
    values["replay_buffer_class"] = eval(values["replay_buffer_class"], {})
    values["callback"] = [by_path(path)(**arguments) for of in values["callback"] for path, arguments in of.items()]
    del values["n_timesteps"]
    return values


def made_env(hyperparams: dict[str, Any]) -> VecEnv:
    gym.register_envs(ale_py)
    (wrapper,) = hyperparams.pop("env_wrapper")
    env = make_vec_env("PongNoFrameskip-v4", wrapper_class=by_path(wrapper))
    return VecTransposeImage(VecFrameStack(env, hyperparams.pop("frame_stack")))


@pytest.mark.slow
def test_the_hyperparameters_train_resume_and_play(hyperparams: dict[str, Any], tmp_path: Path) -> None:
    env, callback = made_env(hyperparams), hyperparams.pop("callback")
    hyperparams["learning_starts"] = 280
    model = DQN(env=env, **hyperparams)
    model.learn(300, callback=callback)
    assert type(model.replay_buffer) is CompressedReplayBuffer
    assert model.replay_buffer.max_bytes == hyperparams["replay_buffer_kwargs"]["max_bytes"]
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "replay_buffer.pkl")
    assert (tmp_path / "replay_buffer.pkl").stat().st_size < 25_000_000  # of a buffer for a million steps

    del hyperparams["policy"]
    resumed = DQN.load(tmp_path / "model", env=env, **hyperparams)
    resumed.load_replay_buffer(tmp_path / "replay_buffer.pkl", truncate_last_traj=True)
    resumed.learn(20, callback=callback)
    assert resumed.replay_buffer is not None
    assert resumed.replay_buffer.size() == 320

    player = DQN.load(tmp_path / "model", buffer_size=1, custom_objects={"lr_schedule": lambda _: 0.0})
    player.predict(env.reset())


@pytest.mark.slow
def test_the_class_on_the_command_line_trains(hyperparams: dict[str, Any]) -> None:
    argument = re.search(r'-params "rollout_buffer_class:(.*)"', PAGE)
    assert argument
    env = made_env(hyperparams)
    model = PPO("CnnPolicy", env, n_steps=32, batch_size=32, rollout_buffer_class=eval(argument[1], {}))
    model.learn(32)
    assert type(model.rollout_buffer) is CompressedRolloutBuffer
