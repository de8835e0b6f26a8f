"""Episodes that a caller ends or takes out, and those that were running when a buffer was saved."""

import re

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from obscodec import DTypeError, ShapeError, SlotError
from obscodec_sb3 import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
    SnapshotCallback,
    resume,
)
from same_samples import assert_same_samples
from stable_baselines3 import SAC
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

IMAGE, ONE = spaces.Box(0, 255, (24, 24, 1), np.uint8), spaces.Box(-1e9, 1e9, (1,), np.float64)
REPLAY = [CompressedReplayBuffer, CompressedDictReplayBuffer, CompressedNStepReplayBuffer]


def image(step):
    return np.full((24, 24, 1), step % 251, np.uint8)


def new_buffer(cls, size=60, n_envs=1, **options):
    is_dict = cls is CompressedDictReplayBuffer
    return cls(size * n_envs, spaces.Dict(a=IMAGE) if is_dict else IMAGE, ONE, "cpu", n_envs, codec="zstd:1", **options)


def add(buffer, step, done=False, reward=None):
    """Add transitions whose actions are ``1000 * environment + step``."""
    n = buffer.n_envs
    numbers = 1000 * np.arange(n) + step
    obs, after = (np.stack([image(k + ahead) for k in numbers]) for ahead in (0, 1))
    if isinstance(buffer.observation_space, spaces.Dict):
        obs, after = {"a": obs}, {"a": after}
    reward = np.ones(n) if reward is None else reward
    buffer.add(obs, after, numbers[:, None], reward, np.broadcast_to(done, n).copy(), [{}] * n)


def sampled(buffer, n=300, env=None):
    batch = buffer.sample(n, env)
    obs, after = batch.observations, batch.next_observations
    if isinstance(obs, dict):
        obs, after = obs["a"], after["a"]
    steps = batch.actions[:, 0].numpy().astype(int)
    np.testing.assert_array_equal(obs[:, 0, 0, 0].numpy(), steps % 251)
    return steps, after[:, 0, 0, 0].numpy(), batch


@pytest.mark.parametrize("ended_by", ["end_episodes", "load"])
@pytest.mark.parametrize("timeouts", [True, False])
def test_n_step_returns_do_not_cross_the_end_of_an_episode(ended_by, timeouts, tmp_path):
    buffer = new_buffer(CompressedNStepReplayBuffer, n_steps=3, gamma=0.5, handle_timeout_termination=timeouts)
    for step in range(20):
        add(buffer, step)
    if ended_by == "load":
        buffer.save(tmp_path)
        buffer = CompressedNStepReplayBuffer.load(tmp_path, device="cpu")
    else:
        buffer.end_episodes()
    for step in range(100, 120):
        add(buffer, step)
    steps, after, batch = sampled(buffer)
    for row, step in enumerate(steps.tolist()):
        n = min(3, (20 if step < 100 else 120) - step)
        assert after[row] == (step + n) % 251
        assert batch.rewards[row, 0] == sum(0.5**k for k in range(n))
        assert batch.discounts[row, 0] == 0.5**n
    assert not batch.dones.any()  # truncations: the value of what follows counts


def test_ending_an_episode_changes_no_sample_of_single_transitions():
    buffers = [new_buffer(CompressedReplayBuffer, n_envs=2) for _ in range(2)]
    for buffer in buffers:
        for step in range(20):
            add(buffer, step)
    buffers[0].end_episodes(1)
    assert_same_samples(*buffers, 200)
    assert (buffers[0].timeouts[19].tolist(), buffers[0].dones[19].tolist()) == ([0, 1], [0, 1])
    buffers[0].end_episodes()
    assert buffers[0].timeouts[19].tolist() == [1, 1]


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("cls", REPLAY)
def test_a_seam_goes_with_its_transition(cls, loaded, tmp_path):
    """SB3 writes no timeouts then: what takes the place of a transition that ended an episode may be a termination."""
    buffer = new_buffer(cls, 10, handle_timeout_termination=False)
    for step in range(10):
        add(buffer, step)
    buffer.end_episodes()
    if loaded:
        buffer.save(tmp_path)
        buffer = cls.load(tmp_path, device="cpu")
    for step in range(10, 20):
        with pytest.raises(ShapeError):
            add(buffer, step, reward=np.zeros(5))
        assert bool(buffer.timeouts[9, 0]) == (step < 20)
        add(buffer, step, done=step == 19)
    assert not buffer.timeouts[:].any()
    steps, _, batch = sampled(buffer, 200)
    n = 3 if cls is CompressedNStepReplayBuffer else 1
    np.testing.assert_array_equal(batch.dones[:, 0].numpy(), steps + n >= 20)


@pytest.mark.parametrize("cls", REPLAY)
@pytest.mark.parametrize("n_before", [30, 60, 95, 400])
def test_a_running_episode_is_taken_out(cls, n_before):
    buffer, kept = new_buffer(cls), []
    for step in range(n_before):
        add(buffer, step, done=step % 10 == 9 or step == n_before - 1)
        kept.append(step)
    kept = kept[-60:]
    for round_ in range(4):
        begin = 1000 * (round_ + 1)
        for step in range(begin, begin + 7):
            add(buffer, step)
        buffer.drop_episode()
        kept = kept[max(0, len(kept) + 7 - 60) :] if buffer.full else kept
        assert buffer.size() == len(kept)
        steps, _, _ = sampled(buffer, 600)
        assert set(steps.tolist()) == set(kept)
        for step in range(begin + 500, begin + 503):
            add(buffer, step, done=step == begin + 502)
            kept.append(step)
        kept = kept[-60:]
        assert set(sampled(buffer, 900)[0].tolist()) == set(kept)


def test_the_memory_of_an_episode_that_was_taken_out_is_free():
    buffer = new_buffer(CompressedReplayBuffer)
    for step in range(20):
        add(buffer, step, done=step == 9)
    before = buffer.observation_store.stats().n_tensors
    for _ in range(2):  # nothing runs the second time
        buffer.drop_episode()
        assert buffer.observation_store.stats().n_tensors <= min(20, before - 10)
    assert buffer.size() == 10
    buffer.reset()
    with pytest.raises(SlotError):
        buffer.sample(3)
    buffer.drop_episode()


def test_a_batch_that_was_drawn_ahead_has_no_step_that_was_taken_out():
    buffer = new_buffer(CompressedReplayBuffer, prefetch=True)
    for step in range(20):
        add(buffer, step, done=step == 3)
    buffer.sample(64)
    buffer.drop_episode()
    assert sampled(buffer, 64)[0].max() <= 3


def codes(buffer, n=2000, env=None):
    """Which transitions are sampled, ``1000 * environment + step``; what follows them is checked to be theirs."""
    found, after, batch = sampled(buffer, n, env)
    if env is None:
        n_step = np.round(batch.rewards[:, 0].numpy()).astype(int)  # each step has reward 1
        np.testing.assert_array_equal(after, (found + n_step) % 251)
    return found


SEVERAL = [(cls, {}) for cls in REPLAY]
SEVERAL += [(CompressedReplayBuffer, {"prefetch": True}), (CompressedReplayBuffer, {"optimize_memory_usage": True})]
SEVERAL += [(CompressedNStepReplayBuffer, {"n_steps": 3, "gamma": 1.0, "prefetch": True})]


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(("cls", "options"), SEVERAL)
def test_the_episode_of_one_of_several_environments_is_taken_out(cls, options, saved, tmp_path):
    buffer, expected = new_buffer(cls, 40, n_envs=3, **options), {}
    n_left_out = 3 * bool(options.get("optimize_memory_usage"))
    for round_ in range(6):
        for step in range(13 * round_, 13 * round_ + 13):
            add(buffer, step, [step % 4 == 3, False, True])
            expected[step] = {step, 1000 + step, 2000 + step}
        if round_ % 2 == 0:
            buffer.drop_episode(1)
            buffer.drop_episode(1)  # nothing runs
            buffer.drop_episode(2)
            for step in list(expected):
                expected[step] -= {1000 + k for k in range(26 * (round_ // 2) - 13, 13 * round_ + 13)}
        expected = dict(list(expected.items())[-40:])
        if saved:
            buffer.save(tmp_path / str(round_))
            options = {"prefetch": buffer._prefetch}
            buffer = cls.load(tmp_path / str(round_), device="cpu", continue_episodes=True, **options)
        if buffer._prefetch:
            codes(buffer, 4000)  # drawn before
        rows = list(expected.values())[n_left_out // 3 * buffer.full :]
        found = codes(buffer, 4000)
        assert set(found.tolist()) == set().union(*rows)
    counts = np.unique(np.concatenate([codes(buffer, 4000) for _ in range(5)]), return_counts=True)[1]
    assert 0.5 < counts.min() / counts.mean() < counts.max() / counts.mean() < 1.5


def test_samples_are_normalized_where_transitions_were_taken_out():
    made = DummyVecEnv([lambda: BitFlippingEnv(n_bits=7, continuous=True, max_steps=7)] * 2)
    buffer = new_buffer(CompressedReplayBuffer, n_envs=2)
    for step in range(20):
        add(buffer, step, step == 9)
    buffer.drop_episode(0)
    normalize = VecNormalize(made, norm_obs=False, norm_reward=True)
    assert set(codes(buffer, env=normalize).tolist()) == {*range(10), *range(1000, 1020)}


def test_an_environment_may_have_nothing_left():
    buffer = new_buffer(CompressedReplayBuffer, n_envs=2)
    for step in range(20):
        add(buffer, step)
    buffer.drop_episode(0)
    assert set(codes(buffer).tolist()) == set(range(1000, 1020))
    buffer.end_episodes(0)  # none is running
    assert not buffer.dones[:, 0].any()
    with pytest.raises(SlotError, match="the newest step of environment 1 ends no episode"):
        buffer.with_envs(1)
    buffer.end_episodes()
    assert set(codes(buffer.with_envs(1)).tolist()) == set(range(1000, 1020))
    buffer = new_buffer(CompressedReplayBuffer, n_envs=2)
    add(buffer, 0)
    buffer.drop_episode(0)
    buffer.drop_episode(1)
    with pytest.raises(SlotError, match=r"^no transition is left: add one before you sample$"):
        buffer.sample(1)
    add(buffer, 1)
    with pytest.raises(ShapeError):
        add(buffer, 2, reward=np.zeros(5))
    assert set(codes(buffer).tolist()) == {1, 1001}
    buffer.reset()
    add(buffer, 2)
    assert set(codes(buffer).tolist()) == {2, 1002}


class ReadsRows(CompressedReplayBuffer):
    def _get_samples(self, batch_inds, env=None):
        return super()._get_samples(batch_inds, env)


def test_a_class_that_reads_rows_itself_keeps_the_transitions_of_single_environments():
    buffer = new_buffer(ReadsRows, n_envs=2)
    add(buffer, 0)
    text = (
        r"^drop_episode leaves transitions out, and this class samples in its own way, .*: call end_episodes instead$"
    )
    with pytest.raises(ValueError, match=text):
        buffer.drop_episode(1)
    assert set(codes(buffer).tolist()) == {0, 1000}
    buffer = new_buffer(ReadsRows)
    add(buffer, 0, done=True)
    add(buffer, 1)
    buffer.drop_episode()
    assert set(codes(buffer).tolist()) == {0}


class HasAHeap(CompressedReplayBuffer):
    def __init__(self, *args, **kwargs):
        self.heap = []
        super().__init__(*args, **kwargs)


def test_an_attribute_is_not_named_as_an_option():
    text = r"^heap is an option of a HasAHeap: give your own attribute another name$"
    with pytest.raises(AttributeError, match=text):
        new_buffer(HasAHeap)


@pytest.mark.parametrize("cls", REPLAY)
@pytest.mark.parametrize("prefetch", [False, True])
def test_a_buffer_with_nothing_left_is_empty(cls, prefetch):
    buffer = new_buffer(cls, prefetch=prefetch)
    for _ in range(2):
        with pytest.raises(SlotError, match=r"^the buffer is empty: add a transition before you sample$"):
            buffer.sample(3)
        add(buffer, 0)
        buffer.drop_episode()


def test_a_refused_transition_does_not_bring_back_what_was_taken_out():
    buffer = new_buffer(CompressedReplayBuffer, 4, n_envs=2)
    for step in range(4):
        add(buffer, step)
    buffer.drop_episode(0)
    with pytest.raises(ShapeError):
        add(buffer, 4, reward=np.zeros(5))
    assert set(codes(buffer).tolist()) == set(range(1000, 1004))
    add(buffer, 4)
    assert set(codes(buffer).tolist()) == {4, *range(1001, 1005)}


def env(n_bits=7):
    return DummyVecEnv([lambda: BitFlippingEnv(n_bits=n_bits, continuous=True, max_steps=n_bits)])


def her(n_envs=2, size=50):
    made = DummyVecEnv([lambda: BitFlippingEnv(n_bits=7, continuous=True, max_steps=7)] * n_envs)
    space, actions = made.observation_space, made.action_space
    return CompressedHerReplayBuffer(size * n_envs, space, actions, made, "cpu", n_envs, codec="zstd:1")


def add_goals(buffer, step, done):
    space = buffer.observation_space
    obs = {key: np.full((buffer.n_envs, *of.shape), step % 2, of.dtype) for key, of in space.items()}
    action = np.zeros((buffer.n_envs, 7))
    buffer.add(obs, obs, action, np.full(buffer.n_envs, step), done, [{}] * buffer.n_envs)


def test_her_takes_the_episode_of_one_environment_out():
    buffer = her()
    for step in range(20):
        add_goals(buffer, step, np.array([step == 9, step == 4]))
    buffer.drop_episode(1)
    buffer.end_episodes(0)
    assert (buffer.ep_length > 0).sum(axis=0).tolist() == [20, 5]
    for step in range(20, 24):
        add_goals(buffer, step, np.array([step == 23] * 2))
    assert buffer.ep_length[20:24].tolist() == [[4, 4]] * 4
    assert buffer.ep_length[5:20, 1].tolist() == [0] * 15
    assert buffer.ep_length[10:20, 0].tolist() == [10] * 10
    buffer.sample(100)


def test_resume_ends_the_episode_that_was_running(tmp_path):
    options = {"buffer_size": 100, "device": "cpu", "seed": 0, "learning_starts": 500}
    model = SAC("MultiInputPolicy", env(), replay_buffer_class=CompressedHerReplayBuffer, **options)
    model.learn(53, callback=SnapshotCallback(53, str(tmp_path)))
    for continued, longest in ((False, 7), (True, 10)):
        resumed = resume(SAC, tmp_path, env(), continue_episodes=continued).model
        resumed.learn(20, reset_num_timesteps=False)
        assert resumed.replay_buffer.ep_length.max() == longest


@pytest.mark.parametrize("saved", [False, True])
def test_the_next_step_of_a_rollout_begins_an_episode(saved, tmp_path):
    buffer = CompressedRolloutBuffer(4, IMAGE, ONE, "cpu", n_envs=2)
    for step in range(4):
        if step == 2:
            buffer.end_episodes(1)
            if saved:
                buffer.save(tmp_path)
                buffer = CompressedRolloutBuffer.load(tmp_path, device="cpu", continue_episodes=True)
        starts = np.zeros(2, np.float32)
        obs = np.stack([image(step)] * 2)
        buffer.add(obs, np.zeros((2, 1)), np.zeros(2), starts, th.zeros(2), th.zeros(2))
        assert not starts.any()
    assert buffer.episode_starts.tolist() == [[0, 0], [0, 0], [0, 1], [0, 0]]


def test_what_ending_refuses():
    buffer = new_buffer(CompressedReplayBuffer, n_envs=2)
    add(buffer, 0)
    for call in (buffer.end_episodes, buffer.drop_episode):
        with pytest.raises(ShapeError, match=r"^environments must be 0 to 1, got "):
            call(2)
        with pytest.raises(DTypeError, match=r"^environments are integers, got "):
            call("1")
    with pytest.raises(ShapeError, match=r"^there are 2 environments: name one, 0 to 1$"):
        buffer.drop_episode()


@pytest.mark.parametrize("cls", [*REPLAY, CompressedRolloutBuffer])
@pytest.mark.parametrize("name", ["buffer_size", "n_envs", "observation_space", "action_space", "obs_shape"])
def test_settings_stay_as_they_are(cls, name):
    buffer = CompressedRolloutBuffer(10, IMAGE, ONE, "cpu") if cls is CompressedRolloutBuffer else new_buffer(cls)
    before = getattr(buffer, name)
    with pytest.raises(
        AttributeError,
        match=rf"^{name} of a {cls.__name__} can't be changed, it is .*: (make another buffer|buffer.with_envs)",
    ):
        setattr(buffer, name, before)
    assert getattr(buffer, name) == before


@pytest.mark.parametrize("cls", REPLAY)
@pytest.mark.parametrize("given", [False, True])
def test_the_layout_of_sb3_stays_that_of_its_other_mode(cls, given):
    """With True, SB3 would take the next observation from a row that another episode may begin with."""
    space = {"optimize_memory_usage": given} if cls is CompressedReplayBuffer else {}
    buffer = cls(10, IMAGE, ONE, "cpu", **space) if space else new_buffer(cls)
    with pytest.raises(
        AttributeError, match=rf"^optimize_memory_usage of a {cls.__name__} can't be changed, it is Fals"
    ):
        buffer.optimize_memory_usage = True
    assert buffer.optimize_memory_usage is False


@pytest.mark.parametrize("cls", [CompressedReplayBuffer, CompressedRolloutBuffer])
def test_options_can_be_read_and_stay(cls, tmp_path):
    options = {"codec": "zstd:1", "threads": 1, "prefetch": True, "max_bytes": 9 << 20, "spill": str(tmp_path)}
    defaults = {"frame_stack": None, "budget": None, "min_nbytes": None, "decide_after": None, "block_frames": None}
    buffer = cls(10, IMAGE, ONE, "cpu", **options)
    for name, value in {**options, **defaults, "buffer_device": "cpu", "heap": "device"}.items():
        assert getattr(buffer, name) == value
        text = rf"^{name} of a {cls.__name__} can't be changed, it is {re.escape(repr(value))}: make another one$"
        with pytest.raises(AttributeError, match=text):
            setattr(buffer, name, value)
        assert getattr(buffer, name) == value


def test_the_oldest_transition_is_drawn_where_dropped_ones_are_left_out():
    """With ``optimize_memory_usage``, SB3 leaves the oldest one out, which is one of these then."""
    buffer = new_buffer(CompressedReplayBuffer, 3, optimize_memory_usage=True)
    for step in range(5):
        add(buffer, step, done=step == 2)
    buffer.drop_episode()
    assert set(sampled(buffer, 50)[0].tolist()) == {2}


def test_a_goal_buffer_without_a_running_episode_is_laid_out_for_other_environments():
    buffer = her()
    for step in range(20):
        add_goals(buffer, step, np.array([step == 9, step == 19]))
    buffer.drop_episode(0)
    assert buffer.with_envs(1).ep_length.astype(bool).sum() == 30


def test_an_end_that_was_interrupted_is_done_again():
    buffer = new_buffer(CompressedReplayBuffer)
    add(buffer, 0)
    buffer.timeouts[0, 0] = 1  # as an interrupt before ``dones`` leaves it
    buffer.end_episodes()
    assert (buffer.dones[0, 0], buffer.timeouts[0, 0]) == (1, 1)
