"""What was drawn stays what it was."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from obscodec import FrameStore, Layout, TensorArray
from obscodec_torchrl.arrays import DrawnArray

FRAME = (20, 20)


def frames(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *FRAME), np.uint8)


@pytest.fixture
def store() -> FrameStore:
    return FrameStore(Layout(FRAME, np.uint8), codec="raw", block_frames=1)


def test_what_was_drawn_stays_as_long_as_a_view_of_it(store: FrameStore) -> None:
    array = TensorArray.zeros((6,), store)
    array[...] = frames(6)
    view = DrawnArray(array, [5, 1, 1, 0]).reshape(2, 2, *FRAME).swapaxes(0, 1)
    array[...] = frames(6, seed=1)
    assert isinstance(view, DrawnArray)
    assert np.array_equal(view[...], frames(6)[[[5, 1], [1, 0]]])
    assert store.stats().n_tensors == 12
    del view
    assert store.stats().n_tensors == 6


def test_an_index_out_of_range_draws_nothing(store: FrameStore) -> None:
    array = TensorArray.zeros((6,), store)
    array[...] = frames(6)
    with pytest.raises(IndexError):
        DrawnArray(array, [6])
    array.clear()
    assert store.stats().n_tensors == 0


def test_an_array_is_pickled_with_its_store(store: FrameStore) -> None:
    array = TensorArray.zeros((6,), store)
    array[...] = frames(6)
    assert np.array_equal(pickle.loads(pickle.dumps(array[2:][None]))[0], frames(6)[2:])
    first, second = pickle.loads(pickle.dumps((array, array.reshape(2, 3, *FRAME))))
    assert first.store is second.store


def test_what_was_drawn_is_not_written(store: FrameStore) -> None:
    array = TensorArray.zeros((6,), store)
    array[...] = frames(6)
    drawn = DrawnArray(array, [5, 1])
    for write in (lambda: drawn.__setitem__(0, 1), drawn.clear):
        with pytest.raises(TypeError, match="can't be assigned to"):
            write()
    assert np.array_equal(array[...], frames(6))
