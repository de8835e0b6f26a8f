"""Dictionaries of observations, goals and classes of users are added directly, as SB3's own code would."""

import os
from collections import Counter

import numpy as np
import pytest
from changing_codecs import change_codecs_often, finish
from faults import at_every_line
from gymnasium import spaces
from obscodec.frames.frame_log import FrameLog
from obscodec.stats import StoreStats
from obscodec_sb3 import compressed
from obscodec_sb3.direct_add import DirectAdd
from stable_baselines3.common.buffers import BaseBuffer, DictReplayBuffer, ReplayBuffer
from stable_baselines3.her import HerReplayBuffer

STEP = int(os.environ.get("OBSCODEC_FAULT_STEP", "7"))
IMAGE = spaces.Box(0, 255, (4, 20, 20), np.uint8)
VIEW = spaces.Box(0, 255, (40, 40, 1), np.uint8)
VECTOR = spaces.Box(-9, 9, (3,), np.float32)
MIXED = spaces.Dict(image=IMAGE, view=VIEW, vector=VECTOR, place=spaces.Discrete(5), flags=spaces.MultiBinary(4))
GOALS = spaces.Dict(observation=IMAGE, achieved_goal=VECTOR, desired_goal=VECTOR)
SIZE = 30


class Doubled(DictReplayBuffer):
    """A class of a user, which adds more and changes what it adds."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.bonus = np.zeros((self.buffer_size, self.n_envs), np.float32)

    def add(self, obs, next_obs, action, reward, done, infos):
        self.bonus[self.pos] = reward
        super().add(obs, next_obs, action, 2 * reward, done, infos)


class Counted(ReplayBuffer):
    def add(self, *step):
        super().add(*step)
        self.dones[self.pos - 1] = 1


class Widened(ReplayBuffer):
    """It hands on what is not stored directly."""

    def add(self, obs, next_obs, *others):
        super().add(obs.astype(np.int64), next_obs.astype(np.int64), *others)


class Env:
    num_envs = 1


CLASSES = {
    "dictionary": (DictReplayBuffer, MIXED, {}),
    "goals": (HerReplayBuffer, GOALS, {"env": Env()}),
    "user's dictionary": (Doubled, MIXED, {}),
    "user's": (Counted, IMAGE, {}),
}
ALL = {**CLASSES, "user's, in other arrays": (Widened, IMAGE, {})}


@pytest.fixture
def taken(monkeypatch):
    """How many steps were added directly."""
    counts, add = Counter(), DirectAdd.add

    def counted(self, *of):
        done = add(self, *of)
        counts["add"] += done
        return done

    monkeypatch.setattr(DirectAdd, "add", counted)
    return counts


def buffers(kind: str, n_envs: int = 1, **options: object) -> tuple[BaseBuffer, BaseBuffer]:
    stock, space, more = ALL[kind]
    arguments = {"device": "cpu", "n_envs": n_envs, **more}
    options = {"decide_after": 8, "min_nbytes": 1000, **options}
    size = SIZE * n_envs
    return stock(size, space, spaces.Discrete(6), **arguments), compressed(stock)(
        size, space, spaces.Discrete(6), **arguments, **options
    )


class Player:
    def __init__(self, kind: str, n_envs: int = 1) -> None:
        self.space, self.n_envs = ALL[kind][1], n_envs
        self.rng = np.random.default_rng(0)
        self.image = np.zeros((n_envs, 4, 20, 20), np.uint8)
        self.obs = self.observation()

    def observation(self) -> object:
        rng, n = self.rng, self.n_envs
        new = self.image[:, -1:].copy()
        new[:, 0, rng.integers(20), rng.integers(20)] += 1
        self.image = np.concatenate([self.image[:, 1:], new], axis=1)
        if self.space is IMAGE:
            return self.image
        vector = rng.normal(size=(n, 3)).astype(np.float32)
        if self.space is GOALS:
            return {"observation": self.image, "achieved_goal": vector, "desired_goal": 2 * vector}
        view = np.ascontiguousarray(new[:, 0].repeat(2, 1).repeat(2, 2)[..., None])
        place, flags = rng.integers(5, size=n), rng.integers(2, size=(n, 4)).astype(np.int8)
        return {"image": self.image, "view": view, "vector": vector, "place": place, "flags": flags, "more": 1}

    def step(self) -> list:
        obs, self.obs = self.obs, self.observation()
        done = self.rng.random(self.n_envs) < 0.3
        infos = [{"TimeLimit.truncated": bool(self.rng.random() < 0.5)} if d else {} for d in done]
        pair = [dict(x) if isinstance(x, dict) else x for x in (obs, self.obs)]  # SB3 changes what it gets
        reward = self.rng.normal(size=self.n_envs).astype(np.float32)
        return [*pair, self.rng.integers(6, size=self.n_envs), reward, done, infos]


def contents(buffer: BaseBuffer) -> dict[str, np.ndarray]:
    """All that a buffer has, as numpy arrays and numbers."""
    found = {"pos": np.array(buffer.pos), "full": np.array(buffer.full)}
    for name in ("actions", "rewards", "dones", "timeouts", "ep_start", "ep_length", "bonus"):
        if hasattr(buffer, name):
            found[name] = np.array(getattr(buffer, name)[:])
    for name in ("observations", "next_observations"):
        of = getattr(buffer, name)
        of = of if isinstance(of, dict) else {"": of}
        found |= {f"{name} {key}": np.array(array[:]) for key, array in of.items()}
    return found


def assert_alike(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], where: object = "") -> None:
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=f"{name} {where}")


def copied(step: list) -> list:
    return [dict(x) if isinstance(x, dict) else x for x in step]


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("kind", CLASSES)
def test_steps_are_added_directly(taken, kind, n_envs):
    if kind == "goals":
        Env.num_envs = n_envs
    (stock, ours), player = buffers(kind, n_envs), Player(kind, n_envs)
    for _ in range(2 * SIZE + 5):
        step = player.step()
        for buffer in (stock, ours):
            buffer.add(*copied(step))
        assert_alike(contents(ours), contents(stock))
    assert taken["add"] > 2 * SIZE - 10


@pytest.mark.in_background
@pytest.mark.parametrize("kind", CLASSES)
def test_steps_are_added_directly_while_codecs_change(monkeypatch, taken, kind):
    change_codecs_often(monkeypatch)
    Env.num_envs = 1
    (stock, ours), player, codecs = buffers(kind), Player(kind), set()
    for n in range(12 * SIZE):
        step = player.step()
        for buffer in (stock, ours):
            buffer.add(*copied(step))
        if n == 10:
            ours.decide()
        if n % 7 == 0:
            finish()
            assert_alike(contents(ours), contents(stock), n)
        if n % 40 == 0:
            codecs |= {of.codec for of in ours.stats().fields.values() if isinstance(of, StoreStats)}
    assert len(codecs - {"auto"}) > 1
    assert taken["add"] > 11 * SIZE


@pytest.mark.parametrize(("kind", "is_direct"), [*((kind, True) for kind in ALL), ("dictionary", False)])
def test_an_interrupted_step_is_added_or_not(kind, is_direct):
    (stock, ours), player, n_interrupts = buffers(kind), Player(kind), 0
    if not is_direct:
        ours._new_direct = lambda: None
    for _ in range(SIZE + 8):
        step = player.step()
        for buffer in (stock, ours):
            buffer.add(*copied(step))
    before, steps = [contents(ours)], []

    def prepare():
        steps.append(player.step())
        return lambda: ours.add(*copied(steps[-1]))

    for where in at_every_line(prepare, STEP):
        n_interrupts += 1
        found = contents(ours)
        if found["pos"] == before[0]["pos"]:
            assert_alike(found, {name: of for name, of in before[0].items() if name != "ep_length"}, where)
            ours.add(*copied(steps[-1]))
        stock.add(*copied(steps[-1]))
        if kind != "goals":  # an interrupt behind the step leaves SB3's lengths of episodes
            assert_alike(contents(ours), contents(stock), where)
        before[0] = contents(ours)
    assert n_interrupts > 100 // STEP


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kind", ["dictionary", "user's dictionary"])
def test_an_image_that_can_not_be_stored_undoes_the_others(monkeypatch, kind, which):
    (_, ours), player, calls, write = buffers(kind), Player(kind), [], FrameLog.write_step
    for _ in range(SIZE + 8):
        ours.add(*player.step())
    before, step = contents(ours), player.step()

    def fails(*of):
        calls.append(1)
        if len(calls) == which + 1:
            raise MemoryError("here")
        return write(*of)

    with monkeypatch.context() as patch:
        patch.setattr(FrameLog, "write_step", fails)
        with pytest.raises(MemoryError, match="here"):
            ours.add(*copied(step))
    assert len(calls) == which + 1
    assert_alike(contents(ours), before)
    ours.add(*step)
    assert ours.pos == before["pos"] + 1


@pytest.mark.parametrize("kind", ["dictionary", "user's dictionary"])
def test_arrays_of_a_user_in_the_dictionary_are_written(kind):
    (stock, ours), player = buffers(kind), Player(kind)
    for i in range(2 * SIZE):
        if i == SIZE // 2:
            for buffer in (stock, ours):
                buffer.observations["vector"] = buffer.observations["vector"] * 2
        step = player.step()
        for buffer in (stock, ours):
            buffer.add(*copied(step))
    assert_alike(contents(ours), contents(stock))


def without(key):
    return lambda obs: obs.pop(key)


def changed(key, change):
    return lambda obs: obs.update({key: change(obs[key])})


ODD = {
    "a key is missing": without("view"),
    "a vector is missing": without("vector"),
    "a wide vector": changed("vector", lambda x: x.astype(np.float64)),
    "a vector that does not fit": changed("vector", lambda x: x.astype(complex)),
    "an image of another shape": changed("image", lambda x: x[:, :3]),
    "an image of another dtype": changed("view", lambda x: x.astype(np.int64)),
    "a list": changed("place", lambda x: x.tolist()),
    "a place in a row": changed("place", lambda x: x[:, None]),
}


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("what", ODD)
def test_other_observations_are_looked_at_as_ever(taken, what, which):
    ends = []
    for is_direct in (True, False):
        (_, ours), player = buffers("dictionary"), Player("dictionary")
        if not is_direct:
            ours._new_direct = lambda: None
        for _ in range(20):
            ours.add(*player.step())
        n_taken, step = taken["add"], player.step()
        ODD[what](step[which])
        try:
            ours.add(*step)
            error = None
        except Exception as raised:
            error = raised
        assert taken["add"] == n_taken
        ends.append((type(error), str(error), contents(ours)))
    assert ends[0][:2] == ends[1][:2]
    assert_alike(ends[0][2], ends[1][2])
