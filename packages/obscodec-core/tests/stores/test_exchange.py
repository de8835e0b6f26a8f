"""IdExchange: ids that take the places of others, and what becomes of those that nobody can give back."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from obscodec import AutoStore, FrameStore, Layout, SlotError, TensorArray
from obscodec.arrays import WriteBuffer
from obscodec.stores import Place

LAYOUT = Layout((84, 84), np.uint8)


def noise(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 256, (n, 84, 84), np.uint8)


def test_an_id_of_no_tensor_in_one_place_keeps_no_tensors_of_another() -> None:
    store = FrameStore(LAYOUT)
    good, bad = store.append(noise(4)), np.array([1 << 20])
    places = [Place(good, slice(None)), Place(bad, slice(None))]
    with pytest.raises(SlotError, match=r"^id 1048576 is of no frame in this store"):
        store.exchange(places, np.zeros((5, 84, 84), np.uint8), np.arange(5), np.zeros(5, np.int64))
    assert good.tolist() == [0] * 4
    assert bad.tolist() == [0]
    assert store.stats().n_tensors == 0


def test_rows_that_wait_are_in_a_pickle_of_a_store() -> None:
    store = FrameStore(LAYOUT)
    array, played = TensorArray.zeros((3, 1), store, WriteBuffer(store, 1)), noise(1)
    array[1] = played
    _, rebuilt = pickle.loads(pickle.dumps((store, array)))
    np.testing.assert_array_equal(rebuilt[1], played)


def test_a_failed_allocation_is_said_of_rows_that_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    store = AutoStore(LAYOUT)
    array = TensorArray.zeros((3, 1), store, WriteBuffer(store, 1))
    array[1] = noise(1)

    def fail(*_: object) -> None:
        raise RuntimeError("std::bad_alloc")

    with monkeypatch.context() as patch:
        patch.setattr(store, "take_in", fail)
        with pytest.raises(MemoryError, match=r"^there is not enough memory: std::bad_alloc$"):
            _ = array.ids
    np.testing.assert_array_equal(array[1], noise(1))
