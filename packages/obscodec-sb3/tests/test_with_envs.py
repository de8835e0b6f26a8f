"""The transitions of a buffer for another number of environments, against a list of what its episodes are."""

import gc
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from gymnasium import spaces
from obscodec import DTypeError
from obscodec_sb3 import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    compressed,
)
from stable_baselines3.common.buffers import ReplayBuffer

SIZE = 40
WAYS = [(2, 4), (4, 2), (3, 2), (1, 5), (3, 3)]
IMAGE, ACTION = spaces.Box(0, 255, (12, 12, 1), np.uint8), spaces.Box(-1e9, 1e9, (1,), np.float64)
GOALS = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), IMAGE))
SPACES = {CompressedDictReplayBuffer: spaces.Dict(a=IMAGE), CompressedHerReplayBuffer: GOALS}
REPLAY = [CompressedReplayBuffer, CompressedDictReplayBuffer, CompressedNStepReplayBuffer, CompressedHerReplayBuffer]


class Reward:
    """An environment that computes rewards from goals: how far they are apart."""

    def env_method(self, name, achieved, desired, infos, **_):
        assert name == "compute_reward"
        return [(number(achieved) - number(desired)).astype(np.float32)]


class Aged(ReplayBuffer):
    """A buffer of a user, with an array and a number of its own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.n_adds, self.ages = 0, np.zeros((self.buffer_size, self.n_envs), np.int64)

    def add(self, *args):
        self.ages[self.pos] = args[2][:, 0]
        self.n_adds += 1
        super().add(*args)


def images(numbers):
    numbers = np.asarray(numbers)
    made = np.zeros((*numbers.shape, 12, 12, 1), np.uint8)
    made[..., 0, 0, 0], made[..., 0, 1, 0] = numbers % 251, numbers // 251
    return made


def number(images):
    pixels = np.asarray(images, np.int64)
    return pixels[..., 0, 0, 0] + 251 * pixels[..., 0, 1, 0]


class Played:
    """A buffer whose actions are numbers of transitions, and for each its episode and its place there."""

    def __init__(self, cls, n_envs, seed=0, **options):
        options |= {"env": Reward()} if cls is CompressedHerReplayBuffer else {}
        options |= {"n_steps": 3, "gamma": 0.5} if cls is CompressedNStepReplayBuffer else {}
        space = SPACES.get(cls, IMAGE)
        self.buffer = cls(SIZE * n_envs, space, ACTION, device="cpu", n_envs=n_envs, codec="zstd:1", **options)
        self.rng, self.place, self.episodes, self.n = np.random.default_rng(seed), {}, [[] for _ in range(n_envs)], 0

    def step(self, n=1, p_end=0.12):
        n_envs = self.buffer.n_envs
        for _ in range(n):
            numbers = self.n + np.arange(n_envs)
            obs, after = images(numbers), images(numbers + n_envs)
            if isinstance(self.buffer.observation_space, spaces.Dict):
                obs, after = (dict.fromkeys(self.buffer.observation_space, of) for of in (obs, after))
            done = self.rng.random(n_envs) < p_end
            infos = [{"TimeLimit.truncated": bool(k % 2 and one)} for k, one in zip(numbers, done, strict=True)]
            self.buffer.add(obs, after, numbers[:, None].astype(float), numbers % 17, done, infos)
            for env in range(n_envs):
                self.episodes[env].append(int(numbers[env]))
                self.place[int(numbers[env])] = self.episodes[env], len(self.episodes[env]) - 1
                if done[env]:
                    self.episodes[env] = []
            self.n += n_envs
        return self

    def end(self):
        self.buffer.end_episodes()
        self.episodes = [[] for _ in self.episodes]
        return self


def transitions(buffer):
    """All transitions that can be sampled, by their numbers, as SB3 returns them."""
    n, n_envs = buffer.size(), buffer.n_envs
    rows = ((buffer.pos - n + np.arange(n)) % buffer.buffer_size).repeat(n_envs)
    envs = np.tile(np.arange(n_envs), n)
    obs, after = buffer.observations, buffer.next_observations
    if isinstance(obs, dict):
        obs, after = next(iter(obs.values())), next(iter(after.values()))
    if isinstance(buffer, CompressedHerReplayBuffer):
        there = buffer.ep_length[rows, envs] > 0
        rows, envs = rows[there], envs[there]
    dones = buffer.dones[rows, envs] * (1 - buffer.timeouts[rows, envs])
    columns = obs[rows, envs], after[rows, envs], buffer.actions[rows, envs], buffer.rewards[rows, envs], dones
    found = {int(action[0]): (x.tobytes(), y.tobytes(), r, d) for x, y, action, r, d in zip(*columns, strict=True)}
    assert len(found) == len(rows)
    return found


def check_samples(played, buffer, stride):
    """What SB3 samples is of one episode; ``stride`` is from a number to the next one of an episode."""
    np.random.seed(0)
    batch = buffer.sample(400)
    numbers = batch.actions[:, 0].numpy().astype(int)
    obs, after = batch.observations, batch.next_observations
    if isinstance(buffer, CompressedHerReplayBuffer):
        goals = number(obs["desired_goal"])
        for row, one in enumerate(numbers):
            episode, at = played.place[one]
            if goals[row] != one:  # a goal that was achieved later
                assert goals[row] - stride in episode[at:]
                assert batch.rewards[row] == one + stride - goals[row]
    if isinstance(obs, dict):
        obs, after = next(iter(obs.values())), next(iter(after.values()))
    np.testing.assert_array_equal(number(obs), numbers)
    if not isinstance(buffer, CompressedNStepReplayBuffer):
        np.testing.assert_array_equal(number(after), numbers + stride)
        return
    for row, one in enumerate(numbers):
        episode, at = played.place[one]
        n = round(-np.log2(batch.discounts[row, 0].item()))
        following = episode[at : at + n]
        assert len(following) == n
        assert number(after)[row] == following[-1] + stride
        assert batch.rewards[row, 0] == np.float32(sum(0.5**k * (one % 17) for k, one in enumerate(following)))


@pytest.mark.parametrize("cls", REPLAY)
@pytest.mark.parametrize(("n_envs", "n_after"), WAYS)
@pytest.mark.parametrize("n_steps", [0, 7, 130])
def test_the_same_transitions_are_sampled(cls, n_envs, n_after, n_steps):
    timeouts = (REPLAY.index(cls) + WAYS.index((n_envs, n_after)) + n_steps // 7) % 2 == 0
    played = Played(cls, n_envs, n_steps, handle_timeout_termination=timeouts).step(n_steps).end()
    buffer = played.buffer
    before = transitions(buffer)
    n_left = len(before) % n_after
    text = f"the oldest {n_left} are left out, {len(before) - n_left} stay"
    with pytest.warns(UserWarning, match=text) if n_left else nullcontext():
        other = buffer.with_envs(n_after)
    assert (other.n_envs, other.buffer_size) == (n_after, -(-SIZE * n_envs // n_after))
    assert type(other) is type(buffer)
    after = transitions(other)
    assert after == {one: before[one] for one in after}
    assert len(after) == len(before) - n_left
    left = [one // n_envs for one in before.keys() - after.keys()]
    assert max(left, default=0) <= min((one // n_envs for one in after), default=n_steps)
    assert transitions(buffer) == before
    if after:
        check_samples(played, other, n_envs)
    other._arrays.drop(slice(None))
    assert all(store.stats().n_tensors == 0 for store in other._arrays.own_stores)  # no reference is left


@pytest.mark.filterwarnings("ignore:.*are left out")
@pytest.mark.parametrize("cls", REPLAY)
@pytest.mark.parametrize(("n_envs", "n_after"), [(2, 4), (3, 2)])
def test_both_go_on(cls, n_envs, n_after, tmp_path):
    played = Played(cls, n_envs, 1).step(100).end()
    other = played.buffer.with_envs(n_after)
    expected = transitions(other)
    played.step(3 * SIZE)  # all of its transitions are overwritten
    gc.collect()
    assert transitions(other) == expected
    other.save(tmp_path)
    env = {"env": Reward()} if cls is CompressedHerReplayBuffer else {}
    loaded = cls.load(tmp_path, device="cpu", **env)
    assert transitions(loaded) == expected
    for buffer in (other, loaded):
        further = Played(cls, n_after, 2)
        further.n, further.buffer = 5000, buffer
        further.step(6).end()
        found = transitions(buffer)
        new = {one for one in found if one >= 5000}
        assert new == {*range(5000, further.n)}
        assert all(found[one] == expected[one] for one in found.keys() - new)
        further.step(150).end()
        found = transitions(buffer)
        assert min(found) >= 5000
        check_samples(further, buffer, n_after)


def test_arrays_and_numbers_of_a_class_of_a_user_are_taken_over():
    buffer = Played(compressed(Aged), 2).step(30).end().buffer
    other = buffer.with_envs(3)
    assert (other.n_adds, other.pos) == (30, 20)
    np.testing.assert_array_equal(other.ages[:20], other.actions[:20, :, 0])
    buffer.tree = np.zeros(7)
    with pytest.raises(DTypeError) as refused:
        buffer.with_envs(3)
    assert str(refused.value) == (
        "tree of this CompressedAged has the shape (7,), and only arrays of buffer_size and n_envs, (40, 2), can be "
        "laid out for other environments"
    )


def test_infos_are_taken_over():
    played = Played(CompressedHerReplayBuffer, 2, copy_info_dict=True).step(30).end()
    other = played.buffer.with_envs(3)
    for info, action in zip(other.infos[:20].flat, other.actions[:20].flat, strict=True):
        assert info in played.buffer.infos[int(action) // 2]
    assert other.infos[20, 0] == {}


@pytest.mark.parametrize("spills", [False, True])
def test_a_limit_of_bytes_stays(spills, tmp_path):
    options = {"max_bytes": 4 << 20, "spill": tmp_path if spills else None}
    space = spaces.Box(0, 255, (64, 64, 1), np.uint8)
    buffer = CompressedReplayBuffer(2000, space, ACTION, "cpu", n_envs=2, codec="raw", **options)
    rng, frames = np.random.default_rng(0), {}
    with nullcontext() if spills else pytest.warns(UserWarning, match="max_bytes"):
        for step in range(1000):
            obs, after = rng.integers(256, size=(2, 2, 64, 64, 1), dtype=np.uint8)
            frames |= {2 * step + env: (obs[env].tobytes(), after[env].tobytes()) for env in range(2)}
            actions = 2.0 * step + np.arange(2)[:, None]
            buffer.add(obs, after, actions, np.zeros(2), np.full(2, step % 20 == 19), [{}] * 2)
    before = transitions(buffer)
    assert (len(before) == 2000) == spills
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*are left out")
        other = buffer.with_envs(4)
    assert (other.max_bytes, other.spill) == (buffer.max_bytes, buffer.spill)
    assert other.size() == len(before) // 4
    for one, found in transitions(other).items():
        assert found == before[one]
        assert found[:2] == frames[one]
