"""A model that names a class of this package, on a machine that does not have it."""

import subprocess
import sys
import textwrap

import pytest
from obscodec_sb3 import CompressedReplayBuffer, CompressedRolloutBuffer
from stable_baselines3 import DQN, PPO

ALGORITHMS = {
    DQN: ("replay", {"replay_buffer_class": CompressedReplayBuffer, "replay_buffer_kwargs": {"codec": "zstd:3"}}),
    PPO: ("rollout", {"rollout_buffer_class": CompressedRolloutBuffer, "rollout_buffer_kwargs": {"codec": "zstd:3"}}),
}


def elsewhere(code):
    """What a process prints that can't import obscodec or obscodec_sb3."""
    program = textwrap.dedent(f"""
        import sys
        sys.modules["obscodec"] = sys.modules["obscodec_sb3"] = None
        import gymnasium
        from stable_baselines3 import DQN, PPO
        env = gymnasium.make("CartPole-v1")
        {code}
        """)
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    return ran.stdout or ran.stderr.splitlines()[-1]


@pytest.fixture(params=ALGORITHMS, ids=lambda algorithm: algorithm.__name__)
def trained(request):
    kind, options = ALGORITHMS[request.param]
    steps = {"n_steps": 64} if request.param is PPO else {"learning_starts": 10}
    model = request.param("MlpPolicy", "CartPole-v1", device="cpu", seed=0, **steps, **options)
    return model.learn(64), kind, options


def buffer_after(algorithm, kind, load):
    """The class of the buffer of a model that goes on learning elsewhere."""
    learns = f"model.learn(64); print(type(model.{kind}_buffer).__name__)"
    return elsewhere(f"model = {algorithm.__name__}.load({load}); {learns}").strip()


@pytest.mark.slow
def test_a_saved_model_loads_with_custom_objects(trained, tmp_path):
    model, kind, _ = trained
    path, algorithm = str(tmp_path / "model"), type(model)
    model.save(path)
    refused = buffer_after(algorithm, kind, f"{path!r}, env")
    assert refused.startswith("ModuleNotFoundError: ")
    assert "obscodec_sb3" in refused
    plain = f"{{'{kind}_buffer_class': None, '{kind}_buffer_kwargs': {{}}}}"
    loaded = buffer_after(algorithm, kind, f"{path!r}, env, custom_objects={plain}")
    assert loaded == f"{kind.capitalize()}Buffer"


@pytest.mark.slow
def test_a_model_saved_without_the_class_loads_as_it_is(trained, tmp_path):
    model, kind, options = trained
    path, algorithm = str(tmp_path / "model"), type(model)
    model.save(path, exclude=[*options])
    assert buffer_after(algorithm, kind, f"{path!r}, env") == f"{kind.capitalize()}Buffer"
    again = algorithm.load(path, model.get_env(), **options).learn(64)
    assert type(getattr(again, f"{kind}_buffer")) is options[f"{kind}_buffer_class"]
