"""Arrays beside the observations take less memory, and are what the arrays of the stock class are."""

import copy
import pickle

import numpy as np
import obscodec
import pytest
import torch
from faults import at_every_line
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from obscodec_sb3 import CompressedRolloutBuffer, base, compressed
from obscodec_sb3.bits import Bits
from same_samples import assert_equal, assert_same_samples
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv

VECTOR = spaces.Box(-1, 1, (3,))
DICT = spaces.Dict(a=VECTOR, b=spaces.Box(-1, 1, (2,)))
N_STEPS, N_ENVS, N_ACTIONS = 40, 2, 100  # some steps more than the 16 that are looked at
STATES = (N_STEPS, 1, N_ENVS, 70)
SHAPES = {  # of a step, and the dtype
    "goals": ((N_ENVS, 300), "float32"),
    "images": ((N_ENVS, 2, 3, 80), "float64"),
    "choices": ((N_ENVS, 270), "int8"),
    "flags": ((N_ENVS, 3, 300), "bool"),
    "noise": ((N_ENVS, 300), "float32"),
    "signs": ((N_ENVS, 40), "int64"),
    "shared": ((3, 70), "float32"),  # not by environments
    "complex": ((N_ENVS, 70), "complex64"),
    "few": ((N_ENVS, 5), "float32"),
    "ages": ((), "int64"),
    "rows": ((300,), "float32"),
    "empty": ((N_ENVS, 0), "float32"),
    "objects": ((N_ENVS, 70), "O"),
    "alias": ((N_ENVS, 300), "float32"),
}


def step_of(name, k, rng):
    """What an array has in a step: a goal of an episode, one of few numbers, or noise."""
    shape, dtype = SHAPES[name]
    if name in ("goals", "images", "alias"):
        return np.random.default_rng(k // 10).random(shape).astype(dtype)
    if name in ("choices", "signs", "shared"):
        return np.full(shape, np.where(np.arange(shape[-1]) == k % 7, 5, -(name == "signs")), dtype)
    if name == "flags":
        return rng.random(shape) < 0.1
    return rng.integers(100, size=shape).astype(dtype) if dtype in ("O", "int64") else rng.random(shape).astype(dtype)


class Extra:
    """What a class of a user keeps beside the observations."""

    def make(self):
        for name, (shape, dtype) in SHAPES.items():
            fill = -1 if name == "signs" else 0
            setattr(self, name, np.full((self.buffer_size, *shape), fill, dtype) if fill else np.zeros(
                (self.buffer_size, *shape), dtype
            ))  # fmt: skip
        self.again = self.alias

    def put(self, extra):
        for name, value in extra.items():
            getattr(self, name)[self.pos] = value


class Replay(Extra, ReplayBuffer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.make()

    def add(self, obs, next_obs, action, reward, done, infos):
        self.put(infos[0]["extra"])
        super().add(obs, next_obs, action, reward, done, infos)

    def _get_samples(self, batch_inds, env=None):
        samples = super()._get_samples(batch_inds, env)
        parts = [self.to_torch(np.asarray(of[batch_inds, 1, :], np.float64)) for of in (self.goals, self.choices)]
        return samples._replace(rewards=torch.cat([*parts, samples.rewards], 1))


class Hindsight(Extra, HerReplayBuffer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.make()

    def add(self, obs, next_obs, action, reward, done, infos):
        self.put(infos[0]["extra"])
        super().add(obs, next_obs, action, reward, done, infos)


class OfRollout(Extra):
    """What both rollout buffers do with their arrays."""

    def reset(self):
        super().reset()
        self.make()

    def add(self, *args, extra):
        self.put(extra)
        super().add(*args)

    def get(self, batch_size=None):
        if not self.generator_ready:
            for name in ("goals", "choices", "flags", "signs"):
                setattr(self, name, self.swap_and_flatten(getattr(self, name)))
        yield from super().get(batch_size)

    def _get_samples(self, batch_inds, env=None):
        parts = [getattr(self, name)[batch_inds] for name in ("goals", "choices", "flags", "signs")]
        return (super()._get_samples(batch_inds, env), *map(self.to_torch, parts))


class Rollout(OfRollout, RolloutBuffer):
    pass


class Mine(OfRollout, compressed(RolloutBuffer)):
    """A subclass of a compressed class, which makes its arrays last."""


def pair(stock, ours=None, **options):
    """A buffer of the stock class, and a compressed one."""
    is_dict = issubclass(stock, (MaskableDictRolloutBuffer, RecurrentDictRolloutBuffer))
    kwargs = {"device": "cpu", "n_envs": N_ENVS}
    if issubclass(stock, (RecurrentRolloutBuffer, RecurrentDictRolloutBuffer)):
        kwargs["hidden_state_shape"] = STATES
    space = DICT if is_dict else VECTOR
    if stock is Hindsight:
        kwargs["env"] = make_vec_env(lambda: BitFlippingEnv(n_bits=4, continuous=True), N_ENVS)
        space = kwargs["env"].observation_space
    size = N_STEPS * N_ENVS if issubclass(stock, ReplayBuffer) else N_STEPS
    arguments = size, space, spaces.Discrete(N_ACTIONS)
    return [stock(*arguments, **kwargs), (ours or compressed(stock))(*arguments, **kwargs, **options)]


def add_step(buffers, k, rng, masks="bool"):
    stock, keys = buffers[0], getattr(buffers[0].observation_space, "spaces", {"": buffers[0].observation_space})
    obs = {key: (2 * rng.random((N_ENVS, *space.shape))).astype(space.dtype) for key, space in keys.items()}
    obs = obs if isinstance(stock.observation_space, spaces.Dict) else obs[""]
    action, reward, done = rng.integers(9, size=(N_ENVS, 1)), rng.random(N_ENVS), rng.random(N_ENVS) < 0.2
    extra = {name: step_of(name, k, rng) for name in SHAPES} if isinstance(stock, (Extra, Mine)) else None
    more = {"extra": extra} if extra else {}
    if isinstance(stock, (MaskableRolloutBuffer, MaskableDictRolloutBuffer)):
        mask = rng.random((N_ENVS, N_ACTIONS)) < 0.1
        more["action_masks"] = mask * np.float32(0.5) if masks == "halves" else mask.astype(masks or bool)
        if not masks:
            del more["action_masks"]
    if isinstance(stock, (RecurrentRolloutBuffer, RecurrentDictRolloutBuffer)):
        size = STATES[1:]
        made = [torch.tensor(rng.random(size) if masks == "bool" else np.full(size, k // 9 + 1.0)) for _ in range(4)]
        more["lstm_states"] = RNNStates((made[0], made[1]), (made[2], made[3]))
    for buffer in buffers:
        if isinstance(buffer, ReplayBuffer):
            infos = [{"extra": extra}, {}]
            buffer.add(copy.deepcopy(obs), copy.deepcopy(obs), action, reward, done, infos)
        else:
            buffer.add(copy.deepcopy(obs), action, reward, done, torch.tensor(reward), torch.zeros(N_ENVS), **more)


def assert_same_arrays(buffers):
    for name, plain in vars(buffers[0]).items():
        if isinstance(plain, np.ndarray):
            np.testing.assert_array_equal(np.asarray(vars(buffers[1])[name]), plain, strict=True)


def assert_same_minibatches(buffers, seed, batch_size):
    found = []
    for buffer in buffers:
        if not buffer.generator_ready:
            buffer.compute_returns_and_advantage(torch.ones(N_ENVS), np.array([True, False]))
        np.random.seed(seed)
        found.append(tuple(buffer.get(batch_size)))
    assert_equal(found[1], found[0])


def reload(buffer, how, tmp_path):
    if how == "save":
        buffer.save(tmp_path / "buffer")
        env = {"env": buffer.env} if isinstance(buffer, HerReplayBuffer) else {}
        return type(buffer).load(tmp_path / "buffer", device="cpu", continue_episodes=True, **env)
    loaded = copy.deepcopy(buffer) if how == "copy" else pickle.loads(pickle.dumps(buffer))
    if isinstance(loaded, HerReplayBuffer):
        loaded.set_env(buffer.env)
    return loaded


PROGRAM = st.lists(st.sampled_from(["fill", "fill", "some", "get", "reset", "pickle", "copy", "save"]), max_size=10)
ROLLOUTS = {of.__name__: (of, None) for of in (MaskableRolloutBuffer, MaskableDictRolloutBuffer, RecurrentRolloutBuffer,
            RecurrentDictRolloutBuffer, Rollout)} | {"Mine": (Rollout, Mine)}  # fmt: skip


@pytest.mark.parametrize("kind", ROLLOUTS)
@given(
    program=PROGRAM,
    masks=st.sampled_from(["bool", "int8", "float32", "float64", "halves", ""]),
    batch_size=st.none() | st.integers(1, 30),
    decide_after=st.sampled_from([5, None]),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=12)
def test_random_programs_of_rollouts(kind, program, masks, batch_size, decide_after, seed, tmp_path_factory):
    buffers = pair(*ROLLOUTS[kind], decide_after=decide_after)
    rng, tmp_path = np.random.default_rng(seed), tmp_path_factory.mktemp("saved")
    for i, what in enumerate([*program, "fill", "get"]):
        if what == "reset" or (what in ("some", "fill") and buffers[0].full):
            for buffer in buffers:
                buffer.reset()
        for _ in range({"some": 18, "fill": N_STEPS}.get(what, 0)):
            if not buffers[0].full:
                add_step(buffers, buffers[0].pos, rng, masks if i % 3 else "bool")
        if what == "get" and buffers[0].full:
            assert_same_minibatches(buffers, i, batch_size)
        if what in ("pickle", "copy", "save") and not (what == "save" and kind in ("Rollout", "Mine")):
            buffers[1] = reload(buffers[1], what, tmp_path)
        assert_same_arrays(buffers)


@pytest.mark.parametrize("stock", [Replay, Hindsight])
@given(
    program=st.lists(st.sampled_from([17, 17, 30, "sample", "pickle", "copy"]), max_size=10),
    decide_after=st.sampled_from([5, None]),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=12)
def test_random_programs_of_replay_buffers(stock, program, decide_after, seed):
    buffers = pair(stock, decide_after=decide_after)
    rng, k = np.random.default_rng(seed), 0
    for what in [*program, 30, "sample"]:
        for _ in range(what if isinstance(what, int) else 0):
            add_step(buffers, k, rng)
            k += 1
        if what == "sample" and (stock is Replay or (buffers[0].ep_length > 0).any()) and k:
            assert_same_samples(*buffers, 20, k)
        if what in ("pickle", "copy"):
            buffers[1] = reload(buffers[1], what, None)
        assert_same_arrays(buffers)


def filled(stock, ours=None, n=N_STEPS, masks="bool", **options):
    buffers, rng = pair(stock, ours, **options), np.random.default_rng(0)
    for k in range(n):
        add_step(buffers, k, rng, masks)
    return buffers


FORMS = {"goals": obscodec.TensorArray, "images": obscodec.TensorArray, "choices": Bits, "flags": Bits, "signs": Bits,
         "shared": Bits}  # fmt: skip


@pytest.mark.parametrize(("stock", "ours"), [(Replay, None), (Hindsight, None), (Rollout, None), (Rollout, Mine)])
def test_what_repeats_is_compressed_and_two_numbers_are_bits(stock, ours):
    buffer = filled(stock, ours)[1]
    for name in SHAPES:
        assert type(getattr(buffer, name)) is FORMS.get(name, np.ndarray), name
    assert buffer.alias is buffer.again


@pytest.mark.parametrize(("stock", "ours"), [(Rollout, None), (Rollout, Mine)])
def test_a_second_rollout_has_these_forms_from_its_first_step_on(stock, ours):
    buffers = filled(stock, ours)
    for buffer in buffers:
        buffer.reset()
    add_step(buffers, 0, np.random.default_rng(0))
    assert {name: type(getattr(buffers[1], name)) for name in FORMS} == FORMS


@pytest.mark.parametrize("options", [{"codec": None}, {}])
def test_nothing_changes_its_form_where_nothing_is_gained(options):
    kinds = [(RecurrentRolloutBuffer, "bool"), (RolloutBuffer, "bool")]
    for stock, masks in kinds if options == {} else [*kinds, (Rollout, ""), (Replay, ""), (MaskableRolloutBuffer, "f")]:
        buffer = filled(stock, masks=masks, **options)[1]
        assert not any(isinstance(array, (Bits, obscodec.TensorArray)) for array in vars(buffer).values())


def test_small_masks_stay_as_they_are():
    buffer = compressed(MaskableRolloutBuffer)(N_STEPS, VECTOR, spaces.Discrete(18), "cpu")
    assert (type(buffer.action_masks), buffer.mask_dims) == (np.ndarray, 18)
    np.testing.assert_array_equal(buffer.action_masks, np.ones((N_STEPS, 1, 18), np.float32), strict=True)
    assert buffer.action_masks.flags.owndata
    with pytest.raises(AttributeError, match="its actions have no masks"):
        _ = CompressedRolloutBuffer(N_STEPS, VECTOR, spaces.Discrete(18), "cpu").mask_dims


class Doubled(MaskableRolloutBuffer):
    """A class of a user, which makes masks itself, and arrays like them."""

    def reset(self):
        super().reset()
        self.before = np.full((self.buffer_size, self.n_envs, self.mask_dims), 2, np.float32)


def test_a_class_of_a_user_may_make_its_own_masks():
    buffers = filled(Doubled, masks="halves")
    assert_same_arrays(buffers)
    assert isinstance(buffers[1].before, Bits)
    assert_same_minibatches(buffers, 0, 7)


def test_more_than_two_numbers_come_late():
    """An array of bits keeps numbers then, and the next rollout does not begin with bits."""
    buffers, rng = pair(Doubled), np.random.default_rng(0)
    for k in range(N_STEPS):
        add_step(buffers, k, rng)
        for buffer in buffers:
            buffer.before[k] = 2 * (k % 2) if k < 35 else k
    assert_same_arrays(buffers)
    assert not buffers[1].before.is_packed
    assert_same_minibatches(buffers, 0, 7)
    for buffer in buffers:
        buffer.reset()
    add_step(buffers, 0, rng)
    assert (type(buffers[1].action_masks), type(buffers[1].before)) == (Bits, np.ndarray)


def test_stats_count_them_by_their_names():
    stock, buffer = filled(Replay, decide_after=5)
    buffer.decide()
    stats = buffer.stats()
    assert stats.fields.keys() == {"", *FORMS}
    for name in ("choices", "flags", "signs", "shared"):
        array = getattr(stock, name)
        assert (stats.fields[name].codec, stats.fields[name].raw_bytes) == ("bits", array.nbytes)
        assert stats.fields[name].total_bytes == getattr(buffer, name).memory_bytes < array.nbytes / 7
    assert stats.fields["goals"].live_bytes < stock.goals.nbytes / 3
    names = {"observations", "next_observations"}
    plain = {name: array for name, array in vars(stock).items() if isinstance(array, np.ndarray)}
    assert stats.raw_bytes == sum(array.nbytes for array in plain.values()) - 0
    assert stats.other_bytes == sum(array.nbytes for name, array in plain.items() if name not in names | FORMS.keys())
    assert "choices: int8[270]" not in repr(buffer)
    assert "goals: float32[300]" in repr(buffer)
    assert "bits" in str(stats)
    manifest = buffer.manifest()
    assert {of["name"]: of["item"] for of in manifest["fields"]}["flags"] == "bool[300]"


def test_half_a_rollout_counts_half_of_the_bits():
    buffer = filled(MaskableRolloutBuffer, n=N_STEPS // 2)[1]
    masks = buffer.stats().fields["action_masks"]
    assert (masks.n_tensors, masks.total_bytes) == (20 * N_ENVS, 20 * N_ENVS * 13)


@pytest.mark.parametrize("n_got", [0, 1])
def test_rollouts_of_a_user_are_saved(n_got, tmp_path):
    """But for its objects, which a snapshot can't have."""
    kind = compressed(Rollout)
    buffers = filled(Rollout)
    buffers[1].objects = None
    if n_got:
        assert_same_minibatches(buffers, 0, 30)
    buffers[1].save(tmp_path)
    loaded = kind.load(tmp_path, device="cpu")
    for name in FORMS:
        assert type(getattr(loaded, name)) is FORMS[name]
        np.testing.assert_array_equal(np.asarray(getattr(loaded, name)), getattr(buffers[0], name), strict=True)
    assert_same_minibatches([buffers[0], loaded], 1, 30)
    assert loaded.stats().fields.keys() == buffers[1].stats().fields.keys()


def unpacked(state, buffer):
    """A state as the versions before wrote it."""
    old = {name: of for name, of in state.items() if name != "flat"}
    arrays = {name: {"items": np.array(getattr(buffer, name))} if "bits" in of else of
              for name, of in state["arrays"].items()}  # fmt: skip
    return {**old, "arrays": arrays}


@pytest.mark.parametrize("n", [0, 20, N_STEPS])
@pytest.mark.parametrize("n_got", [0, 1])
def test_a_state_of_a_version_before_is_restored(n, n_got):
    buffers = filled(MaskableRolloutBuffer, n=n)
    if n_got and n == N_STEPS:
        assert_same_minibatches(buffers, 0, 30)
    loaded = pair(MaskableRolloutBuffer)[1]
    loaded.restore(unpacked(buffers[1].state(), buffers[1]))
    assert_same_arrays([buffers[0], loaded])
    rng = np.random.default_rng(1)
    for k in range(n, N_STEPS):
        add_step([buffers[0], loaded], k, rng)
    assert_same_minibatches([buffers[0], loaded], 1, 30)


def test_a_state_with_an_array_that_the_class_does_not_have_is_refused():
    state = filled(Replay)[1]
    state.objects = None
    other = compressed(ReplayBuffer)(N_STEPS * N_ENVS, VECTOR, spaces.Discrete(N_ACTIONS), "cpu", N_ENVS)
    with pytest.raises(obscodec.CorruptStream, match=r"^'goals' is no array"):
        other.restore(state.state())


class Goals(ReplayBuffer):
    """Goals, one for each episode, and flags."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.goals = np.zeros((self.buffer_size, self.n_envs, 512), np.float32)
        self.flags = np.zeros((self.buffer_size, self.n_envs, 512), np.float32)

    def add(self, obs, next_obs, *rest):
        self.goals[self.pos] = obs[:, :1] // 1 + np.arange(512)
        self.flags[self.pos] = obs[:, 1:2] > 0
        super().add(obs, next_obs, *rest)


def fill_goals(buffer, n):
    for k in range(n):
        obs = np.full((buffer.n_envs, 3), k / 10, np.float32)
        obs[:, 1] = k % 3
        ends = np.full(buffer.n_envs, k % 10 == 9)
        buffer.add(obs, obs, np.zeros((buffer.n_envs, 1)), np.full(buffer.n_envs, k), ends, [{}] * buffer.n_envs)


def check_goals(buffer, rows=None):
    """They are those of the observations beside them."""
    rows = slice(buffer.size()) if rows is None else rows
    obs = buffer.observations[rows]
    np.testing.assert_array_equal(buffer.goals[rows], obs[..., :1] // 1 + np.arange(512, dtype=np.float32))
    np.testing.assert_array_equal(buffer.flags[rows], np.repeat(obs[..., 1:2] > 0, 512, -1))
    assert buffer.size() > 20


@pytest.mark.parametrize("n_envs", [1, 3])
def test_they_move_to_other_environments(n_envs):
    buffer = compressed(Goals)(400, VECTOR, spaces.Discrete(2), "cpu", 2, decide_after=10)
    fill_goals(buffer, 120)
    made = buffer.with_envs(n_envs)
    assert (type(made.goals), made.size()) == (obscodec.TensorArray, 240 // n_envs)
    check_goals(made)
    fill_goals(made, 30)
    check_goals(made)


def test_an_episode_is_dropped_with_them():
    buffer = compressed(Goals)(400, VECTOR, spaces.Discrete(2), "cpu", 2, decide_after=10)
    fill_goals(buffer, 95)
    buffer.drop_episode(1)
    fill_goals(buffer, 90)
    check_goals(buffer, [*range(90), *range(95, 185)])


def test_a_limit_of_memory_drops_steps_with_them():
    limit = 4_200_000
    buffer = compressed(Goals)(2_000, VECTOR, spaces.Discrete(2), "cpu", 1, decide_after=10)
    bare = compressed(Goals)(2_000, VECTOR, spaces.Discrete(2), "cpu", 1, max_bytes=10 * limit, decide_after=10)
    for each in (buffer, bare):
        fill_goals(each, 1_000)
        check_goals(each)
    assert bare.stats().total_bytes < 2_000_000 < 1_000 * 2 * 2_048
    assert bare.size() == 1_000


def prepared():
    """A buffer at its first look, and a copy."""
    buffer = compressed(Goals)(400, VECTOR, spaces.Discrete(2), "cpu", 2, decide_after=10)
    fill_goals(buffer, 16)
    return buffer, {name: np.array(getattr(buffer, name)) for name in ("goals", "flags", "observations")}


def test_an_interrupted_look_leaves_everything_as_it_was():
    made, n = [], 0

    def prepare():
        made[:] = prepared()
        return made[0]._pack

    for _ in at_every_line(prepare, 23):
        n += 1
        buffer, before = made
        for name, plain in before.items():
            np.testing.assert_array_equal(np.asarray(getattr(buffer, name)), plain, strict=True)
        fill_goals(buffer, 30)
        check_goals(buffer)
    assert n > 9


def test_an_array_that_something_else_has_keeps_its_form():
    buffer = compressed(Goals)(400, VECTOR, spaces.Discrete(2), "cpu", 2)
    view = buffer.goals[:100]
    held = {"flags": buffer.flags}
    fill_goals(buffer, 60)
    check_goals(buffer)
    assert type(buffer.goals) is type(buffer.flags) is np.ndarray
    np.testing.assert_array_equal(view[:60], buffer.goals[:60])
    assert held["flags"] is buffer.flags


def test_a_row_that_was_written_ahead_is_kept():
    buffer = compressed(Goals)(400, VECTOR, spaces.Discrete(2), "cpu", 2)
    buffer.goals[100] = 7
    buffer.flags[150] = 3
    fill_goals(buffer, 60)
    assert type(buffer.goals) is type(buffer.flags) is np.ndarray
    assert (buffer.goals[100] == 7).all()
    assert (buffer.flags[150] == 3).all()


def test_a_full_buffer_of_a_state_before_is_not_moved_at_once(monkeypatch):
    monkeypatch.setattr(base, "MOST_ROWS", 10)
    buffer = compressed(Goals)(400, VECTOR, spaces.Discrete(2), "cpu", 2)
    fill_goals(buffer, 60)
    assert type(buffer.goals) is np.ndarray


def test_actions_that_repeat_are_compressed_and_read_by_the_code_of_sb3():
    arguments = N_STEPS, VECTOR, spaces.Box(-9, 9, (300,)), "cpu"
    buffers = [RolloutBuffer(*arguments, n_envs=N_ENVS), CompressedRolloutBuffer(*arguments, n_envs=N_ENVS)]
    rest = np.zeros(N_ENVS), np.zeros(N_ENVS), torch.zeros(N_ENVS), torch.zeros(N_ENVS)
    for k in range(N_STEPS):
        action = np.random.default_rng(k // 10).random((N_ENVS, 300), np.float32)
        for buffer in buffers:
            buffer.add(np.zeros((N_ENVS, 3)), action, *rest)
    assert isinstance(buffers[1].actions, obscodec.TensorArray)
    assert_same_minibatches(buffers, 0, 30)
