"""With which frames a frame is compared, and in whose blocks it is: what a plan finds, and what it saves."""

import numpy as np
import pytest
from obscodec import AutoStore, FrameStore, Layout, ShapeError
from obscodec.stores import StoreOptions, find_plan
from obscodec.stores.auto.plan import StoragePlan

FRAME = Layout((24, 24), np.uint8)


def played(n, seed=0):
    """Different frames ``[n, 24, 24]``."""
    return np.random.default_rng(seed).integers(1, 255, (n, 24, 24), np.uint8)


def later(n_steps, after):
    """What a loop stores that adds an observation, and the one some steps later, with which of them are new."""
    frames = played(n_steps + after)
    return np.stack([frames[:n_steps], frames[after:]], 1).reshape(-1, 24, 24), n_steps + after


@pytest.mark.parametrize("codec", ["auto", "zstd:1"])
@pytest.mark.parametrize("after", [1, 2, 3, 5, 10])
def test_a_plan_finds_how_far_back_equal_frames_are(codec, after):
    stored, n_new = later(60, after)
    plan = find_plan(stored, np.zeros(len(stored), np.int64), StoreOptions(codec=codec))
    store = plan.new_store(FRAME, StoreOptions(codec=codec))
    store.append(stored)
    assert store.stats().n_tensors <= 1.1 * n_new
    assert (plan.recent == 3) == (after < 3)  # no more than it needs
    assert plan.recent <= 35
    assert StoragePlan.from_config(plan.config()).recent == plan.recent


def test_a_plan_of_a_former_version_says_nothing_of_recent_frames():
    config = StoragePlan(None, None, "raw", 1, None).config()
    del config["recent"]
    assert StoragePlan.from_config(config).new_store(FRAME, StoreOptions()).recent == 3


def test_a_given_number_of_recent_frames_is_taken():
    stored, n_new = later(60, 10)
    for recent, most in ((25, n_new), (3, len(stored))):
        store = AutoStore(FRAME, codec="raw", recent=recent)
        store.append(stored)
        store.decide()
        assert store.stats().n_tensors == most


@pytest.mark.parametrize("codec", ["auto", "zstd:3", "delta-rle"])
def test_interleaved_sequences_leave_one_block_open(codec):
    n_envs, worlds, taken = 64, np.random.default_rng(0).integers(0, 255, (8, 24, 24), np.uint8), {}
    for interleaved in (False, True):
        store = AutoStore(FRAME, codec=codec, block_frames=8, interleaved=interleaved)
        steps = []
        for t in range(8):
            frames = np.repeat(worlds, n_envs // 8, axis=0)
            frames[:, t] = np.arange(n_envs)[:, None]
            ids = store.append(frames, np.arange(n_envs))
            steps.append((ids, frames))
        store.decide()
        for ids, frames in steps:
            assert np.array_equal(store.read(ids), frames)
        taken[interleaved] = store.memory_bytes
        copied = AutoStore.from_arguments(store.arguments()) if hasattr(AutoStore, "from_arguments") else None
        assert copied is None or copied.options.interleaved is interleaved
    assert taken[True] < 0.6 * taken[False]


def test_stacks_are_not_interleaved():
    with pytest.raises(ShapeError, match="interleaved sequences have single frames, got stacks of 3"):
        FrameStore(Layout((3, 6, 5), np.uint8), frame_stack=3, interleaved=True)
    store = AutoStore(Layout((3, 6, 5), np.uint8), frame_stack=3, codec="raw", interleaved=True)
    frames = np.random.default_rng(0).integers(0, 255, (20, 6, 5), np.uint8)
    stacks = np.lib.stride_tricks.sliding_window_view(frames, 3, axis=0).transpose(0, 3, 1, 2)
    ids = store.append(stacks)
    store.decide()
    assert np.array_equal(store.read(ids), stacks)
