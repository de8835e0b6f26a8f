"""Rows that wait are seen by whoever reads, in whatever order things are read, copied and pickled."""

import copy
import pickle
import re

import numpy as np
import pytest
from obscodec import AutoStore, Layout, ShapeError, Staging, TensorArray

LAYOUT = Layout((3, 8, 8), np.uint8)


def staged(n_arrays=2, n_envs=2, n_steps=30):
    store = AutoStore(LAYOUT)
    staging = Staging(store, n_envs)
    return store, [TensorArray.zeros((n_steps, n_envs), store, staging) for _ in range(n_arrays)]


def random_rows(rng):
    return rng.integers(0, 3, (2, 3, 8, 8)).astype(np.uint8)


def test_staged_arrays_equal_plain_ones():
    rng = np.random.default_rng(0)
    _, arrays = staged()
    plain = [np.zeros(array.shape, np.uint8) for array in arrays]
    for i in range(600):
        which, row, rows = rng.integers(2), int(rng.integers(30)), random_rows(rng)
        arrays[which][row] = rows
        plain[which][row] = rows
        if i % 37 == 0:
            np.testing.assert_array_equal(arrays[which][row, 1], plain[which][row, 1])
            np.testing.assert_array_equal(arrays[0].swapaxes(0, 1)[:], plain[0].swapaxes(0, 1))
            arrays[1].reshape(60, 3, 8, 8)[7] = 5
            plain[1].reshape(60, 3, 8, 8)[7] = 5
    for array, expected in zip(arrays, plain, strict=True):
        np.testing.assert_array_equal(array[:], expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("store_first", [True, False])
def test_rows_that_wait_are_copied(copied, store_first):
    rng = np.random.default_rng(1)
    store, (array, other) = staged()
    rows = [random_rows(rng) for _ in range(300)]
    for i, row in enumerate(rows):
        (array, other)[i % 2][i // 2 % 30] = row
    things = {"store": store, "arrays": [array, other]} if store_first else {"arrays": [array, other], "store": store}
    twins = copied(things)["arrays"]
    for original, twin in zip((array, other), twins, strict=True):
        np.testing.assert_array_equal(twin[:], original[:])
    twins[0][3] = rows[0]
    assert twins[0].store.stats().n_tensors == store.stats().n_tensors  # it waits, as before
    np.testing.assert_array_equal(twins[0][3], rows[0])


@pytest.mark.parametrize(
    ("shape", "same_store", "text"),
    [
        ((30, 3), True, "a staging is for one store and ids [n_steps, 2], got ids of shape (30, 3)"),
        ((60,), True, "a staging is for one store and ids [n_steps, 2], got ids of shape (60,)"),
        ((30, 2), False, "a staging is for one store and ids [n_steps, 2], got ids of shape (30, 2) and another store"),
    ],
)
def test_a_staging_fits_its_arrays(shape, same_store, text):
    store = AutoStore(LAYOUT)
    staging = Staging(store, 2)
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        TensorArray.zeros(shape, store if same_store else AutoStore(LAYOUT), staging)
