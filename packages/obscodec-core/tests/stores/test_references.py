"""A store drops what was released when the last guard from before is closed, and not sooner."""

import contextlib
import gc
import pickle
import threading
from copy import deepcopy

import numpy as np
import pytest
from faults import Interrupt, at_every_line
from forked import exit_status, forked
from obscodec import AutoStore, FrameStore, Layout, SlotError, TensorArray
from obscodec.arrays import WriteBuffer
from obscodec.stores import Place

LAYOUT = Layout((8, 8), np.uint8)


def frames(*values: int) -> np.ndarray:
    return np.array(values, np.uint8)[:, None, None].repeat(8, 1).repeat(8, 2)


@pytest.fixture
def store() -> FrameStore:
    return FrameStore(LAYOUT, codec="raw", block_frames=1)


def test_guards_end_in_any_order(store: FrameStore) -> None:
    ids = store.append(frames(1, 2, 3))
    first = store.guard()
    store.release(ids[:1])
    second = store.guard()
    store.release(ids[1:2])
    assert (store.read(ids) == frames(1, 2, 3)).all()
    second.close()
    assert store.stats().n_tensors == 3
    first.close()
    first.close()
    assert store.stats().n_tensors == 1
    store.release(ids[2:])
    assert store.stats().n_tensors == 0


def test_a_later_guard_does_not_hold_what_was_released_before(store: FrameStore) -> None:
    ids = store.append(frames(1, 2))
    first = store.guard()
    store.release(ids[:1])
    second = store.guard()
    first.close()
    assert store.stats().n_tensors == 1
    second.close()


def test_a_guard_that_is_gone_is_closed(store: FrameStore) -> None:
    ids = store.append(frames(1))
    guard = store.guard()
    store.release(ids)
    del guard
    gc.collect()
    assert store.stats().n_tensors == 0


def test_an_owner_that_nobody_has_is_closed_while_the_exception_is_kept(store: FrameStore) -> None:
    kept = []

    def own() -> None:
        try:
            store.guard(np.zeros(3, np.int64))
        except Interrupt as error:
            kept.append(error)
            raise

    for where in at_every_line(lambda: own):
        assert not store._references._guards, where
    assert len(kept) > 5


def test_garbage_may_be_collected_in_the_midst_of_a_call(store: FrameStore) -> None:
    ids = store.append(frames(1, 2))
    new = store.guard(ids[1:])
    guard = store.guard()
    store.release(ids[:1])
    with store.log.lock:  # of which neither could be taken again
        del guard, new
    assert store.stats().n_tensors == 0


def test_a_copy_has_no_guards_and_drops_what_waits(store: FrameStore) -> None:
    ids = store.append(frames(1, 2))
    guard = store.guard()
    store.release(ids[:1])
    copy = pickle.loads(pickle.dumps(store))
    assert copy.stats().n_tensors == 1
    assert (copy.read(ids[1:]) == frames(2)).all()
    assert store.stats().n_tensors == 2
    guard.close()


def test_scalars_are_read_before_the_codec_is_decided() -> None:
    store = AutoStore(Layout((), np.float32), codec="raw")
    ids = store.append(np.array([1, 2], np.float32))
    assert store.read([*ids, 0]).tolist() == [1, 2, 0]


def test_what_was_dropped_before_a_guard_does_not_wait_for_it(store: FrameStore) -> None:
    """So a write that guards the store gets the room of one that was given up."""
    store.guard(store.append(frames(1, 2))).close()
    with contextlib.closing(store.guard()):
        assert store.stats().n_tensors == 0


def test_a_copy_drops_what_an_owner_has(store: FrameStore) -> None:
    kept, owned = store.append(frames(1, 2)), store.append(frames(3, 4, 5))
    guard = store.guard(owned)
    for copied in (pickle.loads(pickle.dumps(store)), deepcopy(store)):
        assert copied.stats().n_tensors == 2
        np.testing.assert_array_equal(copied.read(kept), frames(1, 2))
    assert store.stats().n_tensors == 5
    guard.close()
    assert store.stats().n_tensors == 2


def test_what_has_found_a_place_is_not_given_back(store: FrameStore) -> None:
    ids = store.append(frames(1, 2))
    owner, place = store.guard(ids), ids.copy()
    ids[:] = 0
    owner.close()
    assert np.array_equal(store.read(place), frames(1, 2))
    assert store.stats().n_tensors == 2


@pytest.mark.needs("fork")
def test_a_forked_process_has_no_guards_of_other_threads(store: FrameStore) -> None:
    """Nobody would close them, and nothing that is released would ever go."""
    ids, made, done = store.append(frames(1, 2)), threading.Event(), threading.Event()

    def hold() -> None:
        with store.guard():
            made.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    assert made.wait(20)

    def child() -> None:
        own = store.guard()
        store.release(ids[:1])
        assert store.stats().n_tensors == 2
        own.close()
        assert store.stats().n_tensors == 1

    assert exit_status(forked(child)) == 0
    done.set()
    thread.join()


LAYOUT_OF_EXCHANGE = Layout((84, 84), np.uint8)


def noise(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 256, (n, 84, 84), np.uint8)


def test_an_id_of_no_tensor_in_one_place_keeps_no_tensors_of_another() -> None:
    store = FrameStore(LAYOUT_OF_EXCHANGE)
    good, bad = store.append(noise(4)), np.array([1 << 20])
    places = [Place(good, slice(None)), Place(bad, slice(None))]
    with pytest.raises(SlotError, match=r"^id 1048576 is of no frame in this store"):
        store.exchange(places, np.zeros((5, 84, 84), np.uint8), np.arange(5), np.zeros(5, np.int64))
    assert good.tolist() == [0] * 4
    assert bad.tolist() == [0]
    assert store.stats().n_tensors == 0


def test_rows_that_wait_are_in_a_pickle_of_a_store() -> None:
    store = FrameStore(LAYOUT_OF_EXCHANGE)
    array, played = TensorArray.zeros((3, 1), store, WriteBuffer(store, 1)), noise(1)
    array[1] = played
    _, rebuilt = pickle.loads(pickle.dumps((store, array)))
    np.testing.assert_array_equal(rebuilt[1], played)


def test_a_failed_allocation_is_said_of_rows_that_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    store = AutoStore(LAYOUT_OF_EXCHANGE)
    array = TensorArray.zeros((3, 1), store, WriteBuffer(store, 1))
    array[1] = noise(1)

    def fail(*_: object) -> None:
        raise RuntimeError("std::bad_alloc")

    with monkeypatch.context() as patch:
        patch.setattr(store, "take_in", fail)
        with pytest.raises(MemoryError, match=r"^there is not enough memory: std::bad_alloc$"):
            _ = array.ids
    np.testing.assert_array_equal(array[1], noise(1))
