"""Every other compressed buffer gives what the stock class gives: random programs, all kinds of observations."""

import copy
import pickle
import re
from itertools import pairwise

import numpy as np
import obscodec
import obscodec_sb3
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from same_samples import assert_equal, assert_same_samples
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.buffers import (
    BaseBuffer,
    DictReplayBuffer,
    DictRolloutBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv

IMAGES = spaces.Box(0, 255, (4, 12, 12), np.uint8)
ACTIONS = spaces.Discrete(3)
DICT = spaces.Dict(
    image=spaces.Box(0, 255, (12, 12, 4), np.uint8),
    vector=spaces.Box(-np.inf, np.inf, (5,), np.float32),
    choice=spaces.Discrete(3),
)
GOALS = BitFlippingEnv(n_bits=4, continuous=True).observation_space
STATES = (4, 1, 2, 3)  # steps, layers, environments, size
EARLY = {"decide_after": 5, "block_frames": 2}  # stores of a few steps decide, and encode
DECIDING = st.sampled_from([EARLY, {"decide_after": 1, "block_frames": 3}, {"decide_after": 20}, {}])


def observations(space, n_envs, rng):
    """Observations of frames that shift along their last axis, or of random numbers."""
    if isinstance(space, spaces.Dict):
        return {key: observations(of_key, n_envs, rng) for key, of_key in space.items()}
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=n_envs)
    if space.dtype == np.uint8:
        return rng.integers(256, size=(n_envs, *space.shape), dtype=np.uint8)
    if space.dtype == np.int8:
        return rng.integers(2, size=(n_envs, *space.shape), dtype=np.int8)
    return rng.random((n_envs, *space.shape)).astype(space.dtype)


REPLAY = {
    "dict": (DictReplayBuffer, DICT, {}, {"codec": {"image": "zstd:1", "vector": "raw"}}),
    "dict, auto": (DictReplayBuffer, DICT, {}, {"min_nbytes": 0}),
    "n-step": (NStepReplayBuffer, IMAGES, {"n_steps": 3, "gamma": 0.9}, {"codec": "zstd:1"}),
    "HER": (HerReplayBuffer, GOALS, {"goal_selection_strategy": "future"}, {"codec": "rle"}),
    "HER, infos": (
        HerReplayBuffer,
        GOALS,
        {"goal_selection_strategy": "final", "copy_info_dict": True},
        {"codec": "lz4"},
    ),
    "HER, episode": (HerReplayBuffer, GOALS, {"goal_selection_strategy": "episode"}, {"codec": "delta-rle"}),
}


def both_replay(
    kind: str, buffer_size: int, n_envs: int, more: dict[str, object] = EARLY, **options: object
) -> list[ReplayBuffer]:
    stock, space, kwargs, ours = REPLAY[kind]
    kwargs = {**kwargs, **options, "device": "cpu", "n_envs": n_envs}
    if stock is HerReplayBuffer:
        kwargs["env"] = make_vec_env(lambda: BitFlippingEnv(n_bits=4, continuous=True), n_envs)
    return [stock(buffer_size, space, ACTIONS, **kwargs),
            obscodec_sb3.compressed(stock)(buffer_size, space, ACTIONS, **kwargs, **ours, **more)]  # fmt: skip


def add_step(buffers: list[ReplayBuffer], rng: np.random.Generator) -> None:
    space, n_envs = buffers[0].observation_space, buffers[0].n_envs
    step = [observations(space, n_envs, rng), observations(space, n_envs, rng), rng.integers(3, size=n_envs),
            rng.random(n_envs), rng.random(n_envs) < 0.3]  # fmt: skip
    infos = [{"TimeLimit.truncated": bool(rng.random() < 0.3)} for _ in range(n_envs)]
    for buffer in buffers:
        buffer.add(*copy.deepcopy(step), infos)


def filled(buffers: list[ReplayBuffer], n: int = 13) -> np.random.Generator:
    rng = np.random.default_rng(0)
    for _ in range(n):
        add_step(buffers, rng)
    return rng


def reload(buffer: ReplayBuffer, env: object) -> ReplayBuffer:
    loaded = pickle.loads(pickle.dumps(buffer))
    if isinstance(loaded, HerReplayBuffer):
        loaded.set_env(env)
    return loaded


@pytest.mark.slow
@pytest.mark.parametrize("kind", REPLAY)
@given(
    buffer_size=st.integers(1, 30),
    n_envs=st.sampled_from([1, 2, 3]),
    timeouts=st.booleans(),
    deciding=DECIDING,
    n_steps=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=8)
def test_random_programs_of_replay_buffers(kind, buffer_size, n_envs, timeouts, deciding, n_steps, seed):
    buffers = both_replay(kind, buffer_size, n_envs, deciding, handle_timeout_termination=timeouts)
    rng = np.random.default_rng(seed)
    for i in range(n_steps):
        add_step(buffers, rng)
        choice = rng.random()
        if choice < 0.1:
            buffers[1] = reload(buffers[1], getattr(buffers[0], "env", None))
        elif choice < 0.15 and kind.startswith("HER"):
            for buffer in buffers:
                if (buffer._current_ep_start != buffer.pos).any():
                    with pytest.warns(UserWarning, match="last trajectory"):
                        buffer.truncate_last_trajectory()
        elif choice < 0.5 and (not kind.startswith("HER") or (buffers[0].ep_length > 0).any()):
            assert_same_samples(*buffers, 20, i)
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        assert_equal(getattr(buffers[1], name), getattr(buffers[0], name))


ROLLOUTS = {
    "rollout": (RolloutBuffer, IMAGES, {"codec": "delta-rle"}),
    "rollout, auto": (RolloutBuffer, spaces.Box(0, 255, (4, 20, 20), np.uint8), {}),
    "rollout, choices": (RolloutBuffer, spaces.Discrete(5), {"codec": "zstd:1"}),
    "dict": (DictRolloutBuffer, DICT, {"codec": "zstd:1"}),
    "recurrent": (RecurrentRolloutBuffer, IMAGES, {"codec": "zstd:1"}),
    "recurrent dict": (RecurrentDictRolloutBuffer, DICT, {"codec": {"image": "lz4"}}),
    "maskable": (MaskableRolloutBuffer, IMAGES, {"codec": "rle"}),
    "maskable dict": (MaskableDictRolloutBuffer, DICT, {"codec": "rle"}),
}


def both_rollout(kind: str, deciding: dict[str, int] = EARLY) -> list[BaseBuffer]:
    stock, space, ours = ROLLOUTS[kind]
    ours = {**deciding, **ours}
    kwargs = {"device": "cpu", "n_envs": 2, "gae_lambda": 0.9}
    if kind.startswith("recurrent"):
        kwargs["hidden_state_shape"] = STATES
    return [stock(4, space, ACTIONS, **kwargs), obscodec_sb3.compressed(stock)(4, space, ACTIONS, **kwargs, **ours)]


def add_rollout_step(buffers: list[BaseBuffer], rng: np.random.Generator) -> None:
    more = {}
    if isinstance(buffers[0], (RecurrentRolloutBuffer, RecurrentDictRolloutBuffer)):
        pair = lambda: tuple(torch.tensor(rng.random(STATES[1:])) for _ in range(2))  # noqa: E731
        more["lstm_states"] = RNNStates(pair(), pair())
    if isinstance(buffers[0], (MaskableRolloutBuffer, MaskableDictRolloutBuffer)):
        more["action_masks"] = rng.random((2, 3)) < 0.5
    obs = observations(buffers[0].observation_space, 2, rng)
    rest = rng.integers(3, size=2), rng.random(2), rng.random(2) < 0.3, torch.tensor(rng.random(2)), torch.zeros(2)
    for buffer in buffers:
        buffer.add(copy.deepcopy(obs), *rest, **more)


@pytest.mark.parametrize("kind", ROLLOUTS)
@given(
    program=st.lists(st.sampled_from(["add", "fill", "fill", "get", "get", "reset", "pickle", "copy"]), max_size=20),
    batch_size=st.none() | st.integers(1, 9),
    deciding=DECIDING,
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=15)
def test_random_programs_of_rollout_buffers(kind, program, batch_size, deciding, seed):
    buffers = both_rollout(kind, deciding)
    rng = np.random.default_rng(seed)
    for i, what in enumerate(program):
        if what == "reset" or (what in ("add", "fill") and buffers[0].full):
            for buffer in buffers:
                buffer.reset()
        if what == "add":
            add_rollout_step(buffers, rng)
        while what == "fill" and not buffers[0].full:
            add_rollout_step(buffers, rng)
        if what == "get" and buffers[0].full:
            minibatches = []
            for buffer in buffers:
                if not buffer.generator_ready:
                    buffer.compute_returns_and_advantage(torch.ones(2), np.array([True, False]))
                np.random.seed(i)
                minibatches.append(tuple(buffer.get(batch_size)))
            assert_equal(minibatches[1], minibatches[0])
        if what == "pickle":
            buffers[1] = pickle.loads(pickle.dumps(buffers[1]))
        if what == "copy":
            buffers[1] = copy.deepcopy(buffers[1])
    assert_equal(buffers[1].observations, buffers[0].observations)


@pytest.mark.parametrize("kind", ["dict", "maskable", "recurrent"])
def test_a_rollout_that_is_forgotten_takes_no_memory(kind):
    stock, compressed = both_rollout(kind)
    rng = np.random.default_rng(0)
    stores = compressed.observation_store if kind == "dict" else {"": compressed.observation_store}
    store = next(store for store in stores.values() if store)
    for _ in range(60):
        for _ in range(4):
            add_rollout_step([stock, compressed], rng)
        compressed.stats()  # stores what waits
        assert store.stats().n_tensors == 8
        compressed.reset()
        stock.reset()
        assert store.stats().n_tensors == 0


WRONG = "observations: expected shape (2, 4, 12, 12), got (2, 3, 12, 12)"


def test_a_wrong_observation_is_refused_by_rollout_buffers():
    stock, compressed = both_rollout("recurrent")
    before = compressed.hidden_states_pi.copy()
    states = RNNStates((torch.ones(STATES[1:]),) * 2, (torch.ones(STATES[1:]),) * 2)
    rest = np.zeros(2), np.zeros(2), np.zeros(2), torch.zeros(2), torch.zeros(2)
    with pytest.raises(obscodec.ShapeError, match=f"^{re.escape(WRONG)}$"):
        compressed.add(np.zeros((2, 3, 12, 12), np.uint8), *rest, lstm_states=states)
    assert compressed.pos == 0
    assert_equal(compressed.hidden_states_pi, before)
    assert_equal(compressed.observations, stock.observations)


def test_a_wrong_observation_of_a_dictionary_is_refused_by_name():
    _, compressed = both_replay("dict", 10, 2)
    rng = np.random.default_rng(0)
    good, bad = observations(DICT, 2, rng), observations(DICT, 2, rng)
    bad["vector"] = np.zeros((2, 4), np.float32)
    text = "field 'vector': expected shape (2, 5), got (2, 4)"
    with pytest.raises(obscodec.ShapeError, match=f"^{re.escape(text)}$"):
        compressed.add(good, bad, np.zeros(2), np.zeros(2), np.zeros(2), [{}, {}])
    assert (compressed.pos, compressed.stats().fields["image"].n_tensors) == (0, 0)


@pytest.mark.parametrize("timeouts", [True, False])
@pytest.mark.parametrize("kind", ["dict", "n-step", "HER"])
def test_optimize_memory_usage_goes_with_every_buffer(kind, timeouts):
    more = {"optimize_memory_usage": True, **EARLY}
    stock, compressed = both_replay(kind, 20, 2, more, handle_timeout_termination=timeouts)
    filled([stock, compressed], 25)
    assert_equal(compressed.next_observations, stock.next_observations)
    stock.optimize_memory_usage = True  # SB3 refuses it in the constructor; its sample never draws the oldest step then
    assert_same_samples(stock, compressed, 30)


class ThirdObservation(ReplayBuffer):
    """A buffer of a user, which keeps one observation more, and looks at what is added."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.goals = np.zeros((self.buffer_size, self.n_envs, *self.obs_shape), self.observation_space.dtype)

    def add(self, obs, next_obs, action, reward, done, infos):
        self.goals[self.pos] = obs // 2 + next_obs // 2
        super().add(obs, next_obs, action, reward, done, infos)


@pytest.mark.parametrize("rebuild", [lambda buffer: pickle.loads(pickle.dumps(buffer)), copy.deepcopy])
def test_a_buffer_of_a_user_is_compressed_with_all_its_observations(rebuild):
    buffers = [ThirdObservation(10, IMAGES, ACTIONS, "cpu")]
    buffers.append(obscodec_sb3.compressed(ThirdObservation)(10, IMAGES, ACTIONS, "cpu", codec="zstd:1", **EARLY))
    rng = filled(buffers)
    buffers[1] = rebuild(buffers[1])
    add_step(buffers, rng)
    assert isinstance(buffers[1].goals, obscodec.TensorArray)
    for name in ("observations", "next_observations", "goals"):
        assert_equal(getattr(buffers[1], name), getattr(buffers[0], name))


class Looks(ReplayBuffer):
    """A buffer of a user, which looks at observations on their way to the learner."""

    @staticmethod
    def _normalize_obs(obs, env=None):
        return obs[:, ::-1].astype(np.float32) / 255


class Scales(DictReplayBuffer):
    def to_torch(self, array, copy=True):
        return super().to_torch(array, copy).double() * 3


class Weighs(ReplayBuffer):
    def _get_samples(self, batch_inds, env=None):
        samples = super()._get_samples(batch_inds, env)
        return samples._replace(rewards=samples.observations.double().mean((1, 2, 3)))


@pytest.mark.parametrize("stock", [Looks, Scales, Weighs])
def test_a_buffer_of_a_user_may_look_at_what_it_samples(stock):
    space = DICT if stock is Scales else IMAGES
    buffers = [stock(10, space, ACTIONS, "cpu")]
    buffers.append(obscodec_sb3.compressed(stock)(10, space, ACTIONS, "cpu", codec="zstd:1", **EARLY))
    filled(buffers)
    assert_same_samples(*buffers, 20)


class Mine(obscodec_sb3.compressed(ThirdObservation)):
    """A class of a user that pickle finds by its name."""


@pytest.mark.parametrize("rebuild", [lambda buffer: pickle.loads(pickle.dumps(buffer)), copy.deepcopy])
def test_a_subclass_of_a_compressed_buffer_stays_one(rebuild):
    buffers = [ThirdObservation(10, IMAGES, ACTIONS, "cpu"), Mine(10, IMAGES, ACTIONS, "cpu", codec="zstd:1", **EARLY)]
    filled(buffers)
    rebuilt = rebuild(buffers[1])
    assert type(rebuilt) is Mine
    assert_equal(rebuilt.goals, buffers[0].goals)


def test_the_named_buffers_are_what_compressed_gives():
    for stock in (ReplayBuffer, DictReplayBuffer, NStepReplayBuffer, HerReplayBuffer, RolloutBuffer, DictRolloutBuffer,
                  MaskableRolloutBuffer, MaskableDictRolloutBuffer, RecurrentRolloutBuffer,
                  RecurrentDictRolloutBuffer):  # fmt: skip
        named = getattr(obscodec_sb3, f"Compressed{stock.__name__}")
        assert obscodec_sb3.compressed(stock) is named
        assert obscodec_sb3.compressed(named) is named
        assert issubclass(named, stock)
        assert pickle.loads(pickle.dumps(named)) is named


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("CompressedReplayBuffer", "CompressedDictReplayBuffer"),
        ("CompressedRolloutBuffer", "CompressedDictRolloutBuffer"),
    ],
)
def test_a_dictionary_needs_a_buffer_for_dictionaries(name, other):
    text = (
        f"{name} takes observations that are one array, got a space of a dictionary of arrays: use another class, such "
        f"as {other}"
    )
    with pytest.raises(obscodec.DTypeError, match=f"^{re.escape(text)}$"):
        getattr(obscodec_sb3, name)(10, DICT, ACTIONS)


class Latest(ReplayBuffer):
    def sample(self, batch_size, env=None):
        return self._get_samples(np.arange(self.pos - batch_size, self.pos), env)


class Counted(obscodec_sb3.CompressedReplayBuffer):
    def _get_samples(self, batch_inds, env=None):
        samples = super()._get_samples(batch_inds, env)
        assert len(samples.observations) == len(batch_inds)
        return samples


class Shifted(obscodec_sb3.CompressedReplayBuffer):
    def to_torch(self, array, copy=True):
        return super().to_torch(array, copy) + 1


class Inverted(obscodec_sb3.CompressedReplayBuffer):
    @staticmethod
    def _normalize_obs(obs, env=None):
        return 255 - obs


@pytest.mark.parametrize(
    ("kind", "space", "own", "sampled"),
    [
        (obscodec_sb3.compressed(HerReplayBuffer), GOALS, "sample", None),
        (obscodec_sb3.compressed(Latest), IMAGES, "sample", 7),
        (Counted, IMAGES, "_get_samples", 7),
        (Shifted, IMAGES, "to_torch", 8),
        (Inverted, IMAGES, "_normalize_obs", 248),
    ],
)
def test_a_class_that_looks_at_what_is_sampled_is_not_prefetched(kind, space, own, sampled):
    more = {"env": None} if space is GOALS else {}
    text = f"prefetch needs SB3's own {own}, {kind.__name__} has another: leave prefetch out"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        kind(10, space, ACTIONS, "cpu", prefetch=True, **more)
    if sampled:
        buffer = kind(10, IMAGES, ACTIONS, "cpu", codec="zstd:1", **EARLY)
        for _ in range(3):
            buffer.add(*(np.full((1, *IMAGES.shape), 7, np.uint8),) * 2, np.zeros(1), np.zeros(1), np.zeros(1), [{}])
        assert (buffer.sample(3).observations == sampled).all()


@pytest.mark.parametrize("kind", ["dict", "n-step", "images"])
def test_prefetched_batches_are_those_of_the_stock_buffer(kind):
    stock, space, kwargs, ours = REPLAY.get(kind, (ReplayBuffer, IMAGES, {}, {"codec": "zstd:1"}))
    arguments = 40, space, ACTIONS, "cpu", 2
    plain = stock(*arguments, **kwargs)
    buffer = obscodec_sb3.compressed(stock)(*arguments, prefetch=True, **kwargs, **ours, **EARLY)
    filled([plain, buffer], 15)
    batches = []
    for sampled in (plain, buffer):  # nothing is added between the batches, so all of them are alike
        np.random.seed(0)
        batches.append([sampled.sample(9) for _ in range(4)])
    assert_equal(tuple(batches[1]), tuple(batches[0]))


def test_a_batch_is_given_out_whole_with_prefetch():
    buffer = obscodec_sb3.CompressedReplayBuffer(10, IMAGES, ACTIONS, "cpu", codec="zstd:1", prefetch=True, **EARLY)
    buffer.add(*(np.full((1, *IMAGES.shape), 7, np.uint8),) * 2, np.zeros(1), np.zeros(1), np.zeros(1), [{}])
    assert (buffer._get_samples(np.zeros(3, np.int64)).observations == 7).all()
    buffer.sample(4)
    buffer.observations[0] = np.full((1, *IMAGES.shape), 9, np.uint8)  # what is read ahead is read before
    assert (buffer.sample(4).observations == 7).all()
    assert (buffer.sample(4).observations == 9).all()


@pytest.mark.parametrize(("between", "dtype"), [((), "uint8"), ((1, 2), "uint8"), ((1,), "float32")])
def test_an_array_of_another_form_is_refused(between, dtype):
    class Keeps(ReplayBuffer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.goals = np.zeros((self.buffer_size, *between, *self.obs_shape), dtype)

    with pytest.raises(TypeError, match=rf"^goals is {dtype} \(10, .*expected \[buffer_size, n_envs, \*obs_shape\]$"):
        obscodec_sb3.compressed(Keeps)(10, IMAGES, ACTIONS, codec="zstd:1")


def test_a_class_of_a_user_does_not_take_the_place_of_ours():
    class Stock(ReplayBuffer):
        pass

    class Mine(obscodec_sb3.CompressedReplayBuffer, Stock):
        pass

    assert obscodec_sb3.compressed(Stock) is not Mine
    assert Mine(10, IMAGES, ACTIONS, codec="zstd:1").observation_store is not None


@pytest.mark.parametrize("kind", ["replay", "rollout"])
def test_stores_decide_and_encode_when_they_are_told_to(kind):
    """Steps wait until some are there, or until somebody asks."""
    options = {"codec": "zstd:1", "decide_after": 4, "block_frames": 2, "frame_stack": obscodec.FrameStack(1)}
    rng = np.random.default_rng(0)
    steps = rng.integers(256, size=(7, 1, 4, 12, 12), dtype=np.uint8)
    if kind == "replay":
        buffer = obscodec_sb3.CompressedReplayBuffer(20, IMAGES, ACTIONS, "cpu", **options)
        for before, after in pairwise(steps):
            buffer.add(before, after, np.zeros(1), np.zeros(1), np.zeros(1), [{}])
    else:
        buffer = obscodec_sb3.CompressedRolloutBuffer(20, IMAGES, ACTIONS, "cpu", **options)
        for step in steps:
            buffer.add(step, np.zeros(1), np.zeros(1), np.zeros(1), torch.zeros(1), torch.zeros(1))
    stats = buffer.stats()
    assert "block_frames=2" in repr(buffer.observation_store)
    assert stats.fields[""].n_tensors == (12 if kind == "replay" else 7)
    assert stats.fields[""].live_bytes >= 6 * 576  # three blocks of noise; the last frame is in an open one
    np.testing.assert_array_equal(buffer.observations[:6], steps[:6])


@pytest.mark.parametrize(
    ("options", "codec"),
    [
        ({}, "raw"),
        ({"budget": {"": None}}, "zstd:3"),
        ({"codec": "zstd:3"}, "zstd:3"),  # takes float32, which older versions of SB3 keep rollouts in
    ],
)
def test_rollouts_are_stored_as_fast_as_uncompressed_ones_unless_a_user_says_otherwise(options, codec):
    """Of eight values, at random: three bits each, which only a slow codec finds."""
    seen = np.random.default_rng(0).integers(8, size=(40, 1, 3, 32, 32), dtype=np.uint8)
    space = spaces.Box(0, 255, (3, 32, 32), np.uint8)
    buffer = obscodec_sb3.CompressedRolloutBuffer(40, space, ACTIONS, "cpu", decide_after=20, **options)
    for obs in seen:
        buffer.add(obs, np.zeros(1), np.zeros(1), np.ones(1), torch.zeros(1), torch.zeros(1))
    (batch,) = buffer.get()
    assert sorted(map(bytes, batch.observations.numpy().astype(np.uint8))) == sorted(map(bytes, seen[:, 0]))
    (stats,) = buffer.stats().fields.values()
    assert stats.codec == codec
