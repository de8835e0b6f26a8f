"""Rows that wait are seen by whoever reads, in whatever order things are read, copied and pickled."""

import copy
import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from obscodec import AutoStore, DTypeError, FrameStack, FrameStore, Layout, ShapeError, TensorArray
from obscodec.arrays import WriteBuffer, write_buffer
from obscodec.runtime import PicklableLock
from obscodec.stores.auto import shown
from together import together

LAYOUT = Layout((3, 8, 8), np.uint8)
STACK = FrameStack(3)
STORES = {
    "auto": lambda: AutoStore(LAYOUT),
    "frames": lambda: FrameStore(LAYOUT, block_frames=4),
    "stacks": lambda: FrameStore(LAYOUT, frame_stack=STACK),
    "undecided": lambda: AutoStore(LAYOUT, decide_after=1000),
}
FEW_ROWS = 4 * 2 * LAYOUT.nbytes  # bytes that may wait, for four rows of two environments


def waiting(n_arrays=2, n_envs=2, n_steps=30, make=STORES["auto"]):
    store = make()
    write_buffer = WriteBuffer(store, n_envs)
    return store, [TensorArray.zeros((n_steps, n_envs), store, write_buffer) for _ in range(n_arrays)]


def random_rows(rng):
    return rng.integers(0, 3, (2, 3, 8, 8)).astype(np.uint8)


@pytest.mark.parametrize("few_rows", [True, False])
@pytest.mark.parametrize("kind", STORES)
def test_arrays_whose_rows_wait_equal_plain_ones(monkeypatch, kind, few_rows):
    """Half of the rows are those of the assignment before, as the observations of a replay buffer are."""
    monkeypatch.setattr(shown, "_MAX", 20)
    if few_rows:
        monkeypatch.setattr(write_buffer, "_MAX_NBYTES", FEW_ROWS)
    rng = np.random.default_rng(0)
    store, arrays = waiting(make=STORES[kind])
    plain = [np.zeros(array.shape, np.uint8) for array in arrays]
    rows = random_rows(rng)
    for i in range(600):
        which, row = rng.integers(2), int(rng.integers(30))
        rows = rows if rng.random() < 0.5 else random_rows(rng)
        arrays[which][row] = rows
        plain[which][row] = rows
        if i % 37 == 0:
            np.testing.assert_array_equal(arrays[which][row, 1], plain[which][row, 1])
            np.testing.assert_array_equal(arrays[0].swapaxes(0, 1)[:], plain[0].swapaxes(0, 1))
            arrays[1].reshape(60, 3, 8, 8)[7] = 5
            plain[1].reshape(60, 3, 8, 8)[7] = 5
    for array, expected in zip(arrays, plain, strict=True):
        np.testing.assert_array_equal(array[:], expected)
    arrays[0].write_buffer.flush()
    assert store.stats().n_tensors <= 2 * 30 * 2
    for array in arrays:
        store.release(array.ids.reshape(-1))
    assert store.stats().n_tensors == 0


def test_a_row_that_repeats_is_stored_once(monkeypatch):
    monkeypatch.setattr(write_buffer, "_MAX_NBYTES", FEW_ROWS)
    rng = np.random.default_rng(0)
    store, (array, other) = waiting(make=STORES["undecided"])
    rows = [random_rows(rng) for _ in range(4)]
    for i in range(3):  # four rows are three steps
        array[i], other[i] = rows[i], rows[i + 1]
    assert store.stats().n_tensors == 0
    assert [*array.write_buffer.waiting.values()] == [0, 1, 1, 2, 2, 3]
    np.testing.assert_array_equal(array[:3], rows[:3])
    np.testing.assert_array_equal(other[:3], rows[1:])


def test_the_same_again_at_the_same_place_goes_on_waiting():
    rng = np.random.default_rng(0)
    store, (array, _) = waiting()
    rows = [random_rows(rng) for _ in range(5)]
    for i in range(4):  # as a buffer does that keeps next observations as the observations of the next step
        array[i] = rows[i]
        array[i + 1] = rows[i + 1]
    assert store.stats().n_tensors == 0
    array[2] = rows[0]
    np.testing.assert_array_equal(array[:5, :], np.stack([rows[i] for i in (0, 1, 0, 3, 4)]))


@pytest.mark.parametrize("n_rows", [3, 70])
def test_as_many_rows_wait_as_are_asked_for(monkeypatch, n_rows):
    monkeypatch.setattr(write_buffer, "_MAX_NBYTES", 0)
    store = STORES["undecided"]()
    array = TensorArray.zeros((200, 1), store, WriteBuffer(store, 1, min_rows=n_rows))
    rows = np.random.default_rng(0).integers(256, size=(n_rows + 1, 3, 8, 8), dtype=np.uint8)
    for i in range(n_rows):
        array[i] = rows[i : i + 1]
    assert store.stats().n_tensors == 0
    array[n_rows] = rows[-1:]
    assert store.stats().n_tensors == n_rows
    np.testing.assert_array_equal(array[: n_rows + 1, 0], rows)


def test_rows_take_no_memory_before_one_waits():
    store = STORES["undecided"]()
    waiting = WriteBuffer(store, 2, min_rows=4)
    array = TensorArray.zeros((10, 2), store, waiting)
    assert waiting.memory_bytes == 0
    array[0] = np.ones((2, 3, 8, 8), np.uint8)
    assert waiting.memory_bytes == 64 * 2 * LAYOUT.nbytes


def test_threads_that_read_at_once_store_what_waits_once():
    rng = np.random.default_rng(0)
    store, (array, _) = waiting(n_steps=200, make=STORES["undecided"])
    for begin in range(0, 200, 8):
        for i in range(begin, begin + 8):
            array[i] = rng.integers(0, 255, (2, 3, 8, 8)).astype(np.uint8)
        together(*[lambda: array.ids] * 4)
    assert store.stats().n_tensors == 400


class Announced(PicklableLock):
    """A lock that tells when another thread than the main one is about to take it."""

    def __init__(self):
        self.wanted = threading.Event()

    def __enter__(self):
        if threading.current_thread() is not threading.main_thread():
            self.wanted.set()
        return super().__enter__()


def test_what_another_thread_stored_meanwhile_is_not_stored_again():
    store, (array, _) = waiting(make=STORES["undecided"])
    store.changing = lock = Announced()
    array[3] = np.arange(1, 3, dtype=np.uint8)[:, None, None, None].repeat(3, 1).repeat(8, 2).repeat(8, 3)
    with ThreadPoolExecutor(1) as pool:
        with lock:
            ids = pool.submit(lambda: array.ids.copy())
            lock.wanted.wait()  # it has seen that something waits
            stored = array.ids.copy()
        assert np.array_equal(ids.result(), stored)
    assert store.stats().n_tensors == 2


@pytest.mark.parametrize("kind", STORES)
def test_arrays_in_which_environments_take_turns_equal_plain_ones(kind):
    rng = np.random.default_rng(0)
    store = STORES[kind]()
    array = TensorArray.zeros((32,), store, WriteBuffer(store, 3))  # the last turn of all three is not whole
    plain, watch = np.zeros(array.shape, np.uint8), array.watch()
    for i in range(400):
        first, n = int(rng.integers(32)), int(rng.integers(1, 6))
        index = (
            *(slice(first, first + n), slice(first, None, -1), (slice(first, first + 3),), slice(first, 0), first),
            *(np.array([first, 3, first]), rng.random(32) < 0.2, (slice(first, first + 3), 1), (..., 2, slice(3))),
            *(True, None, ...),
        )[i % 12]
        rows = rng.integers(0, 3, plain[index].shape).astype(np.uint8)
        before = plain.copy()
        array[index] = plain[index] = rows
        assert {*np.flatnonzero((plain != before).any((1, 2, 3)))} <= {*watch.drain()}
        if i % 37 == 0:
            np.testing.assert_array_equal(array[:], plain)
            np.testing.assert_array_equal(pickle.loads(pickle.dumps(array))[:], plain)
    np.testing.assert_array_equal(array[:], plain)


@pytest.mark.parametrize(
    "n_rows", [0, 1, 4, 6, 8]
)  # of a slice, of which a write buffer takes four at once; 0 for none
def test_environments_that_take_turns_take_no_more_room(n_rows):
    frames = np.random.default_rng(0).integers(0, 256, (4, 102, 8, 8)).astype(np.uint8)
    stacks = np.lib.stride_tricks.sliding_window_view(frames, 3, 1).transpose(1, 0, 4, 2, 3)  # [100, 4, 3, 8, 8]
    taken = []
    for shape in (100, 4), (400,):
        store = STORES["stacks"]()
        array = TensorArray.zeros(shape, store, WriteBuffer(store, 4))
        steps = np.ascontiguousarray(stacks).reshape(*shape, 3, 8, 8)
        for first in range(0, shape[0], n := n_rows or 1):
            at = slice(first, first + n) if n_rows else first
            array[at] = steps[at]
        np.testing.assert_array_equal(array[:], steps)
        taken.append(store.stats().live_bytes)
    assert taken[0] == taken[1]


def test_a_row_that_its_dtype_would_change_is_refused():
    _, (array, _) = waiting()
    array[3] = np.full((2, 3, 8, 8), 7.0)
    text = (
        "values of dtype float64, such as 7.5, would be changed by dtype uint8: cast them yourself, or use a dtype "
        "that can hold them"
    )
    with pytest.raises(DTypeError, match=f"^{re.escape(text)}$"):
        array[3] = np.full((2, 3, 8, 8), 7.5)
    assert (array[3] == 7).all()


_REFUSED = "a write buffer writes ids, and these are read-only, or not contiguous: pass a copy"


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (np.zeros((3, 2), np.int16), "ids are int32 or int64, got int16"),
        (np.broadcast_to(np.int32(0), (3, 2)), _REFUSED),
        (np.zeros((6, 2), np.int32)[::-2], _REFUSED),
        (np.zeros((2, 3), np.int32).T, _REFUSED),
    ],
)
def test_ids_that_could_not_be_written_are_refused(ids, text):
    store = AutoStore(LAYOUT)
    with pytest.raises(DTypeError, match=f"^{re.escape(text)}$"):
        TensorArray(ids, store, WriteBuffer(store, 2))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("store_first", [True, False])
def test_rows_that_wait_are_copied(copied, store_first):
    rng = np.random.default_rng(1)
    store, (array, other) = waiting()
    rows = [random_rows(rng) for _ in range(300)]
    for i, row in enumerate(rows):
        (array, other)[i % 2][i // 2 % 30] = row
    things = {"store": store, "arrays": [array, other]} if store_first else {"arrays": [array, other], "store": store}
    twins = copied(things)["arrays"]
    for original, twin in zip((array, other), twins, strict=True):
        np.testing.assert_array_equal(twin[:], original[:])
    twins[0][3] = rows[0]
    np.testing.assert_array_equal(twins[0][3], rows[0])


@pytest.mark.parametrize(
    ("shape", "same_store", "text"),
    [
        ((30, 3), True, "a write buffer is for one store and ids [n_steps, 2] or [n], got ids of shape (30, 3)"),
        ((), True, "a write buffer is for one store and ids [n_steps, 2] or [n], got ids of shape ()"),
        (
            (30, 2),
            False,
            "a write buffer is for one store and ids [n_steps, 2] or [n], got ids of shape (30, 2) and another store",
        ),
    ],
)
def test_a_write_buffer_fits_its_arrays(shape, same_store, text):
    store = AutoStore(LAYOUT)
    write_buffer = WriteBuffer(store, 2)
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        TensorArray.zeros(shape, store if same_store else AutoStore(LAYOUT), write_buffer)


@pytest.mark.parametrize("n_waiting", range(62, 68))
def test_rows_that_wait_are_stored_where_a_store_is_chosen_while_one_comes(monkeypatch, n_waiting):
    """So it is when another thread chooses the store."""
    store, n_asked = FrameStore(Layout((40,), np.uint8), codec="raw"), []
    step_writer = store.step_writer
    monkeypatch.setattr(
        store, "step_writer", lambda n: n_asked.append(n) or (step_writer(n) if len(n_asked) > n_waiting else None)
    )
    array = TensorArray.zeros((200, 1), store, WriteBuffer(store, 1))
    for row in range(150):
        array[row] = np.full((1, 40), row, np.uint8)
    assert array[:150, 0, 0].tolist() == [*range(150)]
