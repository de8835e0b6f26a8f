"""Arrays and stores that decide by themselves take what is born on a device."""

from __future__ import annotations

import numpy as np
import obscodec_cupy.backend
import pytest
from obscodec import AutoStore, DTypeError, FrameStore, Layout, ShapeError, Staging, TensorArray
from stores_in_pairs import NOTHING, SMALL, Pair, walk


@pytest.mark.filterwarnings("ignore:.* is decoded on the CPU:UserWarning")
@pytest.mark.parametrize("kind", ["frames", "stacks", "floats", "raw"])
def test_an_auto_store_decides_with_what_was_born(cuda, kind):
    there = obscodec_cupy.backend.device(cuda)
    played = walk(700, Layout((24, 24), np.uint8))[:, None]
    tensors = {
        "frames": played,
        "raw": np.random.default_rng(0).integers(256, size=(700, 1, 24, 24), dtype=np.uint8),
        "stacks": np.concatenate([played[:-3], played[1:-2], played[2:-1], played[3:]], axis=1),
        "floats": (played / np.float32(255)).astype(np.float32),
    }[kind]
    stores = [AutoStore(Layout(tensors.shape[1:], tensors.dtype), device=where) for where in ("cpu", cuda)]
    ids = NOTHING
    for k in range(0, len(tensors), 100):
        some = tensors[k : k + 100]
        one = stores[0].append(some)
        np.testing.assert_array_equal(stores[1].append(there.upload(some)), one)
        ids = np.append(ids, one)
    for which in (slice(0, 20), slice(400, 410)):
        given = tensors[which], there.upload(tensors[which])
        one, other = (store.replace(ids[which], some) for store, some in zip(stores, given, strict=True))
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(stores[0].read(one), stores[1].read(other))
    some, which = tensors[:3], np.array([0, 1, 2, 1])
    for store, given in zip(stores, (some, there.upload(some)), strict=True):
        again = store.replace_repeated(NOTHING, given, which, np.zeros(3, np.int64))
        np.testing.assert_array_equal(store.read(again), some[which])


def test_arrays_are_assigned_what_was_born(cuda):
    there = obscodec_cupy.backend.device(cuda)
    pair = Pair(cuda, SMALL)
    arrays = [TensorArray.zeros((12, 3), store) for store in pair.stores]
    frames = walk(36, SMALL).reshape(12, 3, *SMALL.shape)
    assignments = [
        (2, frames[2]),
        (slice(3, 5), frames[3:5]),
        (np.array([7, 6]), frames[:2]),
        (np.array([8, 8]), frames[2:4]),  # one place twice: the last one stays
        ((9, 1), frames[5, 1]),
        (slice(10, 12), frames[0]),  # broadcast
        ((0, slice(None), slice(2, 4)), frames[1][:, 2:4]),  # part of each item
        (1, frames[1].astype(np.int64)),
    ]
    for index, value in assignments:
        arrays[0][index] = value
        arrays[1][index] = there.upload(value)
        np.testing.assert_array_equal(arrays[0].ids, arrays[1].ids)
    np.testing.assert_array_equal(arrays[0][:], arrays[1][:])
    with pytest.raises(DTypeError, match=r"^values of dtype float64 would be changed by dtype uint8"):
        arrays[1][0] = there.upload(frames[0] + 0.5)
    with pytest.raises(ShapeError, match="can't be assigned to shape"):
        arrays[1][0] = there.upload(frames[:2])


def test_rows_that_wait_are_stored_before_what_was_born(cuda):
    there = obscodec_cupy.backend.device(cuda)
    store = FrameStore(SMALL, device=cuda)
    array = TensorArray.zeros((6, 2), store, staging=Staging(store, n_envs=2))
    frames = walk(12, SMALL).reshape(6, 2, *SMALL.shape)
    for row in range(6):
        array[row] = there.upload(frames[row]) if row % 2 else frames[row]
    np.testing.assert_array_equal(array[:], frames)
