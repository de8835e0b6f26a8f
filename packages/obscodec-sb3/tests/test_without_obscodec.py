"""A model that names a class of this package, on a machine that does not have it."""

import pytest
from new_python import run_python
from obscodec_sb3 import CompressedReplayBuffer, CompressedRolloutBuffer
from stable_baselines3 import DQN, PPO

ALGORITHMS = {
    DQN: ("replay", {"replay_buffer_class": CompressedReplayBuffer, "replay_buffer_kwargs": {"codec": "zstd:3"}}),
    PPO: ("rollout", {"rollout_buffer_class": CompressedRolloutBuffer, "rollout_buffer_kwargs": {"codec": "zstd:3"}}),
}


# Loads models where obscodec and obscodec_sb3 can't be imported; prints the buffer of each, or why there is no model.
PROGRAM = """
import sys
sys.modules["obscodec"] = sys.modules["obscodec_sb3"] = None
import gymnasium
import stable_baselines3
env = gymnasium.make("CartPole-v1")
for path, options in {loads!r}:
    try:
        model = stable_baselines3.{algorithm}.load(path, env, **options)
        model.learn(64)
        print(type(model.{kind}_buffer).__name__)
    except Exception as error:
        print(type(error).__name__, error)
"""


def buffers_elsewhere(algorithm, kind, loads):
    """What one process prints, a line for each model and the options to load it with."""
    program = PROGRAM.format(algorithm=algorithm.__name__, kind=kind, loads=loads)
    return run_python("-W", "ignore", "-c", program).splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_saved_model_loads_elsewhere_with_custom_objects_or_without_the_class(algorithm, tmp_path):
    kind, options = ALGORITHMS[algorithm]
    steps = {"n_steps": 64} if algorithm is PPO else {"learning_starts": 10}
    model = algorithm("MlpPolicy", "CartPole-v1", device="cpu", seed=0, **steps, **options).learn(64)
    model.save(named := str(tmp_path / "named"))
    model.save(unnamed := str(tmp_path / "unnamed"), exclude=[*options])
    plain = {"custom_objects": {f"{kind}_buffer_class": None, f"{kind}_buffer_kwargs": {}}}
    loads = [(named, {}), (named, plain), (unnamed, {})]
    refused, *loaded = buffers_elsewhere(algorithm, kind, loads)
    assert refused.startswith("ModuleNotFoundError ")
    assert "obscodec_sb3" in refused
    assert loaded == [f"{kind.capitalize()}Buffer"] * 2
    again = algorithm.load(unnamed, model.get_env(), **options).learn(64)
    assert type(getattr(again, f"{kind}_buffer")) is options[f"{kind}_buffer_class"]
