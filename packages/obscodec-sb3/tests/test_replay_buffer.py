"""CompressedReplayBuffer gives what ReplayBuffer gives."""

import pickle
import re

import numpy as np
import obscodec
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from obscodec_sb3 import CompressedReplayBuffer
from obscodec_sb3.assignable import check_assignable
from same_samples import assert_same_samples
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

SPACES = {
    "channel-first images": spaces.Box(0, 255, (4, 12, 12), np.uint8),
    "channel-last images": spaces.Box(0, 255, (12, 12, 3), np.uint8),
    "float images": spaces.Box(-np.inf, np.inf, (1, 20, 20), np.float32),
    "float64 vectors": spaces.Box(-np.inf, np.inf, (5,), np.float64),
    "float32 vectors": spaces.Box(-np.inf, np.inf, (5,), np.float32),
    "discrete": spaces.Discrete(9),
    "multi-discrete": spaces.MultiDiscrete([3, 4]),
    "multi-binary": spaces.MultiBinary(6),
}
ACTIONS = {"discrete": spaces.Discrete(4), "continuous": spaces.Box(-1, 1, (2,), np.float32)}
Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[dict[str, object]]]


def random_observation(space: spaces.Space, n_envs: int, rng: np.random.Generator) -> np.ndarray:
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        return rng.integers(256, size=(n_envs, *space.shape), dtype=np.uint8)
    if isinstance(space, spaces.Box):
        return rng.normal(size=(n_envs, *space.shape))  # float64, as environments often give it
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=n_envs)
    return rng.integers(2, size=(n_envs, *space.shape)).astype(space.dtype)


def random_steps(space: spaces.Space, action_space: spaces.Space, n_envs: int, n: int, seed: int) -> list[Step]:
    rng = np.random.default_rng(seed)
    steps = []
    obs = random_observation(space, n_envs, rng)
    for _ in range(n):
        next_obs = random_observation(space, n_envs, rng)
        discrete = isinstance(action_space, spaces.Discrete)
        action = rng.integers(4, size=n_envs) if discrete else rng.normal(size=(n_envs, 2)).astype(np.float32)
        done = rng.random(n_envs) < 0.2
        infos = [{"TimeLimit.truncated": True, "terminal_observation": obs} if rng.random() < 0.3 else {} for _ in done]
        steps.append((obs, next_obs, action, rng.normal(size=n_envs), done, infos))
        obs = next_obs
    return steps


EARLY = {"decide_after": 5, "block_frames": 2}  # stores of a few steps decide, and encode


def both(
    space: spaces.Space,
    buffer_size: int,
    n_envs: int = 1,
    *,
    action_space: spaces.Space = ACTIONS["discrete"],
    codec: str | None = "zstd:1",
    deciding: dict[str, int] | None = None,
    **options: bool,
) -> tuple[ReplayBuffer, CompressedReplayBuffer]:
    arguments = (buffer_size, space, action_space, "cpu", n_envs)
    ours = {"codec": codec, "min_nbytes": 0, **(EARLY if deciding is None else deciding)}
    return ReplayBuffer(*arguments, **options), CompressedReplayBuffer(*arguments, **options, **ours)


def add(step: Step, *buffers: ReplayBuffer) -> None:
    for buffer in buffers:
        buffer.add(*step)


def assert_alike(stock: ReplayBuffer, compressed: ReplayBuffer, env: VecNormalize | None = None) -> None:
    assert (stock.pos, stock.full, stock.size()) == (compressed.pos, compressed.full, compressed.size())
    for seed in range(2):
        assert_same_samples(stock, compressed, seed=seed, env=env)


def assert_same_contents(stock: ReplayBuffer, compressed: CompressedReplayBuffer) -> None:
    for name in ("actions", "rewards", "dones", "timeouts"):
        np.testing.assert_array_equal(getattr(compressed, name), getattr(stock, name), strict=True)
    n = stock.size()
    if stock.optimize_memory_usage:  # the stock buffer has overwritten the oldest observation by the newest next one
        steps = [i for i in range(n) if not (stock.full and i == stock.pos)]
        following = (np.array(steps, int) + 1) % stock.buffer_size
        np.testing.assert_array_equal(compressed.observations[steps], stock.observations[steps], strict=True)
        np.testing.assert_array_equal(compressed.next_observations[steps], stock.observations[following], strict=True)
        return
    for name in ("observations", "next_observations"):
        np.testing.assert_array_equal(getattr(compressed, name)[:], getattr(stock, name), strict=True)


MEMORY_OPTIONS = [
    {"optimize_memory_usage": False, "handle_timeout_termination": True},
    {"optimize_memory_usage": False, "handle_timeout_termination": False},
    {"optimize_memory_usage": True, "handle_timeout_termination": False},
]


@pytest.mark.parametrize("options", range(len(MEMORY_OPTIONS)), ids=["timeouts", "no timeouts", "optimized"])
@pytest.mark.parametrize("space", SPACES)
def test_samples_are_those_of_the_stock_buffer(space, options):
    n_envs = (1, 3)[(list(SPACES).index(space) + options) % 2]
    space, options = SPACES[space], MEMORY_OPTIONS[options]
    stock, compressed = both(space, 20 * n_envs + 1, n_envs, **options)
    for i, step in enumerate(random_steps(space, ACTIONS["discrete"], n_envs, 50, seed=0)):
        add(step, stock, compressed)
        if i in (0, 7, 19, 20, 49):
            assert_alike(stock, compressed)
    assert_same_contents(stock, compressed)


@pytest.mark.slow
@given(
    space=st.sampled_from(list(SPACES.values())),
    action_space=st.sampled_from(list(ACTIONS.values())),
    buffer_size=st.integers(1, 30),
    n_envs=st.sampled_from([1, 2, 3]),
    options=st.sampled_from(MEMORY_OPTIONS),
    codec=st.sampled_from(["zstd:1", "delta-rle", "auto"]),
    deciding=st.sampled_from([EARLY, {"decide_after": 1, "block_frames": 3}, {"decide_after": 20}, {}]),
    n_steps=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=100)
def test_random_programs(space, action_space, buffer_size, n_envs, options, codec, deciding, n_steps, seed):
    ours = {"codec": codec, "deciding": deciding}
    stock, compressed = both(space, buffer_size, n_envs, action_space=action_space, **ours, **options)
    rng = np.random.default_rng(seed)
    can_sample = buffer_size // n_envs > 1 or not options["optimize_memory_usage"]  # SB3 draws from an empty range
    for step in random_steps(space, action_space, n_envs, n_steps, seed):
        add(step, stock, compressed)
        if rng.random() < 0.1:
            compressed = pickle.loads(pickle.dumps(compressed))
        if rng.random() < 0.05:
            stock.reset()
            compressed.reset()
        elif can_sample and rng.random() < 0.3:
            assert_alike(stock, compressed)
    assert_same_contents(stock, compressed)


def test_normalized_samples_are_those_of_the_stock_buffer():
    import gymnasium

    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2))
    stock, compressed = both(env.observation_space, 40, 2)
    env.reset()
    obs = env.get_original_obs()
    for _ in range(50):
        action = np.array([env.action_space.sample() for _ in range(2)])
        _, _, done, infos = env.step(action)
        step = (obs, env.get_original_obs(), action, env.get_original_reward(), done, infos)
        add(step, stock, compressed)
        obs = step[1]
    assert_alike(stock, compressed, env=env)


def test_rewards_and_flags_may_have_axes_of_length_one_in_front():
    space = SPACES["channel-first images"]
    stock, compressed = both(space, 20)
    for obs, next_obs, action, reward, done, infos in random_steps(space, ACTIONS["discrete"], 1, 9, seed=0):
        truncated = np.array([infos[0].get("TimeLimit.truncated", False)])
        for buffer in (stock, compressed):
            buffer.add(obs, next_obs, action, reward[None], float(done[0]), [{"TimeLimit.truncated": truncated}])
    assert_same_contents(stock, compressed)


def test_extend_adds_what_add_does():
    space = SPACES["channel-first images"]
    stock, compressed = both(space, 20)
    columns = list(zip(*random_steps(space, ACTIONS["discrete"], 1, 30, seed=0), strict=True))
    stock.extend(*columns)
    compressed.extend(*columns)
    assert_same_contents(stock, compressed)


GOOD = random_steps(SPACES["channel-first images"], ACTIONS["discrete"], 2, 1, seed=1)[0]
IMAGES = "observations: expected shape (2, 4, 12, 12), got (2, 3, 12, 12)"
CAST = (
    "observations: values of dtype float64, such as {}, would be changed by dtype uint8: cast them yourself, or use a "
    "dtype that can hold them"
)
MASK = "a MaskedArray would lose its mask: fill it, as in x.filled(0), or store x.data and x.mask as two arrays"
INFOS = "infos must be a list of a dict for each environment, got "
REFUSED = {
    "shape of obs": (0, GOOD[0][:, 1:], obscodec.ShapeError, IMAGES),
    "shape of next_obs": (1, GOOD[1][:, 1:], obscodec.ShapeError, IMAGES),
    "dtype of obs": (0, GOOD[0] + 0.5, obscodec.DTypeError, CAST.format(GOOD[0].flat[0] + 0.5)),
    "dtype of next_obs": (1, GOOD[1] + 0.5, obscodec.DTypeError, CAST.format(GOOD[1].flat[0] + 0.5)),
    "action": (2, np.zeros(3), obscodec.ShapeError, "expected actions of shape (2, 1) (n_envs=2), got (3,)"),
    "reward": (3, np.zeros(3), obscodec.ShapeError, "expected rewards of shape (2,), got (3,)"),
    "done": (4, np.zeros(3), obscodec.ShapeError, "expected dones of shape (2,), got (3,)"),
    "number of infos": (5, [{}], obscodec.ShapeError, "expected infos of 2 environments, got 1"),
    "infos": (5, [None, None], obscodec.DTypeError, f"{INFOS}[None, None]"),
    "no infos": (5, None, obscodec.DTypeError, f"{INFOS}None"),
    "actions of other lengths": (
        2,
        [[0], [1, 2]],
        obscodec.DTypeError,
        "expected an array, or numbers in lists of equal lengths, got [[0], [1, 2]]",
    ),
    "masked obs": (0, np.ma.masked_array(GOOD[0]), obscodec.DTypeError, f"observations: {MASK}"),
    "masked next_obs": (1, np.ma.masked_array(GOOD[1]), obscodec.DTypeError, f"observations: {MASK}"),
    "masked actions": (2, np.ma.masked_array([0, 1]), obscodec.DTypeError, MASK),
    "masked rewards": (3, np.ma.masked_array([0.0, 1.0]), obscodec.DTypeError, MASK),
    "masked dones": (4, [np.ma.masked_array(0), 1], obscodec.DTypeError, MASK),
    "text for obs": (0, "10", obscodec.ShapeError, "observations: expected shape (2, 4, 12, 12), got ()"),
    "text for rewards": (
        3,
        ["1", "2"],
        obscodec.DTypeError,
        "rewards must be numbers that float32 can hold, got ['1', '2']",
    ),
    "None for dones": (4, [None, 0], obscodec.DTypeError, "dones must be numbers that float32 can hold, got [None, 0]"),
}


@pytest.mark.parametrize("options", MEMORY_OPTIONS[::2], ids=["timeouts", "optimized"])
@pytest.mark.parametrize("n_steps", [0, 7, 9, 25])
@pytest.mark.parametrize(("at", "value", "error", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_add_changes_nothing(at, value, error, text, n_steps, options):
    if at == 5 and not options["handle_timeout_termination"]:
        pytest.skip("without timeouts nobody reads the infos")
    space = SPACES["channel-first images"]
    stock, compressed = both(space, 20, 2, **options)
    *steps, last = random_steps(space, ACTIONS["discrete"], 2, n_steps + 1, seed=0)
    for step in steps:
        add(step, stock, compressed)
    bad = (*GOOD[:at], value, *GOOD[at + 1 :])
    for _ in range(50):  # more often than there are free slots
        with pytest.raises(error, match=f"^{re.escape(text)}$"):
            compressed.add(*bad)
    assert_same_contents(stock, compressed)
    add(last, stock, compressed)
    assert_same_contents(stock, compressed)


def test_a_refused_add_changes_nothing_in_an_uncompressed_buffer():
    space = SPACES["float32 vectors"]
    stock, compressed = both(space, 5, codec=None)
    assert compressed.observation_store is None
    *steps, last = random_steps(space, ACTIONS["discrete"], 1, 9, seed=0)
    for step in steps:
        add(step, stock, compressed)
    with pytest.raises(ValueError, match="expected"):
        compressed.add(last[0], last[1][:, 1:], *last[2:])
    assert_same_contents(stock, compressed)


def test_images_are_compressed_by_default_and_vectors_are_not():
    action_space = ACTIONS["discrete"]
    images = CompressedReplayBuffer(100, spaces.Box(0, 255, (4, 84, 84), np.uint8), action_space, "cpu")
    vectors = CompressedReplayBuffer(100, SPACES["float32 vectors"], action_space, "cpu")
    assert images.observation_store is not None
    assert vectors.observation_store is None
    assert isinstance(vectors.observations, np.ndarray)


def test_a_number_that_is_too_large_is_refused():
    text = "actions must be numbers that int64 can hold, got [1180591620717411303424, 1]"
    with pytest.raises(obscodec.DTypeError, match=f"^{re.escape(text)}$"):
        check_assignable("actions", [2**70, 1], np.zeros((5, 2), np.int64))


SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@given(SHAPES, SHAPES, st.booleans())
def test_what_numpy_assigns_can_be_assigned(given_shape, shape, as_list):
    value = np.zeros(given_shape)
    try:
        np.empty(shape)[...] = value
    except ValueError:
        text = f"expected rewards of shape {shape}, got {given_shape}"
        with pytest.raises(obscodec.ShapeError, match=f"^{re.escape(text)}$"):
            check_assignable("rewards", value, np.empty((5, *shape)))
    else:
        check_assignable("rewards", value.tolist() if as_list and value.size else value, np.empty((5, *shape)))


@pytest.mark.parametrize("handle_timeout_termination", [True, False])
def test_next_observations_are_those_of_the_environment_with_any_memory_option(handle_timeout_termination):
    space = SPACES["channel-first images"]
    steps = random_steps(space, ACTIONS["discrete"], 2, 25, seed=0)
    rng = np.random.default_rng(1)
    steps = [(obs, random_observation(space, 2, rng), *rest) for obs, _, *rest in steps]  # all episodes end
    buffer = CompressedReplayBuffer(
        20, space, ACTIONS["discrete"], "cpu", 2, optimize_memory_usage=True,
        handle_timeout_termination=handle_timeout_termination, codec="zstd:1", **EARLY,
    )  # fmt: skip
    for step in steps:
        buffer.add(*step)
    for i, (obs, next_obs, *_) in enumerate(steps[-10:], start=15):
        np.testing.assert_array_equal(buffer.observations[i % 10], obs)
        np.testing.assert_array_equal(buffer.next_observations[i % 10], next_obs)


def test_both_memory_options_at_once_draw_as_the_stock_buffer_optimizes():
    space = SPACES["channel-first images"]
    both_on = CompressedReplayBuffer(20, space, ACTIONS["discrete"], "cpu", 1, True, True, codec="zstd:1", **EARLY)
    stock = ReplayBuffer(20, space, ACTIONS["discrete"], "cpu", 1, True, False)
    for step in random_steps(space, ACTIONS["discrete"], 1, 33, seed=0):
        add(step, both_on, stock)
    np.random.seed(0)
    expected = stock.sample(50).rewards
    np.random.seed(0)
    assert both_on.sample(50).rewards.tolist() == expected.tolist()
    assert both_on.timeouts.any()
