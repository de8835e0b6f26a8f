"""What the doctor says to paste runs, as it stands, but with fewer steps."""

import doctor_envs
import numpy as np
import pytest
from gymnasium import spaces
from obscodec import RingBuffer, SourceError
from obscodec.cli.doctor.report import Report
from obscodec.cli.doctor.sources import Request, read
from obscodec.cli.doctor.trials import examine

N = 96
BOTH = {"RingBuffer", "Stable-Baselines3", "TorchRL"}


def pastes(source, n_envs=1, wrappers=(), stack=1):
    content = read(Request(str(source), N, wrappers, stack, 0, lambda n: None, n_envs))
    following = content.following
    fields = [examine(name, of, None, lambda **_: None, following.get(name)) for name, of in content.items.items()]
    return Report(source, tuple(fields), (), content.has_episodes, content.played).pastes


@pytest.fixture(autouse=True)
def _one_thread():
    torch = pytest.importorskip("torch")  # of small networks, several threads wait for each other
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n)


def run(program, names=()):
    """Execute a program with few steps; the names that it leaves."""
    for many, few in (("1_000_000", "104"), ("1_000", "20"), ("n_steps=2048", "n_steps=64")):
        program = program.replace(many, few)
    names = {"__name__": "__main__", **dict(names)}
    exec(program, names)
    return names


@pytest.mark.parametrize("n_envs", [1, 2])
@pytest.mark.parametrize(
    ("source", "model"),
    [
        ("images", "DQN('CnnPolicy'"),
        ("boxes", "SAC('CnnPolicy'"),
        ("unbounded", None),
        ("multi", "PPO('CnnPolicy'"),
        ("small", "DQN('MlpPolicy'"),
        ("grey", "SAC('MlpPolicy'"),
        ("planes", "DQN('MlpPolicy'"),
        ("dictionaries", "SAC('MultiInputPolicy'"),
        ("two_cameras", "DQN('MultiInputPolicy'"),
        ("two_orders", None),
        ("small_in_dictionary", None),
        ("nested", None),
        ("tuples", None),
        ("vectors", None),
    ],
)
def test_a_program_plays_in_the_environment(source, model, n_envs):
    pytest.importorskip("obscodec_sb3")
    pytest.importorskip("obscodec_torchrl")
    programs = pastes(f"doctor_envs:{source}", n_envs)
    names = {"RingBuffer"} if source == "vectors" else BOTH - ({"Stable-Baselines3"} if model is None else set())
    assert {*programs} == names
    check_ring(run(programs["RingBuffer"])["buffer"], n_envs)
    if model:
        assert f"model = {model}, env, " in programs["Stable-Baselines3"]
        trained = run(programs["Stable-Baselines3"])["model"]
        assert trained.n_envs == n_envs
        if not model.startswith("PPO"):
            assert trained.replay_buffer.size() * n_envs == 104
    if "TorchRL" in programs:
        check_storage(run(programs["TorchRL"]), n_envs)


def check_ring(buffer, n_envs):
    """It has the steps that were played, and no episode has more than those of an episode."""
    assert buffer.n_envs == n_envs
    assert len(buffer) == buffer.capacity == 104 // n_envs
    lengths = [len(episode["reward"]) for episode in buffer.episodes()]
    assert max(lengths) == 7
    steps = buffer[:]
    first = next(name for name in buffer.fields if name.startswith("observation"))
    after = next(name for name, of in buffer.fields.items() if of.next_of == first)
    ended = steps["terminated"] | steps["truncated"]
    is_valid = steps.get("valid", np.ones_like(ended))
    ends = is_valid & ended
    goes_on = (is_valid & ~ends)[:-1]
    np.testing.assert_array_equal(steps[after][:-1][goes_on], steps[first][1:][goes_on])
    brightness = steps[after].reshape(*ends.shape, -1).sum(-1, dtype=np.float64)
    assert (brightness[ends] == brightness.max()).all()  # the last observation, and not the first of the next episode
    assert (brightness[~ends] < brightness.max()).all()


def check_storage(names, n_envs):
    if "env" in names:
        assert len(names["buffer"]) == 20 * n_envs
        names["storage"].decide()
        stats = names["storage"].stats().fields
        compressed = {name: of for name, of in stats.items() if not isinstance(of, int)}
        assert {f"next.{name}" for name in compressed if not name.startswith("next.")} < {*compressed}
        assert all(of is compressed[name.removeprefix("next.")] for name, of in compressed.items())  # one store


@pytest.mark.parametrize(
    ("source", "n_envs", "model"),
    [("vec_env", 3, "SAC('CnnPolicy'"), ("stacked_vec_env", 2, "DQN('MultiInputPolicy'")],
)
def test_a_program_plays_in_a_vector_of_stable_baselines3(source, n_envs, model):
    pytest.importorskip("obscodec_sb3")
    programs = pastes(f"doctor_envs:{source}")
    # Environments in processes import the program.
    assert "\nif __name__ == '__main__':\n    env = make_env()\n" in programs["Stable-Baselines3"]
    assert run(programs["RingBuffer"])["buffer"].n_envs == n_envs
    assert f"model = {model}, env, " in programs["Stable-Baselines3"]
    assert run(programs["Stable-Baselines3"])["model"].n_envs == n_envs
    run(programs["TorchRL"])


@pytest.mark.parametrize("source", ["gym_vector", "same_step_vector"])
def test_a_program_for_a_vector_of_gymnasium(source):
    programs = pastes(f"doctor_envs:{source}")
    buffer = run(programs["RingBuffer"])["buffer"]
    assert (buffer.n_envs, buffer.mask) == (2, "valid" if source == "gym_vector" else None)
    if source == "gym_vector":
        check_ring(buffer, 2)
    assert "# env is your environment" in programs["Stable-Baselines3"]


def test_wrappers_and_stacks_are_in_the_program():
    pytest.importorskip("obscodec_sb3")
    programs = pastes("doctor_envs:drawn", wrappers=("pixels", "GrayscaleObservation", "doctor_envs:dark"), stack=3)
    for program in programs.values():
        assert (
            "def make_env():\n"
            "    env = doctor_envs.drawn()\n"
            "    env = gym.wrappers.AddRenderObservation(env, render_only=True)\n"
            "    env = gym.wrappers.GrayscaleObservation(env)\n"
            "    env = doctor_envs.dark(env)\n"
            "    env = gym.wrappers.FrameStackObservation(env, 3)\n"
            "    return env\n"
        ) in program
    assert "frame_stack=FrameStack(depth=3, axis=0)" in programs["RingBuffer"]
    buffer = run(programs["RingBuffer"])["buffer"]
    assert buffer.fields["observation"].shape == (3, 40, 40)


def test_a_game_is_registered_in_the_program():
    pytest.importorskip("ale_py")
    programs = pastes("ALE/Pong-v5", wrappers=("atari", "doctor_envs:dark"), n_envs=2)
    made = "    env = gym.make('ALE/Pong-v5', frameskip=1)\n    env = gym.wrappers.AtariPreprocessing(env)\n"
    made += "    env = doctor_envs.dark(env)\n"
    assert f"\n\ngym.register_envs(ale_py)\n\ndef make_env():\n{made}    return env\n" in programs["RingBuffer"]
    assert len(run(programs["RingBuffer"])["buffer"]) == 52


@pytest.mark.parametrize(
    ("actions", "space", "algorithm"),
    [
        (np.zeros(N, np.int64), spaces.Discrete(3), "DQN"),
        (np.zeros((N, 1), np.int64), spaces.Discrete(3), "DQN"),
        (np.zeros((N, 2), np.float32), doctor_envs.BOX, "SAC"),
        (np.zeros((N, 2), np.int64), spaces.MultiDiscrete([2, 2]), "PPO"),
        (None, spaces.Discrete(3), "DQN"),
    ],
)
def test_the_program_for_a_file_takes_such_actions(tmp_path, actions, space, algorithm):
    pytest.importorskip("obscodec_sb3")
    env = doctor_envs.Moving(action_space=space)
    observations = [env.reset()[0], *(env.step(space.sample())[0] for _ in range(N - 1))]
    arrays = {"observations": np.stack(observations)} | ({} if actions is None else {"actions": actions})
    np.savez(tmp_path / "run.npz", **arrays)
    programs = pastes(tmp_path / "run.npz")
    assert f"model = {algorithm}('CnnPolicy', env, " in programs["Stable-Baselines3"]
    names = run(programs["Stable-Baselines3"], {"env": env})
    names["model"].learn(104)
    assert isinstance(run(programs["RingBuffer"])["buffer"], RingBuffer)
    assert run(programs["TorchRL"])["storage"].max_size == 104


def test_the_program_for_a_saved_buffer(tmp_path):
    sb3 = pytest.importorskip("obscodec_sb3")
    env = doctor_envs.dictionaries()
    buffer = sb3.CompressedDictReplayBuffer(N, env.observation_space, env.action_space, device="cpu")
    before, _ = env.reset()
    for _ in range(N):
        after, reward, *_ = env.step(action := env.action_space.sample())
        buffer.add(before, after, action, np.array([reward]), np.array([False]), [{}])
        before = after
    buffer.save(tmp_path / "saved")
    programs = pastes(tmp_path / "saved")
    assert "model = SAC('MultiInputPolicy', env, " in programs["Stable-Baselines3"]
    run(programs["Stable-Baselines3"], {"env": env})["model"].learn(104)
    for name in ("RingBuffer", "TorchRL"):
        run(programs[name])


@pytest.mark.parametrize(
    ("source", "options", "text"),
    [
        ("broken", {}, "doctor_envs:broken() can't make an environment: RuntimeError: no display"),
        (
            "gym_vector",
            {"n_envs": 2},
            "doctor_envs:gym_vector makes a vector of 2 environments: wrap, stack and count them there, and leave "
            "--wrapper, --stack and --n-envs out",
        ),
    ],
)
def test_what_makes_no_environment(source, options, text):
    with pytest.raises(SourceError) as refused:
        pastes(f"doctor_envs:{source}", **options)
    assert str(refused.value) == text
