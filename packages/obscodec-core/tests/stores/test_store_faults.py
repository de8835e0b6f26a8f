"""Stores and arrays hold what they held, or what they were given, whatever ends a call of theirs, at any line."""

import os
import pickle
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from appending import DEPTH, N_ENVS, Appending, Player
from changing_codecs import change_codec
from faults import NUMPY, at_every_line
from obscodec import AutoStore, FrameStore, HeapFull, Layout, TensorArray
from obscodec.arrays import WriteBuffer, write_buffer
from obscodec.stores import Store

STEP = int(os.environ.get("OBSCODEC_FAULT_STEP", "5"))  # 1 for every line
N_STEPS = 10
STACK = Layout((DEPTH, 6, 6), np.uint8)


STORES: dict[str, Callable[[], Store]] = {
    "frames": lambda: FrameStore(STACK, block_frames=4),
    "compressed frames": lambda: FrameStore(STACK, codec="zstd:1", block_frames=1),
    "patches, compressed": lambda: FrameStore(STACK, codec="delta-rle|zstd:3", block_frames=4),
    "stacks": lambda: FrameStore(STACK, frame_stack=DEPTH, block_frames=4),
    "undecided": lambda: AutoStore(STACK),
    "early": lambda: AutoStore(STACK, codec="delta-rle", block_frames=4, decide_after=8),
    "narrow": lambda: AutoStore(Layout(STACK.shape, "f4"), codec="delta-rle", block_frames=4, decide_after=8),
    "changed": lambda: AutoStore(STACK, block_frames=4, decide_after=8),
    "changed, narrow": lambda: AutoStore(Layout(STACK.shape, "f4"), block_frames=4, decide_after=8),
}


def check_count(store: Store, arrays: list[TensorArray], place: str) -> None:
    """The store holds what arrays refer to, and nothing else."""
    if isinstance(store, FrameStore) and store.frame_stack is None:
        n = len(np.unique(np.concatenate([array.ids[array.ids != 0] for array in arrays])))
    else:
        n = sum(np.count_nonzero(array.ids) for array in arrays)
    assert store.stats().n_tensors == n, place


@pytest.mark.parametrize("kind", STORES)
def test_an_assignment_that_is_interrupted_is_done_or_not(kind):
    store = STORES[kind]()
    player = Player(0, "f4" if "narrow" in kind else "u1")
    array, model = TensorArray.zeros((N_STEPS, N_ENVS), store), np.zeros((N_STEPS, N_ENVS, *STACK.shape), player.dtype)
    place, given, n_interrupts = [0], [model[0]], 0

    def prepare():
        place[0], given[0] = int(player.rng.integers(N_STEPS)), player.step()
        return lambda: array.__setitem__(place[0], given[0])

    for _ in range(60):
        array[place[0]] = given[0]  # so that most of the array is filled, and blocks with it
        model[place[0]] = given[0]
        prepare()
    array[place[0]] = model[place[0]] = given[0]
    if "changed" in kind:
        change_codec(store, "zstd:1", 1)
    for _ in range(3):
        for where in at_every_line(prepare, STEP):
            n_interrupts += 1
            found = array[:]
            if (found[place[0]] == given[0]).all():
                model[place[0]] = given[0]
            np.testing.assert_array_equal(found, model, err_msg=where)
            array[0] = model[0]  # the buffer goes on, and what the call left is gone
            check_count(store, [array], where)
    assert n_interrupts > 60
    array.clear()
    assert store.stats().n_tensors == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["frames", "narrow"])
def test_what_is_raised_within_numpy_is_not_taken_for_an_answer(kind):
    """``np.array_equal`` catches it, and says that its arrays differ."""
    store, player = STORES[kind](), Player(0, "f4" if "narrow" in kind else "u1")
    array, model = TensorArray.zeros((N_STEPS, N_ENVS), store), np.zeros((N_STEPS, N_ENVS, *STACK.shape), player.dtype)
    given = [model[0]]

    def prepare():
        given[0] = player.step()
        return lambda: array.__setitem__(1, given[0])

    prepare()()
    array[0] = model[0] = player.step()
    model[1] = given[0]
    store.decide()
    for where in at_every_line(prepare, 1, ValueError, (NUMPY,)):
        found = array[:]
        model[1] = given[0] if (found[1] == given[0]).all() else model[1]
        np.testing.assert_array_equal(found, model, err_msg=where)
        array[0] = model[0]
        check_count(store, [array], where)


@pytest.mark.parametrize("kind", ["frames", "stacks", "undecided", "early"])
def test_a_pickle_after_an_interrupt_has_the_tensors_of_its_array_alone(kind):
    player = Player(6)
    array = TensorArray.zeros((N_STEPS, N_ENVS), STORES[kind]())

    def prepare():
        given = player.step()
        return lambda: array.__setitem__(0, given)

    for where in at_every_line(prepare, 5 if kind == "early" else 1):  # it tries codecs in each call
        copied = pickle.loads(pickle.dumps(array))
        np.testing.assert_array_equal(copied[:], array[:], err_msg=where)
        check_count(copied.store, [copied], where)


@pytest.mark.parametrize("kind", ["frames", "stacks", "undecided", "early"])
def test_rows_that_wait_are_stored_all_in_the_end(kind):
    store = STORES[kind]()
    player = Player(1)
    write_buffer = WriteBuffer(store, N_ENVS, min_rows=4)
    names = ("obs", "next_obs")
    arrays = {name: TensorArray.zeros((N_STEPS, N_ENVS), store, write_buffer) for name in names}
    models = {name: np.zeros((N_STEPS, N_ENVS, *STACK.shape), np.uint8) for name in names}
    obs, at = player.step(), 0

    def add():
        nonlocal obs, at
        next_obs = player.step()
        for name, value in zip(names, (obs, next_obs), strict=True):
            arrays[name][at] = value
            models[name][at] = value
        obs, at = next_obs, (at + 1) % N_STEPS

    for _ in range(40):
        add()

    def prepare():
        add()
        add()
        return write_buffer.flush

    for _ in range(2):
        for where in at_every_line(prepare, STEP):
            write_buffer.flush()
            for name in names:
                np.testing.assert_array_equal(arrays[name][:], models[name], err_msg=where)
            check_count(store, list(arrays.values()), where)


@pytest.mark.parametrize("fields", ["decided", "undecided", "floats", "limited"])
def test_a_step_that_is_interrupted_is_appended_or_not(fields, monkeypatch):
    monkeypatch.setattr(write_buffer, "_MAX_NBYTES", 0)  # six rows may wait
    options = {} if fields == "undecided" else {"codec": "delta-rle", "decide_after": 8, "block_frames": 4}
    options |= {"max_bytes": 100_000} if fields == "limited" else {}  # nothing waits
    appending = Appending(Player(2, "f4" if fields == "floats" else "u1"), N_STEPS, **({"codec": "zstd:1"} | options))
    n_interrupts = 0
    for _ in range(2):
        for where in at_every_line(appending.prepare, STEP):
            n_interrupts += 1
            appending.check(where)
    assert n_interrupts > 150 // STEP


@pytest.mark.parametrize("kind", ["frames", "compressed frames", "stacks", "undecided", "early"])
def test_what_is_released_is_gone_or_not(kind):
    store, player = STORES[kind](), Player(3)
    kept = store.append(np.concatenate([player.step() for _ in range(6)]))
    expected = store.read(kept)
    ids = [kept]

    def prepare():
        ids[0] = store.append(np.concatenate([player.step() for _ in range(4)]))
        return lambda: store._give_back(ids[0])

    before = store.stats().n_tensors
    for where in at_every_line(prepare, STEP):
        left = ids[0][ids[0] != 0]
        assert len(left) in (0, len(ids[0])), where
        store._give_back(ids[0])
        np.testing.assert_array_equal(store.read(kept), expected, err_msg=where)
        assert store.stats().n_tensors == before, where


def test_first_tensors_whose_release_is_interrupted_can_be_released_again():
    tensors = np.random.default_rng(0).integers(256, size=(16, *STACK.shape), dtype=np.uint8)
    stores, n_kept = [AutoStore(STACK)], 0

    def prepare():
        stores[0] = STORES["early"]()
        ids[:] = np.concatenate([stores[0].append(tensors[:10]), stores[0].append(tensors[10:])])
        return lambda: stores[0].release(ids)

    ids = np.zeros(16, np.int64)
    for where in at_every_line(prepare):
        if stores[0].stats().n_tensors:
            np.testing.assert_array_equal(stores[0].read(ids), tensors, err_msg=where)
            stores[0].release(ids)
            n_kept += 1
        assert stores[0].stats().n_tensors == 0, where
    assert n_kept > 10


def test_ids_are_with_the_caller_or_in_the_array_where_a_row_is_named_twice():
    store, player = STORES["stacks"](), Player(5)
    array, ids, index = TensorArray.zeros((N_STEPS, N_ENVS), store), [np.zeros(0, np.int64)], np.array([4, 1, 4])

    def prepare():
        tensors = np.concatenate([player.step() for _ in range(3)])
        ids[0] = store.append(tensors).reshape(3, N_ENVS)
        return lambda: array.assign_ids(index, ids[0])

    n_interrupts = 0
    for where in at_every_line(prepare):
        n_interrupts += 1
        store._give_back(ids[0].reshape(-1))
        array[0] = player.step()  # the store goes on, and what the call left is gone
        check_count(store, [array], where)
    assert n_interrupts > 40
    assert not ids[0].any()


@pytest.mark.parametrize("kind", ["frames", "compressed frames", "patches, compressed", "stacks", "early"])
def test_what_is_appended_is_there_or_not(kind):
    store, player = STORES[kind](), Player(4)
    kept = store.append(np.concatenate([player.step() for _ in range(12)]))
    expected, before = store.read(kept), store.stats().n_tensors
    tensors = [expected]

    def prepare():
        tensors[0] = np.concatenate([player.step() for _ in range(10)])
        return lambda: appended.append(store.append(tensors[0]))

    appended: list[np.ndarray] = []
    for where in at_every_line(prepare, STEP):
        for ids in appended:
            np.testing.assert_array_equal(store.read(ids), tensors[0], err_msg=where)
            store.release(ids)
        appended.clear()
        np.testing.assert_array_equal(store.read(kept), expected, err_msg=where)
        store.release(store.append(tensors[0][:1]))  # the store goes on, and what the call left is gone
        assert store.stats().n_tensors == before, where


def test_what_a_full_store_had_taken_in_is_given_back_once():
    store = FrameStore(Layout((2000,), np.uint8), codec="raw", block_frames=4, recent=4, max_bytes=4096)
    played = np.random.default_rng(0).integers(256, size=(5, 2000), dtype=np.uint8)
    kept = store.append(played[:4])  # the open block, which does not fit into max_bytes

    def prepare():
        def call():
            with suppress(HeapFull):
                store.append(played)  # the four that are there, and one that needs another block

        return call

    for where in at_every_line(prepare):
        store.release(store.append(played[:1]))  # the store goes on, and what the call left is gone
        np.testing.assert_array_equal(store.read(kept), played[:4], err_msg=where)
    store.release(kept)
    assert store.stats().n_tensors == 0
