"""DirtyRows names the rows of an array whose ids changed, whoever assigned to them."""

import copy
import gc
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obscodec import Field, FrameStore, Layout, RingBuffer, ShapeError, TensorArray
from obscodec.arrays import WriteBuffer

ITEM = Layout((2, 3), np.uint8)
INDICES = [
    3, -1, slice(2, 5), slice(None, None, 3), [1, 4, -2], (np.array([2, 2, 6]), np.array([0, 1, 1])), (slice(None), 1),
    ..., (5, 0), np.arange(8) % 3 == 0, (np.arange(8) % 3 == 0, 1), np.ones((8, 2), bool), np.array([], int),
    np.int64(7),
]  # fmt: skip


def noise(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 256, size=(n, *ITEM.shape), dtype=np.uint8)


def follow(array: TensorArray, watch, copied: np.ndarray) -> int:
    """Bring a copy of the ids up to date by the rows that are named; how many these are."""
    ids = array.ids
    rows = watch.drain()
    assert rows.tolist() == sorted(set(rows.tolist()))
    copied[rows] = ids[rows]
    np.testing.assert_array_equal(copied, ids)
    return len(rows)


@pytest.mark.parametrize("waits", [False, True])
@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(INDICES), st.booleans(), st.booleans()), max_size=8))
def test_a_copy_of_the_ids_stays_right(waits, assigned):
    store = FrameStore(ITEM)
    array = TensorArray.zeros((8, 2), store, WriteBuffer(store, 2) if waits else None)
    watch, copied = array.watch(), np.full((8, 2), -1)
    assert follow(array, watch, copied) == 8
    for seed, (index, through_view, follows) in enumerate(assigned):
        target = array.reshape(8, 2, *ITEM.shape) if through_view else array
        target[index] = noise(1, seed)[0]
        if follows:
            follow(array, watch, copied)
    follow(array, watch, copied)
    assert follow(array, watch, copied) == 0


def test_rows_that_nobody_takes_need_little_memory():
    array = TensorArray.zeros((8000, 1), FrameStore(ITEM))
    watch = array.watch()
    watch.drain()
    tracemalloc.start()
    for row in range(8000):
        watch.note((row,))
    nbytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert nbytes < 100_000
    assert watch.drain().tolist() == list(range(8000))


def test_only_rows_that_were_assigned_to_are_named():
    array = TensorArray.zeros((8, 2), FrameStore(ITEM))
    watch = array.watch()
    watch.drain()
    array[3] = noise(2, 0)
    array[[6, -3], 1] = noise(2, 1)
    assert watch.drain().tolist() == [3, 5, 6]
    array.assign_ids((slice(1, 3), 0), np.zeros(2, np.int64))
    assert watch.drain().tolist() == [1, 2]
    array.clear()
    assert watch.drain().tolist() == list(range(8))


@pytest.mark.parametrize(("view", "index"), [
    (lambda array: array.swapaxes(0, 1), (1, 5)), (lambda array: array.reshape(16, *ITEM.shape), slice(9, 13)),
    (lambda array: array.transpose(1, 0, 2, 3), 0),
])  # fmt: skip
def test_what_is_assigned_through_a_view_is_named(view, index):
    array = TensorArray.zeros((8, 2), FrameStore(ITEM))
    watch, copied = array.watch(), np.zeros((8, 2), int)
    watch.drain()
    view(array)[index] = noise(1, 0)[0]
    assert follow(array, watch, copied) > 0


def test_each_watch_has_its_own_view_and_one_that_is_gone_costs_nothing():
    array = TensorArray.zeros((8, 2), FrameStore(ITEM))
    one, other = array.watch(), array.watch()
    one.drain()
    array[3] = noise(2, 0)
    assert one.drain().tolist() == [3]
    assert len(other.drain()) == 8
    del one, other
    gc.collect()
    array[4] = noise(2, 0)
    assert array._watches == []


def test_a_ring_buffer_tells():
    ring = RingBuffer(6, {"a": Field(ITEM.shape, np.uint8, "delta-rle"), "b": Field(ITEM.shape, np.uint8, shares="a")})
    array = ring._arrays["b"]
    watch, copied = array.watch(), np.full((len(array), 1), -1)
    for step in range(300):
        ring.append(a=noise(1, step)[0], b=noise(1, step + 1)[0])
        follow(array, watch, copied)


def test_a_copy_is_watched_by_nobody():
    array = TensorArray.zeros((8, 2), FrameStore(ITEM))
    watch = array.watch()
    watch.drain()
    copy.deepcopy(array)[3] = noise(2, 0)
    assert len(watch.drain()) == 0


def test_a_view_is_not_watched():
    with pytest.raises(ShapeError, match=r"^this array is a view, made by reshape, swapaxes or transpose: watch the "):
        TensorArray.zeros((8, 2), FrameStore(ITEM)).swapaxes(0, 1).watch()
