"""A buffer that is saved and loaded is equal in all that it holds, and goes on as the one that was saved."""

import copy
import pickle
import re
import shutil
import threading
import warnings

import numpy as np
import obscodec
import obscodec_sb3
import pytest
import torch as th
from gymnasium import spaces
from obscodec import DTypeError, Snapshot, SnapshotError
from obscodec.snapshots import inspect_snapshot
from obscodec_sb3 import (
    CompressedDictReplayBuffer,
    CompressedDictRolloutBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
    SnapshotCallback,
    compressed,
    resume,
)
from obscodec_sb3.contents import opened_steps
from same_samples import assert_equal, assert_same_samples
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

IMAGE, VECTOR = spaces.Box(0, 255, (4, 42, 42), np.uint8), spaces.Box(-1, 1, (3,))
BOTH = spaces.Dict(image=IMAGE, vector=VECTOR)
N_ENVS = 2


class Counted(ReplayBuffer):
    """A buffer of a user, with an array and a number of its own."""

    def __init__(self, *args, scale=2.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.scale = scale
        self.n_adds, self.ages = 0, np.zeros((self.buffer_size, self.n_envs), np.int64)

    def add(self, *args):
        self.ages[self.pos] = self.n_adds
        self.n_adds += 1
        super().add(*args)


def observations(step, space=IMAGE):
    if isinstance(space, spaces.Dict):
        return {key: observations(step, of) for key, of in space.items()}
    if space == VECTOR:
        return np.random.default_rng(step).random((N_ENVS, 3), np.float32)
    frames = np.zeros((N_ENVS, 4, 42, 42), np.uint8)
    for env in range(N_ENVS):
        for k in range(4):
            frames[env, k, (step + k) % 42] = (step + k + env) % 250 + 1
    return frames


def fill(buffer, begin, end, rng):
    for step in range(begin, end):
        obs, after = (observations(k, buffer.observation_space) for k in (step, step + 1))
        action, reward, done = rng.integers(4, size=(N_ENVS, 1)), rng.normal(size=N_ENVS), rng.random(N_ENVS) < 0.1
        buffer.add(obs, after, action, reward, done, [{"TimeLimit.truncated": bool(step % 7 == 0)}] * N_ENVS)


def check_equal(buffer, loaded):
    for seed in range(3):
        assert_same_samples(buffer, loaded, 50, seed)
    assert (loaded.pos, loaded.full, loaded.device) == (buffer.pos, buffer.full, buffer.device)


@pytest.mark.parametrize("n_steps", [0, 30, 250])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (CompressedReplayBuffer, {}),
        (CompressedReplayBuffer, {"codec": "zstd:1", "prefetch": True, "optimize_memory_usage": True}),
        (CompressedReplayBuffer, {"codec": None, "handle_timeout_termination": False}),
        (CompressedDictReplayBuffer, {"codec": {"image": "delta-rle"}, "frame_stack": {"image": 4}}),
        (CompressedNStepReplayBuffer, {"n_steps": 5, "gamma": 0.5}),
        (compressed(Counted), {"scale": 3.0}),
    ],
)
def test_a_loaded_buffer_goes_on_as_the_saved_one(kind, options, n_steps, tmp_path):
    space = BOTH if kind is CompressedDictReplayBuffer else IMAGE
    buffer = kind(100 * N_ENVS, space, spaces.Discrete(4), "cpu", n_envs=N_ENVS, **options)
    fill(buffer, 0, n_steps, np.random.default_rng(0))
    buffer.save(tmp_path / "buffer")
    loaded = kind.load(tmp_path / "buffer", device="cpu", continue_episodes=True)
    assert (loaded.buffer_size, loaded.n_envs, loaded.observation_space) == (100, N_ENVS, space)
    assert loaded._options == buffer._options
    if n_steps:
        before = buffer.stats()
        assert loaded.stats().fields.keys() == before.fields.keys()
        assert (loaded.stats().raw_bytes, loaded.stats().n_samples) == (before.raw_bytes, before.n_samples)
        check_equal(buffer, loaded)
    for one in (buffer, loaded):
        fill(one, n_steps, n_steps + 130, np.random.default_rng(1))
    check_equal(buffer, loaded)
    if hasattr(buffer, "ages"):
        assert (loaded.scale, loaded.n_adds) == (3.0, n_steps + 130)
        np.testing.assert_array_equal(loaded.ages, buffer.ages)


@pytest.mark.parametrize("n_got", [0, 1])
@pytest.mark.parametrize("kind", [CompressedRolloutBuffer, CompressedDictRolloutBuffer])
def test_a_rollout_is_saved_before_and_after_it_is_read(kind, n_got, tmp_path):
    space = BOTH if kind is CompressedDictRolloutBuffer else IMAGE
    buffer = kind(20, space, spaces.Discrete(4), "cpu", n_envs=N_ENVS)
    for step in range(20):
        numbers = th.full((N_ENVS,), float(step))
        buffer.add(observations(step, space), np.full((N_ENVS, 1), step % 4), *[np.ones(N_ENVS)] * 2, numbers, numbers)
    for _ in range(n_got):
        list(buffer.get(10))
    buffer.save(tmp_path)
    loaded = kind.load(tmp_path, device="cpu")
    for one in (buffer, loaded):
        np.random.seed(0)
        one.batches = tuple(one.get(8))
    assert_equal(loaded.batches, buffer.batches)
    loaded.reset()
    assert loaded.observations is not buffer.observations


def test_a_buffer_of_goals_gets_its_environment_when_it_is_loaded(tmp_path):
    from stable_baselines3.common.envs import BitFlippingEnv
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=4)])
    options = {"codec": "zstd:1", "n_sampled_goal": 2, "goal_selection_strategy": "final"}
    buffer = CompressedHerReplayBuffer(200, env.observation_space, env.action_space, env, "cpu", **options)
    obs = env.reset()
    for _ in range(50):
        action = np.array([env.action_space.sample()])
        after, reward, done, infos = env.step(action)
        buffer.add(obs, after, action, reward, done, infos)
        obs = after
    buffer.save(tmp_path)
    loaded = CompressedHerReplayBuffer.load(tmp_path, env=env, device="cpu", continue_episodes=True)
    assert (loaded.n_sampled_goal, loaded.goal_selection_strategy) == (2, buffer.goal_selection_strategy)
    check_equal(buffer, loaded)
    assert len(first_items(tmp_path, 10)["observations.desired_goal"]) == 10  # without an environment
    buffer.infos[0, 0] = {"something": 1}
    with pytest.raises(DTypeError, match=r"infos has Python objects.* leave copy_info_dict out"):
        buffer.save(tmp_path)


def test_what_is_no_snapshot_of_the_class_is_refused_by_name(tmp_path):
    CompressedReplayBuffer(100, IMAGE, spaces.Discrete(4), "cpu").save(tmp_path / "replay")
    obscodec.save(obscodec.RingBuffer(4, {"done": obscodec.Field((), np.bool_)}), tmp_path / "ring")
    (tmp_path / "buffer.pkl").write_bytes(b"")
    for name, text in (
        ("replay", "has a CompressedReplayBuffer: call CompressedReplayBuffer.load"),
        ("ring", "has a RingBuffer: call obscodec.load"),
        ("buffer.pkl", "is a file: a snapshot is a folder; what save_replay_buffer wrote is for model.load_replay_buf"),
    ):
        with pytest.raises(SnapshotError, match=f"{name} {re.escape(text)}"):
            CompressedNStepReplayBuffer.load(tmp_path / name)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 5]),
        spaces.MultiBinary(3),
        spaces.Box(np.array([-1, -np.inf], np.float32), np.array([1, np.inf], np.float32)),
    ],
)
def test_a_space_comes_back(space, tmp_path):
    CompressedReplayBuffer(100, IMAGE, space, "cpu").save(tmp_path)
    assert CompressedReplayBuffer.load(tmp_path).action_space == space


@pytest.mark.parametrize("package", [obscodec, obscodec_sb3])
@pytest.mark.parametrize("of", [ReplayBuffer, Counted])
def test_a_pickle_of_another_version_is_refused(of, package, tmp_path, monkeypatch):
    model = DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=compressed(of), buffer_size=50)
    model.save_replay_buffer(tmp_path / "buffer")
    model.load_replay_buffer(tmp_path / "buffer")
    assert type(copy.deepcopy(model.replay_buffer)) is compressed(of)
    monkeypatch.setattr(package, "__version__", "77.0.0")
    with pytest.raises(SnapshotError, match=f"{package.__name__} .*, and here is 77.0.0: .* obscodec.save.* with load"):
        pickle.loads((tmp_path / "buffer.pkl").read_bytes())  # SB3's method leaves its file open


def test_buffers_of_contrib_are_saved(tmp_path):
    pytest.importorskip("sb3_contrib")
    kind = obscodec_sb3.CompressedMaskableRolloutBuffer
    kind(20, IMAGE, spaces.Discrete(4), "cpu", n_envs=N_ENVS).save(tmp_path)
    assert kind.load(tmp_path).buffer_size == 20


def test_the_keys_of_a_dictionary_keep_their_order(tmp_path):
    space = spaces.Dict(vector=VECTOR, image=IMAGE)  # not sorted
    buffer = CompressedDictReplayBuffer(20, space, spaces.Discrete(4), "cpu", n_envs=N_ENVS, codec={"image": "raw"})
    fill(buffer, 0, 5, np.random.default_rng(0))
    buffer.save(tmp_path)
    loaded = CompressedDictReplayBuffer.load(tmp_path, device="cpu")
    assert [*loaded.observation_space] == ["vector", "image"]
    check_equal(buffer, loaded)


def dqn(env, **options):
    of_buffer = {"replay_buffer_class": CompressedReplayBuffer, "replay_buffer_kwargs": {"codec": "zstd:1"}}
    return DQN("MlpPolicy", env, learning_starts=20, buffer_size=1000, device="cpu", seed=0, **of_buffer, **options)


def cart_pole(normalizes):
    env = make_vec_env("CartPole-v1", n_envs=N_ENVS, seed=0)
    return VecNormalize(env) if normalizes else env


def check_lacks_last_step(buffer, loaded):
    """SB3 calls callbacks before it stores a transition."""
    assert (loaded.pos, loaded.full) == (buffer.pos - 1, buffer.full)
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        found, expected = getattr(loaded, name), getattr(buffer, name)
        for key in found if isinstance(found, dict) else [None]:
            pair = (found, expected) if key is None else (found[key], expected[key])
            np.testing.assert_array_equal(*(array[: loaded.pos] for array in pair), name)


@pytest.mark.parametrize("normalizes", [False, True])
def test_a_training_goes_on_from_its_last_checkpoint(normalizes, tmp_path):
    model = dqn(cart_pole(normalizes))
    model.learn(400, callback=SnapshotCallback(50, tmp_path))
    resumed = resume(DQN, tmp_path, cart_pole(False), device="cpu", continue_episodes=True)
    assert (resumed.step, resumed.model.num_timesteps) == (400, 400)
    assert resumed.model.replay_buffer is resumed.buffer
    check_lacks_last_step(model.replay_buffer, resumed.buffer)
    if normalizes:
        assert resumed.model.get_env() is resumed.vec_normalize
        np.testing.assert_array_equal(resumed.vec_normalize.obs_rms.mean, model.get_env().obs_rms.mean)
    else:
        assert resumed.vec_normalize is None
    saved = DQN.load(tmp_path / "rl_model_400_steps.zip", device="cpu").policy.state_dict()
    for name, value in resumed.model.policy.state_dict().items():
        assert (saved[name] == value).all()
    assert Snapshot(tmp_path / "rl_model_replay_buffer").generations == [200, 300, 400]
    resumed.model.learn(200, callback=SnapshotCallback(50, tmp_path), reset_num_timesteps=False)
    assert Snapshot(tmp_path / "rl_model_replay_buffer").generations == [400, 500, 600]
    assert resume(DQN, tmp_path, cart_pole(normalizes), device="cpu").step == 600


def test_an_incomplete_checkpoint_is_left_out(tmp_path):
    dqn(cart_pole(True)).learn(400, callback=SnapshotCallback(50, tmp_path))
    (tmp_path / "rl_model_vecnormalize_400_steps.pkl").unlink()
    assert resume(DQN, tmp_path, cart_pole(False), device="cpu").step == 300
    model = tmp_path / "rl_model_300_steps.zip"
    model.write_bytes(model.read_bytes()[:1000])
    with pytest.warns(
        UserWarning, match=r"rl_model_300_steps\.zip is damaged, or was not .*: an earlier checkpoint is loaded"
    ):
        resumed = resume(DQN, tmp_path, cart_pole(False), device="cpu")
    assert resumed.step == 200
    resumed.model.learn(100, callback=SnapshotCallback(50, tmp_path), reset_num_timesteps=False)
    assert Snapshot(tmp_path / "rl_model_replay_buffer").generations == [200, 300]  # 400 was of a model that is gone
    arrays = tmp_path / "rl_model_replay_buffer" / "arrays-00000300.safetensors"
    arrays.write_bytes(b"")
    with pytest.warns(UserWarning, match=r"arrays-00000300\.safetensors is damaged.*an earlier checkpoint is loaded"):
        assert resume(DQN, tmp_path, cart_pole(False), device="cpu").step == 200
    content = bytearray((tmp_path / "rl_model_200_steps.zip").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "rl_model_200_steps.zip").write_bytes(content)
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(SnapshotError) as all_damaged:
        resume(DQN, tmp_path, cart_pole(False), device="cpu")
    of_buffer = tmp_path / "rl_model_replay_buffer"
    assert str(all_damaged.value) == (
        f"each checkpoint of 'rl_model' in {tmp_path} is damaged: `obscodec inspect {of_buffer}` tells where, and "
        f"load({str(of_buffer)!r}, salvage=True) of the class of the buffer loads what is intact"
    )
    with pytest.raises(SnapshotError, match="gone is no folder: name the one that was given to SnapshotCallback"):
        resume(DQN, tmp_path / "gone", cart_pole(False))
    with pytest.raises(SnapshotError) as caught:
        resume(DQN, tmp_path, cart_pole(False), name_prefix="other")
    assert str(caught.value) == (
        f"{tmp_path} has no complete checkpoint of 'other': models of the steps [], buffers of []"
    )


@pytest.mark.parametrize("mixed", ["rl_model_200_steps.zip", "rl_model_vecnormalize_200_steps.pkl", "the buffer"])
def test_files_of_two_trainings_are_not_mixed(mixed, tmp_path):
    """Such as those of a backup that was restored in part."""
    for seed, name in enumerate(("one", "other")):
        model = dqn(cart_pole(True))
        model.set_random_seed(seed)
        model.learn(200, callback=SnapshotCallback(50, tmp_path / name))
    told = "or was not written with generation 200 in .*: an earlier checkpoint is loaded"
    if mixed == "the buffer":  # all of it, which is intact
        shutil.rmtree(tmp_path / "one/rl_model_replay_buffer")
        shutil.copytree(tmp_path / "other/rl_model_replay_buffer", tmp_path / "one/rl_model_replay_buffer")
        with warnings.catch_warnings(record=True, action="always") as warned, pytest.raises(SnapshotError):
            resume(DQN, tmp_path / "one", cart_pole(False), device="cpu")
        assert re.search(told, str(warned[0].message))
    else:
        shutil.copy(tmp_path / "other" / mixed, tmp_path / "one")
        with pytest.warns(UserWarning, match=f"{mixed} is damaged, {told}"):
            assert resume(DQN, tmp_path / "one", cart_pole(False), device="cpu").step == 100


def test_a_training_does_not_go_on_without_its_statistics(tmp_path):
    dqn(cart_pole(True)).learn(200, callback=SnapshotCallback(50, tmp_path))
    for file in tmp_path.glob("*.pkl"):
        file.unlink()
    with (
        pytest.warns(UserWarning, match="was written with a VecNormalize, which is missing"),
        pytest.raises(SnapshotError),
    ):
        resume(DQN, tmp_path, cart_pole(False), device="cpu")


def test_another_training_does_not_write_over_checkpoints(tmp_path):
    dqn(cart_pole(False)).learn(200, callback=SnapshotCallback(50, tmp_path))
    models = {file.name: file.read_bytes() for file in tmp_path.glob("*.zip")}
    with pytest.raises(
        SnapshotError, match="has generation 200 already, and what is written as generation 100 was not"
    ):
        dqn(cart_pole(False)).learn(200, callback=SnapshotCallback(50, tmp_path))
    assert {file.name: file.read_bytes() for file in tmp_path.glob("*.zip")} == models


def test_a_callback_refuses_an_algorithm_without_a_compressed_replay_buffer(tmp_path):
    with pytest.raises(TypeError, match=r"^DQN has no compressed replay buffer: give it one"):
        DQN("MlpPolicy", "CartPole-v1").learn(10, callback=SnapshotCallback(5, tmp_path))
    with pytest.raises(TypeError, match=r"^PPO has no replay buffer: SB3's CheckpointCallback saves all that it has$"):
        PPO("MlpPolicy", "CartPole-v1", device="cpu").learn(10, callback=SnapshotCallback(5, tmp_path))


def test_a_model_never_meets_the_buffer_of_another_training(tmp_path, monkeypatch):
    """A training that goes on from an earlier step ends between its model and its buffer of a later one."""
    dqn(cart_pole(False)).learn(300, callback=SnapshotCallback(50, tmp_path))
    (tmp_path / "rl_model_300_steps.zip").unlink()
    resumed = resume(DQN, tmp_path, cart_pole(False), device="cpu")
    assert resumed.step == 200

    def write(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Snapshot, "write", write)
        with pytest.raises(KeyboardInterrupt):
            resumed.model.learn(100, callback=SnapshotCallback(50, tmp_path), reset_num_timesteps=False)
    assert (tmp_path / "rl_model_300_steps.zip").exists()
    assert resume(DQN, tmp_path, cart_pole(False), device="cpu").step == 200


def test_generations_and_salvage(tmp_path):
    buffer = CompressedReplayBuffer(200 * N_ENVS, IMAGE, spaces.Discrete(4), "cpu", n_envs=N_ENVS, codec="raw")
    rng = np.random.default_rng(0)
    with Snapshot(tmp_path) as snapshot:
        fill(buffer, 0, 100, rng)
        snapshot.write(buffer)
        fill(buffer, 100, 300, rng)
        snapshot.write(buffer)
    assert CompressedReplayBuffer.load(tmp_path, generation=1, device="cpu").pos == 100
    check_equal(buffer, CompressedReplayBuffer.load(tmp_path, mmap=True, device="cpu"))
    (file,) = tmp_path.glob("blocks-00000002-*.segment")
    content = bytearray(file.read_bytes())
    content[100_000] ^= 1
    file.write_bytes(content)
    salvaged = CompressedReplayBuffer.load(tmp_path, salvage=True, device="cpu")
    rows, envs = salvaged.lost.T
    assert 10 < len(rows) < 200
    kept = np.ones((200, N_ENVS), np.bool_)
    kept[rows, envs] = False
    for name in ("observations", "next_observations"):
        found, expected = getattr(salvaged.buffer, name)[:], getattr(buffer, name)[:]
        np.testing.assert_array_equal(found[kept], expected[kept])


@pytest.mark.parametrize("kind", [CompressedReplayBuffer, CompressedDictReplayBuffer])
def test_inspect_shows_the_arrays_of_a_buffer(kind, tmp_path):
    space = BOTH if kind is CompressedDictReplayBuffer else IMAGE
    buffer = kind(200 * N_ENVS, space, spaces.Discrete(4), device="cpu", n_envs=N_ENVS)
    fill(buffer, 0, 200, np.random.default_rng(0))
    buffer.save(tmp_path)
    (report,) = inspect_snapshot(tmp_path)
    assert (report.kind, report.damage) == (kind.__name__, [])
    assert (report.n_steps, report.n_envs) == (200, N_ENVS)
    fields = {field.name: field for field in report.fields}
    image = BOTH["image"] if space == BOTH else IMAGE
    assert fields["image" if space == BOTH else "observations"][1:3] == (f"uint8{[*image.shape]}", "delta-rle|lz4:6")
    assert report.other_nbytes > 200 * N_ENVS


def test_a_report_is_of_what_was_saved_though_a_thread_writes(tmp_path, monkeypatch):
    buffer = CompressedReplayBuffer(50, IMAGE, spaces.Discrete(4), device="cpu")
    state, writers = CompressedReplayBuffer.state, []

    def add(n):
        for t in range(n):
            obs = observations(t)[:1]
            buffer.add(obs, obs, np.zeros((1, 1)), np.zeros(1), np.zeros(1), [{}])

    def state_while_a_thread_writes(self):
        taken = state(self)
        writers.append(threading.Thread(target=add, args=(5,)))
        writers[0].start()
        writers[0].join(0.3)
        return taken

    add(10)
    with monkeypatch.context() as patch:
        patch.setattr(CompressedReplayBuffer, "state", state_while_a_thread_writes)
        buffer.save(tmp_path)
    writers[0].join()
    (report,) = inspect_snapshot(tmp_path)
    assert (report.n_steps, buffer.pos) == (10, 15)


def first_items(path, n):
    """The oldest ``n`` steps of the first environment of a snapshot, by field."""
    with opened_steps(path) as steps:
        oldest = np.arange(min(n, steps.n))
        return {name: steps.read(name, oldest, np.zeros_like(oldest)) for name in steps.layouts}


@pytest.mark.parametrize("n_steps", [30, 70])
@pytest.mark.parametrize("kind", [CompressedReplayBuffer, CompressedDictReplayBuffer])
def test_the_first_items_are_the_oldest_steps_in_their_order(kind, n_steps, tmp_path):
    space = BOTH if kind is CompressedDictReplayBuffer else IMAGE
    buffer = kind(50 * N_ENVS, space, spaces.Discrete(4), device="cpu", n_envs=N_ENVS)
    fill(buffer, 0, n_steps, np.random.default_rng(0))
    buffer.save(tmp_path)
    found, oldest = first_items(tmp_path, 20), max(0, n_steps - 50)
    for k in range(20):
        row = (oldest + k) % 50
        expected = observations(oldest + k, space)
        for key, obs in expected.items() if space == BOTH else [("", expected)]:
            np.testing.assert_array_equal(found[f"observations.{key}" if key else "observations"][k], obs[0])
        assert found["rewards"][k] == buffer.rewards[row, 0]
        assert found["actions"][k] == buffer.actions[row, 0]
    assert len(found["dones"]) == 20
    newest = (buffer.pos - 1) % 50, 0
    for name in ("dones", "timeouts"):  # the running episode is read as it was saved
        assert first_items(tmp_path, 50)[name][-1] == getattr(buffer, name)[newest]
    assert len(first_items(tmp_path, 1000)["dones"]) == min(n_steps, 50)
    if space == BOTH:
        following = [observations(oldest + k + 1, VECTOR)[0] for k in range(20)]
        np.testing.assert_array_equal(found["next_observations.vector"], following)


def test_the_first_items_of_a_rollout_that_was_read(tmp_path):
    buffer = CompressedRolloutBuffer(
        20, IMAGE, spaces.Discrete(4), device="cpu", n_envs=N_ENVS, max_bytes=8 << 20, spill=tmp_path / "spill"
    )
    for step in range(20):
        values = th.full((N_ENVS,), float(step))
        buffer.add(observations(step), np.full((N_ENVS, 1), step), np.arange(N_ENVS), np.zeros(N_ENVS), values, values)
    next(iter(buffer.get(4)))
    buffer.save(tmp_path / "saved")
    found = first_items(tmp_path / "saved", 8)
    np.testing.assert_array_equal(found["observations"], [observations(step)[0] for step in range(8)])
    np.testing.assert_array_equal(found["actions"].ravel(), np.arange(8))
    np.testing.assert_array_equal(found["rewards"].ravel(), np.zeros(8))  # of the first environment


NO_CLASS = "which is no class of obscodec_sb3: save its arrays with numpy.savez"


@pytest.mark.parametrize(
    ("kind", "what"),
    [(CompressedReplayBuffer, "has a {} without steps"), (compressed(Counted), f"has a {{}}, {NO_CLASS}")],
)
def test_what_has_no_first_items(kind, what, tmp_path):
    kind(50, IMAGE, spaces.Discrete(4), device="cpu").save(tmp_path)
    with pytest.raises(SnapshotError, match=f"{what.format(kind.__name__)}$"):
        first_items(tmp_path, 20)


def test_an_argument_that_no_buffer_takes_is_refused(tmp_path, monkeypatch):
    buffer = CompressedReplayBuffer(50, IMAGE, spaces.Discrete(4), device="cpu")
    arguments = {**buffer.arguments(), "extra": 3}
    monkeypatch.setattr(buffer, "arguments", lambda: arguments, raising=True)
    buffer.save(tmp_path)
    with pytest.raises(SnapshotError, match="that obscodec never writes: CompressedReplayBuffer got an unexpected"):
        CompressedReplayBuffer.load(tmp_path, device="cpu")
