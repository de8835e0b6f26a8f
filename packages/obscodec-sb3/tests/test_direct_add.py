"""The direct ways to add and to sample do what SB3's own code does, and are taken whenever they can."""

import copy
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from gymnasium import spaces
from obscodec.frames.frame_log import FrameLog
from obscodec_sb3 import CompressedNStepReplayBuffer, CompressedReplayBuffer, compressed
from obscodec_sb3.direct_add import DirectAdd
from same_samples import assert_same_samples
from stable_baselines3.common.buffers import ReplayBuffer

IMAGES = spaces.Box(0, 255, (4, 20, 20), np.uint8)
ACTIONS = {
    "discrete": spaces.Discrete(6),
    "several": spaces.MultiDiscrete([3, 4]),
    "box": spaces.Box(-1, 1, (3,), np.float32),
}
ARRAYS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
N_STEPS = 30


@pytest.fixture
def taken(monkeypatch):
    """How often each direct way was taken."""
    counts = Counter()
    add, chosen = DirectAdd.add, DirectAdd.chosen

    def counted(self, *of):
        done = add(self, *of)
        counts["add"] += done
        return done

    def sampled(self, *of):
        counts["sample"] += 1
        return chosen(self, *of)

    monkeypatch.setattr(DirectAdd, "add", counted)
    monkeypatch.setattr(DirectAdd, "chosen", sampled)
    return counts


def buffers(n_envs=1, actions="discrete", **options):
    stock_options = {name: value for name, value in options.items() if name == "handle_timeout_termination"}
    size = N_STEPS * n_envs
    stock = ReplayBuffer(size, IMAGES, ACTIONS[actions], "cpu", n_envs, **stock_options)
    ours = CompressedReplayBuffer(size, IMAGES, ACTIONS[actions], "cpu", n_envs, decide_after=8, **options)
    return stock, ours


class Player:
    def __init__(self, n_envs=1, actions="discrete"):
        self.rng, self.n_envs, self.actions = np.random.default_rng(0), n_envs, copy.deepcopy(ACTIONS[actions])
        self.actions.seed(0)
        self.obs = np.zeros((n_envs, *IMAGES.shape), np.uint8)

    def step(self, views=False):
        rng, n = self.rng, self.n_envs
        new = self.obs[:, -1:].copy()
        new[:, 0, rng.integers(20), rng.integers(20)] += 1
        obs, self.obs = self.obs, np.concatenate([self.obs[:, 1:], new], axis=1)
        pair = obs, self.obs
        if views:
            pair = tuple(np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1) for x in pair)
        done = rng.random(n) < 0.3
        infos = [{"TimeLimit.truncated": bool(rng.random() < 0.5)} if d else {} for d in done]
        action = np.stack([self.actions.sample() for _ in range(n)])
        return [*pair, action, rng.normal(size=n), done, infos]


def assert_alike(stock, ours):
    assert (stock.pos, stock.full) == (ours.pos, ours.full)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(ours, name)[:], getattr(stock, name), err_msg=name)
    if stock.size():
        assert_same_samples(stock, ours, 7, stock.pos)


@pytest.mark.parametrize("timeouts", [True, False])
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("n_envs", [1, 3])
def test_steps_of_environments_are_added_directly(taken, n_envs, actions, timeouts):
    stock, ours = buffers(n_envs, actions, handle_timeout_termination=timeouts)
    player = Player(n_envs, actions)
    for i in range(2 * N_STEPS + 5):
        step = player.step(views=i % 3 == 1)
        if i % 5 == 0:
            step[3], step[4] = step[3].astype(np.float32), step[4].astype(np.float32)
        for buffer in (stock, ours):
            buffer.add(*step)
        assert_alike(stock, ours)
    assert taken["add"] > 2 * N_STEPS - 10
    assert taken["sample"] > 2 * N_STEPS - 10


def changed(i, value):
    def change(step):
        step[i] = value(step[i])

    return change


ODD = {
    "lists of actions": changed(2, lambda x: x.tolist()),
    "a list of rewards": changed(3, lambda x: x.tolist()),
    "numbers in text": changed(3, lambda x: x.astype("U")),
    "wide observations": changed(0, lambda x: x.astype(np.int64)),
    "observations that do not fit": changed(1, lambda x: x + 0.5),
    "rows of rewards": changed(3, lambda x: x[None]),
    "masked dones": changed(4, np.ma.masked_array),
    "no infos": changed(5, lambda x: x[1:]),
    "infos that are none": changed(5, lambda x: [None] * len(x)),
    "another shape": changed(0, lambda x: x[:, :, 1:]),
    "too many actions": changed(2, lambda x: np.zeros(9, int)),
    "a torch tensor": changed(0, torch.from_numpy),
}


@pytest.mark.parametrize("what", ODD)
def test_other_arguments_are_looked_at_as_ever(taken, what):
    _, ours = buffers(2)
    player = Player(2)
    for _ in range(20):
        ours.add(*player.step())
    _, plain = buffers(2)
    plain._new_direct = lambda: None  # as SB3 alone adds
    player = Player(2)
    for _ in range(20):
        plain.add(*player.step())
    n_taken, ends = taken["add"], []
    step = player.step()
    ODD[what](step)
    for buffer in (plain, ours):
        try:
            buffer.add(*step)
        except Exception as error:
            ends.append((type(error), str(error)))
    assert len(ends) in (0, 2)
    assert len(set(ends)) <= 1
    assert taken["add"] == n_taken
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(ours, name)[:], getattr(plain, name)[:], err_msg=name)


@pytest.mark.parametrize("way", ["pickle", "deepcopy", "other rewards", "other size"])
def test_a_buffer_that_changed_goes_on(taken, way):
    stock, ours = buffers(2)
    player = Player(2)
    for i in range(60):
        if i == 20:
            before = taken["add"]
            if way == "pickle":
                ours = pickle.loads(pickle.dumps(ours))
            elif way == "deepcopy":
                ours = copy.deepcopy(ours)
            elif way == "other rewards":
                for buffer in (stock, ours):
                    buffer.rewards = buffer.rewards * 2
            else:
                for buffer in (stock, ours):
                    buffer.reset()
        step = player.step()
        for buffer in (stock, ours):
            buffer.add(*step)
        assert_alike(stock, ours)
    assert taken["add"] - before > 20


def test_a_class_of_a_user_is_asked(taken):
    class Mine(CompressedReplayBuffer):
        n_added = n_read = 0

        def add(self, *args):
            self.n_added += 1
            super().add(*args)

        def _normalize_obs(self, obs, env=None):
            self.n_read += 1
            return super()._normalize_obs(obs, env)

    ours, player = Mine(N_STEPS, IMAGES, ACTIONS["discrete"], "cpu", decide_after=8), Player()
    for _ in range(20):
        ours.add(*player.step())
    ours.sample(4)
    assert (ours.n_added, ours.n_read) == (20, 2)
    assert taken["sample"] == 0


def test_actions_rewards_and_flags_take_a_byte_each():
    class Mine(ReplayBuffer):
        def add(self, *args):
            super().add(*args)
            self.rewards[self.pos - 1][0] += 1  # only numpy's own arrays let a part be assigned to in this way

    ours, mine = (x(N_STEPS, IMAGES, ACTIONS["discrete"]) for x in (CompressedReplayBuffer, compressed(Mine)))
    player = Player()
    for _ in range(5):
        step = player.step()
        step[3] = np.ones(1)
        ours.add(*step)
        mine.add(*step)
    assert [getattr(ours, name).memory_bytes for name in ARRAYS[2:]] == [N_STEPS] * 4
    np.testing.assert_array_equal(mine.rewards, ours.rewards + (ours.rewards > 0))


def test_steps_in_a_row_are_sampled_by_sb3(taken):
    ours, player = CompressedNStepReplayBuffer(N_STEPS, IMAGES, ACTIONS["discrete"], n_steps=3, gamma=0.9), Player()
    for _ in range(20):
        ours.add(*player.step())
    ours.sample(4)
    assert taken["sample"] == 0


@pytest.mark.parametrize("raised", [MemoryError, KeyboardInterrupt])
def test_a_step_that_can_not_be_stored_or_is_interrupted_behind_that_changes_no_array(monkeypatch, raised):
    _, ours = buffers(2)
    player = Player(2)
    for _ in range(N_STEPS + 8):
        ours.add(*player.step())
    before, pos = {name: getattr(ours, name)[:].copy() for name in ARRAYS}, ours.pos
    write = FrameLog.write_step

    def fails(*of):
        if raised is KeyboardInterrupt:
            write(*of)
        raise raised("here")

    with monkeypatch.context() as patch:
        patch.setattr(FrameLog, "write_step", fails)
        with pytest.raises(raised, match="here"):
            ours.add(*player.step())
    for name, array in before.items():
        np.testing.assert_array_equal(getattr(ours, name)[:], array, err_msg=name)
    assert ours.pos == pos


def test_transitions_are_added_to_a_buffer_of_a_gpu_that_is_not_here():
    """As a model is loaded on a machine without one, with the device that it had."""
    space = spaces.Box(0, 255, (4, 28, 28), np.uint8)
    buffer = CompressedReplayBuffer(20, space, spaces.Discrete(2), codec="delta-rle", buffer_device="cpu")
    buffer.device = torch.device("cuda")
    for step in range(30):
        obs = np.full((1, 4, 28, 28), step, np.uint8)
        buffer.add(obs, obs, np.array([0]), np.array([float(step)]), np.array([False]), [{}])
    assert buffer.size() == 20
