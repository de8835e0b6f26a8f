"""What a function reads in a DeferredRead is what it would read outside of one."""

import os
import threading
from typing import NamedTuple

import numpy as np
import pytest
from faults import at_any_time
from forked import exit_status, forked
from hypothesis import given, settings
from hypothesis import strategies as st
from obscodec import AutoStore, FrameStore, HeapFull, Layout, SlotError, TensorArray
from obscodec.arrays import OPEN_READ, DeferredRead

LAYOUT = Layout((6, 5), np.uint8)
RNG = np.random.default_rng(0)


class Batch(NamedTuple):
    obs: object
    rest: object
    missing: object = None


def filled(n: int = 2, stores: int = 1) -> list[TensorArray]:
    """Arrays ``[8, 3, 6, 5]`` with random content, some in one store."""
    kept = [AutoStore(LAYOUT, codec="zstd:1", decide_after=4, block_frames=2, threads=1) for _ in range(stores)]
    arrays = [TensorArray.zeros((8, 3), kept[i % stores]) for i in range(n)]
    for array in arrays:
        array[...] = RNG.integers(256, size=array.shape, dtype=np.uint8)
    return arrays


def read_some(arrays, steps, envs):
    first, second, third = arrays
    return Batch(
        {"fancy": first[steps, envs], "slice": second[2:5], "one": third[1, 2]}, (first[0, :, :, 1:3], third[:])
    )


def assert_equal(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert_equal(tuple(found.items()), tuple(expected.items()))
    elif isinstance(expected, tuple):
        for x, y in zip(found, expected, strict=True):
            assert_equal(x, y)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected, strict=True)
    else:
        assert found == expected


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("stores", [1, 2, 3])
@given(chosen=st.lists(st.tuples(st.integers(-8, 7), st.integers(0, 2)), max_size=20))
@settings(deadline=None, max_examples=20)
def test_a_reading_gives_what_indexing_gives(background, stores, chosen):
    arrays = filled(3, stores)
    steps, envs = (
        (np.array(column, np.int64) for column in zip(*chosen, strict=True)) if chosen else [np.empty(0, int)] * 2
    )
    expected = read_some([array[:] for array in arrays], steps, envs)
    deferred = DeferredRead(lambda: read_some(arrays, steps, envs))
    if background:
        deferred.start()
    assert_equal(deferred.result(), expected)


def test_frames_in_common_are_decoded_in_one_call(monkeypatch):
    arrays = filled(2)
    calls = []
    read = AutoStore.read_into
    monkeypatch.setattr(AutoStore, "read_into", lambda self, ids, out: calls.append(len(ids)) or read(self, ids, out))
    deferred = DeferredRead(lambda: {"obs": arrays[0][[1, 2], 0], "next_obs": arrays[1][3]})
    assert calls == []
    batch = deferred.result()
    assert calls == [5]
    assert batch["obs"].base is not None
    assert np.shares_memory(batch["obs"].base, batch["next_obs"].base)


def test_it_reads_what_was_there_when_it_was_made():
    (array,) = filled(1)
    expected = array[3]
    deferred = DeferredRead(lambda: array[3])
    array[4] = 0  # other items may change
    assert_equal(deferred.result(), expected)


class Late(FrameStore):
    """In the background it decodes when something has been given back, or half a second later."""

    def __init__(self) -> None:
        super().__init__(LAYOUT)
        self.given_back = threading.Event()

    def read_into(self, ids, out):
        if threading.current_thread() is not threading.main_thread():
            self.given_back.wait(0.5)
        super().read_into(ids, out)

    def _give_back(self, ids):
        super()._give_back(ids)
        self.given_back.set()


def test_nothing_is_given_back_while_it_is_decoded_in_the_background():
    array, before = TensorArray.zeros((8,), Late()), RNG.integers(1, 256, size=(8, 6, 5), dtype=np.uint8)
    array[:] = before
    array.store.given_back.clear()
    deferred = DeferredRead(lambda: array[:])
    deferred.start()
    array[:] = 0
    np.testing.assert_array_equal(deferred.result(), before)


def test_all_tensors_of_a_store_are_converted_at_once():
    (array,) = filled(1)
    converted = []
    rooms = []

    def room(store, n):
        rooms.append((store, n))
        return np.empty((n, *store.layout.shape), store.layout.dtype)

    def convert(tensors):
        converted.append(tensors.shape)
        return tensors.astype(np.float32)

    batch = DeferredRead(lambda: (array[1], array[2:4]), room, convert).result()
    assert (rooms, converted) == ([(array.store, 9)], [(9, 6, 5)])
    assert_equal(batch, (array[1].astype(np.float32), array[2:4].astype(np.float32)))


def test_stores_that_are_looked_at_are_decoded_at_once():
    arrays = filled(2, stores=2)
    looked_at = []

    def read():
        looked_at.append(arrays[0][3])
        return arrays[0][3], arrays[1][3]

    batch = DeferredRead(read, at_once=[arrays[0].store, None]).result()
    assert_equal(looked_at[0], arrays[0][3])
    assert_equal(batch, (arrays[0][3], arrays[1][3]))


class There(AutoStore):
    """Stands for a store on a GPU, which queues what it decodes on the stream of the thread that calls."""

    def __init__(self) -> None:
        super().__init__(LAYOUT, codec="zstd:1", threads=1)
        vars(self)["device"] = "there"
        self.threads_that_read = []

    def read_into(self, ids, out):
        self.threads_that_read.append(threading.current_thread())
        super().read_into(ids, out)


def test_a_store_on_a_gpu_is_read_by_the_thread_that_starts():
    array = TensorArray.zeros((8, 3), There())
    array[...] = RNG.integers(256, size=array.shape, dtype=np.uint8)
    expected = array[3]
    array.store.threads_that_read.clear()
    deferred = DeferredRead(lambda: array[3], room_of, convert=np.asarray)
    deferred.start()
    array[3] = np.zeros((), np.uint8)  # which does not wait
    assert_equal(deferred.result(), expected)
    assert array.store.threads_that_read == [threading.current_thread()]


def test_an_error_of_a_gpu_comes_with_the_result():
    array = TensorArray.zeros((8, 3), There())

    def room(store, n):
        raise HeapFull("no")

    deferred = DeferredRead(lambda: array[3], room)
    deferred.start()
    with pytest.raises(HeapFull, match=r"^no$"):
        deferred.result()


def room_of(store, n):
    return np.empty((n, *store.layout.shape), store.layout.dtype)


def test_indexing_is_as_before_after_a_reading_that_fails():
    (array,) = filled(1)

    def fails():
        array[3]
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match=r"^no$"):
        DeferredRead(fails)
    assert isinstance(array[3], np.ndarray)


def test_other_threads_and_whole_arrays_are_not_part_of_a_reading():
    (array,) = filled(1)
    seen = []

    def read():
        thread = threading.Thread(target=lambda: seen.append(array[3]))
        thread.start()
        thread.join()
        seen.append(np.asarray(array))
        return array[3]

    expected = DeferredRead(read).result()
    assert_equal(tuple(seen), (expected, array[:]))


def test_a_reading_in_a_reading_is_one_of_its_own():
    (array,) = filled(1)
    inner = []

    def read():
        inner.append(DeferredRead(lambda: array[2]).result())
        return array[3]

    assert_equal(DeferredRead(read).result(), array[3])
    assert_equal(inner[0], array[2])


def test_an_error_in_the_background_comes_with_the_result():
    (array,) = filled(1)
    deferred = DeferredRead(lambda: array[3])
    array.store._give_back(array.ids[3].astype(np.int64))  # in spite of the guard
    deferred.start()
    with pytest.raises(SlotError):
        deferred.result()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_decodes_what_its_parent_started():
    (array,) = filled(1)
    expected = array[3]
    deferred = DeferredRead(lambda: array[3])
    deferred.start()
    assert exit_status(forked(lambda: assert_equal(deferred.result(), expected), seconds=20)) == 0


def test_an_interrupt_leaves_no_reading_open():
    (array,) = filled(1)
    expected = array[:]

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DeferredRead(interrupted)
    assert OPEN_READ.get() is None
    for _ in at_any_time(lambda: DeferredRead(lambda: array[:]).result(), 400):
        assert_equal(array[:], expected)


def test_lists_are_filled():
    (array,) = filled(1)
    found = DeferredRead(lambda: [array[0], [array[1], 2]]).result()
    assert_equal(found[0], array[0])
    assert_equal(found[1][0], array[1])
    assert found[1][1] == 2
