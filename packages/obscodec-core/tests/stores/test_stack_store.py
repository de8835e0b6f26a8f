"""A store of stacks gives back the stacks that it was given, over resets, truncation and whatever else games do."""

from collections import deque
from functools import partial

import numpy as np
import pytest
from atari_frames import frames
from hypothesis import given, settings
from hypothesis import strategies as st
from obscodec import FrameStack, FrameStore, Layout, SlotError
from obscodec.frames.kernels.stacks import expand_stacks
from obscodec.stores.auto.plan import find_frame_stack

GAMES = ["MsPacman", "Pong", "Breakout"]


def stacks_of(played: np.ndarray, starts: set[int], depth: int, *, padding: str, axis: int = 0) -> np.ndarray:
    """Stacks ``[n, ...]`` of frames ``[n, channels, h, w]``, made by hand; an episode begins at each of ``starts``.

    A padding of zeros is that of Stable-Baselines3's ``VecFrameStack``, the first frame again that of Gymnasium's
    ``FrameStackObservation``.
    """
    stacks = []
    last: deque[np.ndarray] = deque(maxlen=depth)
    for i, frame in enumerate(played):
        if i in starts:
            last.extend([np.zeros_like(frame) if padding == "zeros" else frame] * depth)
        last.append(frame)
        stacks.append(np.concatenate(last))
    stacked = np.stack(stacks)
    return stacked if axis == 0 else np.ascontiguousarray(np.moveaxis(stacked, 1, -1))


def store_for(stacks: np.ndarray, depth: int, axis: int = 0, **options) -> FrameStore:
    stack, layout = FrameStack(depth, axis), Layout(stacks.shape[1:], stacks.dtype)
    return FrameStore(layout, frame_stack=stack, **options)


def check(store: FrameStore, stacks: np.ndarray, ids: np.ndarray) -> None:
    np.testing.assert_array_equal(store.read(ids), stacks)
    which = np.random.default_rng(0).integers(len(ids), size=2 * len(ids))
    np.testing.assert_array_equal(store.read(ids[which]), stacks[which])


@pytest.mark.parametrize("padding", ["zeros", "first frame"])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_stacks_over_resets(padding, axis, depth):
    """Episodes of every length, shorter than the stack included."""
    game = GAMES[(padding == "zeros") == (axis == 0)]
    played = frames(game, 320, 0)[:, None]
    starts = {0, 1, 2, 5, 9, 40, 42, 150, 151, 152, 153, 318, 319}
    stacks = stacks_of(played, starts, depth, padding=padding, axis=axis)
    store = store_for(stacks, depth, axis)
    ids = np.concatenate([store.append(part) for part in np.array_split(stacks, 7)])
    check(store, stacks, ids)
    assert store.stats().n_tensors == np.count_nonzero(ids)


@pytest.mark.parametrize("padding", ["zeros", "first frame"])
def test_observations_and_next_observations_of_four_environments(padding):
    """As a replay buffer appends them; an episode that is truncated ends with a stack that no other follows."""
    n_envs, n_steps, depth = 4, 120, 4
    rng = np.random.default_rng(0)
    per_env = [
        frames(game, 320, 0)[at : at + n_steps + 1, None]
        for at, game in zip((0, 50, 0, 0), GAMES + GAMES[:1], strict=True)
    ]
    dones = rng.random((n_steps, n_envs)) < 0.1
    stacked = []
    for env, played in enumerate(per_env):
        starts = {0, *(np.flatnonzero(dones[:, env]) + 1).tolist()}
        observations = stacks_of(played, starts, depth, padding=padding)
        following = stacks_of(played, {0}, depth, padding=padding)
        last = [
            following[t + 1] if not dones[t, env] else np.concatenate([observations[t][1:], played[t + 1]])
            for t in range(n_steps)
        ]
        continued = [last[t] if dones[t, env] else observations[t + 1] for t in range(n_steps)]
        stacked.append((observations[:n_steps], np.stack(continued)))
    store = store_for(stacked[0][0], depth, recent=8)  # pictures blink, and come back after some frames
    streams = np.arange(n_envs)
    ids = []
    for t in range(n_steps):
        obs = np.stack([stacked[env][0][t] for env in range(n_envs)])
        next_obs = np.stack([stacked[env][1][t] for env in range(n_envs)])
        ids.append((store.append(obs, streams), store.append(next_obs, streams), obs, next_obs))
    for obs_ids, next_ids, obs, next_obs in ids:
        np.testing.assert_array_equal(store.read(obs_ids), obs)
        np.testing.assert_array_equal(store.read(next_ids), next_obs)
    distinct = sum(len(np.unique(played.reshape(len(played), -1), axis=0)) for played in per_env)
    assert store.log.stats().n_tensors <= 1.1 * distinct
    for obs_ids, next_ids, *_ in ids[: n_steps // 2]:
        store.release(np.concatenate([obs_ids, next_ids]))
    for obs_ids, next_ids, _, next_obs in ids[n_steps // 2 :]:
        np.testing.assert_array_equal(store.read(next_ids), next_obs)
        store.release(obs_ids)
        store.release(next_ids)
    assert store.stats().n_tensors == 0
    assert store.log.stats().n_tensors == 0


EQUAL = [t // 3 for t in range(180)]
STANDING = np.arange(100, 110).repeat([1, 1, 1, 1, 9, 1, 1, 2, 1, 1]).tolist()


@pytest.mark.parametrize(
    ("which", "starts", "padding", "n_frames"),
    [(EQUAL, {0, 77}, "zeros", None), (STANDING, {0}, "zeros", 10), ([100, 101] * 40, {0}, "first frame", 2)],
    ids=["consecutive frames are equal", "a picture stands still", "two frames alternate"],
)
def test_frames_that_come_again(which, starts, padding, n_frames):
    stacks = stacks_of(frames("Pong", 320, 0)[which][:, None], starts, 4, padding=padding)
    store = store_for(stacks, 4)
    ids = store.append(stacks)
    check(store, stacks, ids)
    assert n_frames in (None, store.log.stats().n_tensors)
    if which is STANDING:
        assert (ids[4:13] >= 0).all()  # no list: one, two, three, four times the same at the end


def in_colour(game: str) -> np.ndarray:
    """``u8[320, 84, 84, 3]``."""
    grey = frames(game, 320, 0)
    return np.stack([grey, np.roll(grey, 1, axis=1), 255 - grey], axis=-1)


@given(
    seed=st.integers(0, 2**32),
    depth=st.integers(1, 5),
    alphabet=st.integers(1, 5),
    axis=st.sampled_from([0, -1]),
    block_frames=st.sampled_from([1, 2, 16]),
)
@settings(deadline=None, max_examples=150)
def test_any_stacks_of_few_frames(seed, depth, alphabet, axis, block_frames):
    """Stacks of frames in any order, zeros among them, from three streams, some of them released on the way."""
    rng = np.random.default_rng(seed)
    pool = rng.integers(256, size=(alphabet, 1, 3, 3), dtype=np.uint8) * (np.arange(alphabet) > 0)[:, None, None, None]
    pool = pool.astype(np.uint8)
    which = rng.integers(alphabet, size=(60, depth))
    stacks = np.stack([np.concatenate(pool[row]) for row in which])
    stacks = stacks if axis == 0 else np.ascontiguousarray(np.moveaxis(stacks, 1, -1))
    streams = rng.integers(3, size=60)
    store = store_for(stacks, depth, axis, block_frames=block_frames)
    ids = np.zeros(60, np.int64)
    for first in range(0, 60, 6):
        part = slice(first, first + 6)
        gone = rng.permutation(first)[:3] if first else np.zeros(0, np.int64)
        gone = gone[ids[gone] != 0]
        ids[part] = store.append(stacks[part], streams[part])
        store.release(ids[gone])
        ids[gone] = 0
        alive = np.flatnonzero(ids)
        np.testing.assert_array_equal(store.read(ids[alive]), stacks[alive])
        assert store.stats().n_tensors == len(alive)
    store.release(ids)
    assert store.stats().n_tensors == store.log.stats().n_tensors == 0


@pytest.mark.parametrize("n_envs", [1, 4])
def test_bookkeeping_of_a_transition(n_envs):
    """The tables, and two ids of four bytes for obs and next_obs, take 32 bytes or less."""
    n_steps = 880 // n_envs
    played = frames("MsPacman", 900, 0)[:, None]
    starts = {0, 200, 400, 600}
    store = store_for(stacks_of(played[:4], {0}, 4, padding="zeros"), 4)
    stacks = stacks_of(played, starts, 4, padding="zeros")
    streams = np.arange(n_envs)
    for t in range(n_steps):
        at = t + streams * n_steps
        store.append(stacks[at], streams)
        store.append(stacks[at + 1], streams)
    transitions = n_steps * n_envs
    assert store.stats().table_bytes / transitions + 2 * 4 <= 32


@pytest.mark.parametrize("n_envs", [1, 4])
@pytest.mark.parametrize(("depth", "channels"), [(4, 1), (3, 1), (4, 3)])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("padding", ["zeros", "first frame"])
def test_the_frame_stack_is_found(n_envs, depth, channels, axis, padding):
    game = GAMES[(padding == "zeros") == (axis == 0)]
    grey = frames(game, 320, 0)
    played = np.stack([np.roll(grey, i, axis=2) for i in range(channels)], axis=1)[100:]
    n_steps = 200 // n_envs
    per_env = [
        stacks_of(played[env * n_steps : (env + 1) * n_steps], {0, 10, 33}, depth, padding=padding, axis=axis)
        for env in range(n_envs)
    ]
    interleaved = np.stack(per_env, axis=1).reshape(-1, *per_env[0].shape[1:])
    found = find_frame_stack(interleaved, np.tile(np.arange(n_envs), n_steps))
    assert found == FrameStack(depth, axis)
    for after in (1, 2, 3):  # as an n-step return
        n = after * n_envs
        with_later = np.stack([interleaved[:-n], interleaved[n:]], axis=1).reshape(-1, *interleaved.shape[1:])
        assert find_frame_stack(with_later, np.arange(len(with_later)) // 2 % n_envs) == found


RNG = np.random.default_rng(0)
IMAGES = {
    "noise": lambda: RNG.integers(256, size=(100, 4, 20, 20), dtype=np.uint8),
    "colour noise": lambda: RNG.integers(256, size=(100, 20, 20, 3), dtype=np.uint8),
    "zeros": lambda: np.zeros((100, 4, 20, 20), np.uint8),
    "vectors": lambda: RNG.normal(size=(100, 64)).astype(np.float32),
    "scalars in an axis": lambda: np.arange(100, dtype=np.uint8).reshape(100, 1),
    "scalars": lambda: np.zeros((100,), np.uint8),
    "few": lambda: np.zeros((3, 4, 8, 8), np.uint8),
    "counting": lambda: np.arange(100 * 4 * 64, dtype=np.int64).reshape(100, 4, 8, 8),
    **{game: partial(frames, game, 320, 0) for game in GAMES},
    **{f"{game} in colour": partial(in_colour, game) for game in GAMES},
}


@pytest.mark.parametrize("kind", IMAGES)
def test_no_frame_stack_is_found_where_there_is_none(kind):
    images = IMAGES[kind]()
    assert find_frame_stack(images, np.zeros(len(images), np.int64)) is None


@pytest.mark.parametrize("listed", [False, True])
def test_a_stack_is_released_once(listed):
    rng = np.random.default_rng(0)
    played = rng.integers(256, size=(9, 1, 6, 6), dtype=np.uint8)
    stacks = stacks_of(played[[0, 1, 2, 3, 0, 2, 5, 6] if listed else np.arange(8)], {0}, 4, padding="zeros")[4:6]
    store = store_for(stacks, 4)
    ids = store.append(stacks)
    assert (ids[1] < 0) == listed
    if listed:
        with pytest.raises(SlotError, match=f"^id {ids[1]} is released twice, it stands for one stack$"):
            store.release(ids[[1, 0, 1]])
        check(store, stacks, ids)
    store.release(ids[1:])
    unknown = f"id {ids[1]} is of no stack in this store" if listed else r"id \d+ is of no frame in this store"
    for call in (store.release, store.read):
        with pytest.raises(SlotError, match=f"^{unknown}"):
            call(ids[1:])
    check(store, stacks[:1], ids[:1])
    assert store.stats().n_tensors == 1


def test_a_row_that_the_table_does_not_have_is_of_no_stack():
    """Another thread may have made a larger table, and counted rows of that."""
    listed, frames = np.zeros((4, 2), np.int32), np.zeros((1, 2), np.int64)
    assert expand_stacks(np.array([-5]), np.zeros(16, np.int32), listed, 9, frames) == 0
    assert expand_stacks(np.array([-4]), np.zeros(16, np.int32), listed, 9, frames) == 1
