"""A replay buffer with a limit of memory samples the steps that are left; one that spills, what SB3's does."""

import pickle
import re

import numpy as np
import pytest
import torch
from gymnasium import spaces
from obscodec import ShapeError
from obscodec_sb3 import (
    CompressedDictReplayBuffer,
    CompressedHerReplayBuffer,
    CompressedNStepReplayBuffer,
    CompressedReplayBuffer,
    CompressedRolloutBuffer,
    compressed,
)
from same_samples import assert_same_samples
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer, RolloutBuffer

IMAGE = spaces.Box(0, 255, (1, 48, 48), np.uint8)
BOTH = spaces.Dict(image=IMAGE, vector=spaces.Box(-np.inf, np.inf, (1,)))
GOAL = spaces.Box(-np.inf, np.inf, (1,))
GOALS = spaces.Dict({"observation": IMAGE, "achieved_goal": GOAL, "desired_goal": GOAL})
EARLY = {"decide_after": 16, "codec": "delta-rle", "min_nbytes": 1024}
LIMIT = 1_000_000
EPISODE = 7


class GoalEnv:
    """What HerReplayBuffer asks an environment for."""

    def env_method(self, name, achieved, desired, infos, indices):
        return [np.zeros(len(achieved))]


def image(k: int, n_envs: int) -> np.ndarray:
    """An image that tells its number, and is half noise."""
    rng = np.random.default_rng(k)
    images = np.zeros((n_envs, *IMAGE.shape), np.uint8)
    images[:, :, :24] = rng.integers(256, size=(n_envs, 1, 24, 48), dtype=np.uint8)
    images[:, 0, 0, :2] = k % 256, k // 256
    return images


def numbers(images) -> np.ndarray:
    return images[:, 0, 0, 0].numpy().astype(int) + 256 * images[:, 0, 0, 1].numpy().astype(int)


def observation(space: spaces.Space, k: int, n_envs: int):
    if space == IMAGE:
        return image(k, n_envs)
    return {key: image(k, n_envs) if of == IMAGE else np.full((n_envs, 1), k, np.float32) for key, of in space.items()}


def add(buffer: ReplayBuffer, k: int) -> None:
    """Step ``k``: its reward is ``k``, its observation and the next one have the numbers ``k`` and ``k + 1``."""
    n, space = buffer.n_envs, buffer.observation_space
    done = np.array([(k + env) % EPISODE == 0 for env in range(n)])
    infos = [{"TimeLimit.truncated": bool(k % 2)}] * n
    buffer.add(observation(space, k, n), observation(space, k + 1, n), np.zeros((n, 1)), np.full(n, k), done, infos)


KINDS = {
    "plain": (CompressedReplayBuffer, ReplayBuffer, IMAGE, {}),
    "all but the oldest": (
        CompressedReplayBuffer,
        ReplayBuffer,
        IMAGE,
        {"optimize_memory_usage": True, "handle_timeout_termination": False},
    ),
    "prefetched": (CompressedReplayBuffer, ReplayBuffer, IMAGE, {"prefetch": True}),
    "dictionaries": (CompressedDictReplayBuffer, DictReplayBuffer, BOTH, {}),
    "n steps": (CompressedNStepReplayBuffer, NStepReplayBuffer, IMAGE, {"n_steps": 3, "gamma": 1.0}),
    "goals": (
        CompressedHerReplayBuffer,
        HerReplayBuffer,
        GOALS,
        {"env": GoalEnv(), "goal_selection_strategy": "future"},
    ),
    "final goals": (
        CompressedHerReplayBuffer,
        HerReplayBuffer,
        GOALS,
        {"env": GoalEnv(), "goal_selection_strategy": "final"},
    ),
}


def made(kind: str, buffer_size: int, n_envs: int = 2, **limit):
    ours, _, space, options = KINDS[kind]
    return ours(
        buffer_size * n_envs, space, spaces.Discrete(4), device="cpu", n_envs=n_envs, **options, **EARLY, **limit
    )


def check_sample(buffer: ReplayBuffer, newest: int, lag: int = 0) -> None:
    """All that is sampled belongs together, and is of steps that are left."""
    sampled, oldest = buffer.sample(64), newest + 1 - buffer.size() - lag
    obs, after = sampled.observations, sampled.next_observations
    if isinstance(obs, dict):
        key = "image" if "image" in obs else "observation"
        k, k_next = numbers(obs[key]), numbers(after[key])
    else:
        k, k_next = numbers(obs), numbers(after)
    assert oldest <= k.min() <= k.max() <= newest
    if isinstance(buffer, NStepReplayBuffer):
        n = k_next - k
        assert ((n >= 1) & (n <= 3)).all()
        assert k_next.max() <= newest + 1
        np.testing.assert_array_equal(sampled.rewards[:, 0], n * k + n * (n - 1) // 2)
        return
    np.testing.assert_array_equal(k_next, k + 1)
    if isinstance(buffer, HerReplayBuffer):
        goals = obs["desired_goal"][:, 0].numpy()[64 - int(0.8 * 64) :]
        assert ((oldest < goals) & (goals <= newest + 1)).all()
        assert (goals - k[64 - int(0.8 * 64) :] <= EPISODE).all()
    else:
        np.testing.assert_array_equal(sampled.rewards[:, 0], k)


@pytest.mark.filterwarnings("ignore:.*max_bytes")
@pytest.mark.parametrize("n_envs", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_limited_buffer_samples_the_steps_that_are_left(kind, n_envs):
    buffer_size, a_chunk = 840 // n_envs, 16 * 16 * 24 * 48
    buffer, sizes = made(kind, buffer_size, n_envs, max_bytes=LIMIT), []
    for k in range(1, 1000):
        add(buffer, k)
        sizes.append(buffer.size())
        if k > 20 and k % 15 == 0:
            check_sample(buffer, k, 1000 * (kind == "prefetched"))
            assert buffer.stats().total_bytes < LIMIT + a_chunk + 16 * n_envs * 4 * 48 * 48
    assert min(sizes[100:]) >= 16
    assert max(sizes) < buffer_size
    assert len({*sizes[-200:]}) > 1
    rebuilt = pickle.loads(pickle.dumps(buffer))
    if isinstance(rebuilt, HerReplayBuffer):
        rebuilt.set_env(GoalEnv())
    for k in range(1000, 1100):
        add(rebuilt, k)
    check_sample(rebuilt, 1099, 1000 * (kind == "prefetched"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_buffer_that_spills_samples_as_that_of_sb3(kind, tmp_path):
    _, stock, space, options = KINDS[kind]
    options = {name: value for name, value in options.items() if name != "prefetch"}
    ours = made(kind, 420, max_bytes=LIMIT, spill=tmp_path)
    theirs = stock(840, space, spaces.Discrete(4), device="cpu", n_envs=2, **options)
    for k in range(1, 520):
        add(ours, k)
        add(theirs, k)
    assert ours.stats().disk_bytes > 200_000
    assert ours.stats().total_bytes < LIMIT + 16 * 2 * 4 * 48 * 48
    for seed in range(3):
        if kind in ("prefetched",):
            check_sample(ours, 519)
            continue
        assert_same_samples(theirs, ours, 50, seed)


@pytest.mark.parametrize("spills", [False, True])
def test_a_limit_that_uncompressed_observations_exceed_is_refused_at_once(spills, tmp_path):
    def new(size, max_bytes):
        vectors = spaces.Box(-1, 1, (30,))  # 120 bytes, which are not compressed
        options = {"max_bytes": max_bytes, "spill": tmp_path if spills else None}
        return CompressedReplayBuffer(size, vectors, spaces.Discrete(4), "cpu", **options)

    with pytest.raises(
        ShapeError, match=r"^max_bytes must be [\d,]+ or more for 10,000 steps, got 1,000,000: unc"
    ) as told:
        new(10_000, 1_000_000)
    found = re.search(r"must be ([\d,]+) or .*room for ([\d,]+) steps", str(told.value))
    least, n_fit = (int(number.replace(",", "")) for number in found.groups())
    assert (new(10_000, least).max_bytes, new(n_fit, 1_000_000).buffer_size) == (least, n_fit)


def test_a_buffer_is_loaded_with_another_limit(tmp_path):
    buffer = made("plain", 420, max_bytes=LIMIT, spill=tmp_path / "spill")
    for k in range(1, 420):
        add(buffer, k)
    buffer.save(tmp_path / "saved")
    for limit in (LIMIT, 1 << 30):
        loaded = CompressedReplayBuffer.load(
            tmp_path / "saved", max_bytes=limit, spill=tmp_path / "spill", device="cpu"
        )
        for k in range(420, 460):
            add(loaded, k)
        assert loaded.max_bytes == limit
        assert (loaded.stats().disk_bytes == 0) == (limit > LIMIT)
        check_sample(loaded, 459)
    with pytest.raises(ShapeError, match=r"has a buffer that does not fit: .*Pass a larger max_bytes to load$"):
        CompressedReplayBuffer.load(tmp_path / "saved", max_bytes=1000, spill=tmp_path / "spill", device="cpu")


def test_a_limit_that_is_not_reached_changes_no_random_number():
    buffers = [made("plain", 100, max_bytes=limit) for limit in (None, 1 << 30)]
    for k in range(1, 150):
        for buffer in buffers:
            add(buffer, k)
        if k % 30 == 0:
            assert_same_samples(*buffers, 20, k)
    assert buffers[1]._direct is not None
    assert buffers[1].stats().steps_that_fit > 1000
    assert buffers[0].stats().steps_that_fit is None


@pytest.mark.filterwarnings("ignore:.*max_bytes")
@pytest.mark.parametrize("kind", ["plain", "dictionaries", "goals"])
def test_a_saved_buffer_goes_on_with_what_is_left(kind, tmp_path):
    buffer = made(kind, 420, max_bytes=LIMIT)
    for k in range(1, 700):
        add(buffer, k)
    buffer.save(tmp_path)
    more = {"env": GoalEnv()} if kind == "goals" else {}
    loaded = type(buffer).load(tmp_path, device="cpu", **more)
    assert 0 < loaded.size() == buffer.size() < 420
    for k in range(700, 800):
        check_sample(loaded, k - 1)
        add(loaded, k)
    assert loaded.arguments()["max_bytes"] == LIMIT


class Latest(ReplayBuffer):
    def sample(self, batch_size, env=None):
        return self._get_samples(np.arange(self.pos - batch_size, self.pos), env)


class Counted(CompressedReplayBuffer):
    def sample(self, *args):
        return super().sample(*args)


class OtherGoals(HerReplayBuffer):
    def sample(self, *args):
        return super().sample(*args)


@pytest.mark.parametrize("kind", [compressed(Latest), Counted, compressed(OtherGoals)])
def test_a_class_that_samples_in_its_own_way_needs_a_folder(kind, tmp_path):
    more = {"env": None} if issubclass(kind, HerReplayBuffer) else {}
    arguments = (100, GOALS if more else IMAGE, spaces.Discrete(4))
    why = "and this class samples in its own way, which could draw them"
    text = f"max_bytes drops the oldest steps, {why}: pass spill, too, or leave max_bytes out"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        kind(*arguments, **more, max_bytes=LIMIT)
    kind(*arguments, **more, max_bytes=LIMIT, spill=tmp_path)


def test_a_rollout_needs_all_its_steps(tmp_path):
    text = "max_bytes drops the oldest steps, and a rollout needs all of them: pass spill, too, or leave max_bytes out"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        CompressedRolloutBuffer(100, IMAGE, spaces.Discrete(4), max_bytes=LIMIT)
    ours = CompressedRolloutBuffer(
        400, IMAGE, spaces.Discrete(4), "cpu", **EARLY, n_envs=2, max_bytes=LIMIT // 2, spill=tmp_path
    )
    theirs = RolloutBuffer(400, IMAGE, spaces.Discrete(4), "cpu", n_envs=2)
    for _ in range(2):
        for buffer in (ours, theirs):
            buffer.reset()
            for k in range(400):
                buffer.add(image(k, 2), np.zeros((2, 1)), np.ones(2), np.zeros(2), torch.zeros(2), torch.zeros(2))
        assert ours.stats().disk_bytes > 200_000
        np.random.seed(0)
        expected = [batch.observations for batch in theirs.get(64)]
        np.random.seed(0)
        for found, wanted in zip(ours.get(64), expected, strict=True):
            assert (found.observations == wanted).all()
