"""An array that goes gives its tensors back: not before its views and readers, and whatever runs meanwhile."""

import copy
import gc
import pickle
from collections.abc import Callable
from contextlib import suppress
from unittest.mock import Mock

import numpy as np
import pytest
from faults import Interrupt, at_every_line
from obscodec import AutoStore, FrameStore, HeapFull, Layout, TensorArray
from obscodec.arrays import DrawnArray, WriteBuffer
from obscodec.stores import Store
from obscodec.stores.auto.first_tensors import FirstTensors
from together import meanwhile

LAYOUT = Layout((20, 20), np.uint8)
STORES: dict[str, Callable[[], Store]] = {
    "frames": lambda: FrameStore(LAYOUT),
    "stacks": lambda: FrameStore(Layout((4, 10, 10), np.uint8), frame_stack=4),
    "undecided": lambda: AutoStore(LAYOUT),
    "waiting": lambda: AutoStore(Layout((40,), np.float32), codec="zstd:1"),
}
N = 6


def values(store: Store, n: int, seed: int = 0) -> np.ndarray:
    """Tensors that differ from each other."""
    made = np.random.default_rng(seed).integers(1, 200, (n, *store.layout.shape)).astype(store.layout.dtype)
    made.reshape(n, -1)[:, 0] = np.arange(n) + 1
    return made


def filled(store: Store, write_buffer: WriteBuffer | None = None, seed: int = 0) -> TensorArray:
    array = TensorArray.zeros((N,), store, write_buffer)
    for k, value in enumerate(values(store, N, seed)):
        array[k] = value
    return array


@pytest.mark.parametrize("make", STORES.values(), ids=STORES)
def test_arrays_that_come_and_go_leave_what_the_others_have(make: Callable[[], Store]) -> None:
    store, rng = make(), np.random.default_rng(3)
    write_buffer = WriteBuffer(store, 1)
    arrays: list[tuple[TensorArray, np.ndarray]] = []
    for step in range(300):
        doing = rng.integers(6)
        if doing == 0 or not arrays:
            kept = write_buffer if rng.random() < 0.7 else None
            arrays.append(
                (TensorArray.zeros((N,), store, kept), np.zeros((N, *store.layout.shape), store.layout.dtype))
            )
        elif doing == 1 and len(arrays) > 2:
            del arrays[rng.integers(len(arrays))]
        elif doing == 2:  # a view in the place of its array
            k = rng.integers(len(arrays))
            array, model = arrays[k]
            arrays[k] = array.reshape(array.shape), model
        else:
            array, model = arrays[rng.integers(len(arrays))]
            row, value = int(rng.integers(N)), values(store, 1, step)[0]
            array[row] = model[row] = value
    for array, model in arrays:
        np.testing.assert_array_equal(array[:], model)
    del arrays[1:], array
    array, model = arrays.pop()
    write_buffer.flush()
    assert store.stats().n_tensors == np.count_nonzero(array.ids)
    del array
    assert store.stats().n_tensors == 0


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.reshape(2, 3, *LAYOUT.shape),
        lambda x: x.row(2),
        lambda x: x.reshape(2, 3, *LAYOUT.shape).swapaxes(0, 1),
        lambda x: x.reshape(2, 3, *LAYOUT.shape).swapaxes(0, 1).reshape(N, *LAYOUT.shape),  # which has ids of its own
        copy.copy,
    ],
    ids=["reshape", "row", "swapaxes", "copied ids", "copy"],
)
def test_a_view_keeps_the_tensors(view: Callable[[TensorArray], TensorArray]) -> None:
    store = FrameStore(LAYOUT)
    array = filled(store)
    seen = view(array)
    before = seen[...]
    del array
    assert store.stats().n_tensors == N
    np.testing.assert_array_equal(seen[...], before)
    again = copy.deepcopy(seen)
    del seen
    assert store.stats().n_tensors == 0
    np.testing.assert_array_equal(again[...], before)
    assert again.store.stats().n_tensors == N


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_of_an_array_and_its_view_have_the_same_items(copied: Callable[[object], tuple]) -> None:
    array = filled(FrameStore(LAYOUT))
    array, column = copied((array, array.reshape(2, 3, *LAYOUT.shape).swapaxes(0, 1)))
    ones, twos = np.ones(LAYOUT.shape, np.uint8), np.full(LAYOUT.shape, 2, np.uint8)
    column[1, 1] = ones
    np.testing.assert_array_equal(array[4], ones)
    array[4] = twos
    np.testing.assert_array_equal(column[1, 1], twos)
    store = array.store
    assert store.stats().n_tensors == N
    del array
    assert store.stats().n_tensors == N
    del column
    assert store.stats().n_tensors == 0


def test_a_copy_of_a_view_of_ids_that_lie_apart_can_only_be_read() -> None:
    store = FrameStore(LAYOUT)
    ids = np.zeros((N, 2), np.int64)
    ids[:, 0] = store.append(values(store, N))
    array = TensorArray(ids[:, 0], store)
    _, view = copy.deepcopy((array, array.reshape(2, 3, *LAYOUT.shape)))
    np.testing.assert_array_equal(view[1, 2], values(store, N)[5])
    with pytest.raises(ValueError, match="only be read"):
        view[1, 2] = 0
    del array
    assert store.stats().n_tensors == 0


def test_who_has_drawn_items_reads_them_when_their_array_is_gone() -> None:
    store = FrameStore(LAYOUT)
    drawn = DrawnArray(filled(store), [1, 4])
    store.append(values(store, 1, 7))
    np.testing.assert_array_equal(drawn[...], values(store, N)[[1, 4]])
    del drawn
    assert store.stats().n_tensors == 1


@pytest.mark.parametrize("make", [STORES["undecided"], STORES["waiting"]])
def test_rows_that_wait_for_an_array_that_is_gone_are_not_stored(make: Callable[[], Store]) -> None:
    store = make()
    write_buffer = WriteBuffer(store, 1, min_rows=20)
    kept, gone = TensorArray.zeros((N,), store, write_buffer), TensorArray.zeros((N,), store, write_buffer)
    for k, value in enumerate(values(store, N)):
        gone[k] = value
        if k % 2:
            kept[k] = value
    assert len(write_buffer.waiting) == N + N // 2
    del gone
    store.settle()
    assert len(write_buffer.waiting) == N // 2
    np.testing.assert_array_equal(kept[[1, 3, 5]], values(store, N)[[1, 3, 5]])
    assert store.stats().n_tensors == N // 2


def test_an_array_that_goes_while_its_rows_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    store = AutoStore(Layout((40,), np.float32), codec="zstd:1")
    write_buffer = WriteBuffer(store, 1, min_rows=20)
    kept, gone = filled(store, write_buffer), [filled(store, write_buffer)]
    places_of = WriteBuffer._places

    def places(self: WriteBuffer) -> object:
        found = places_of(self)
        gone.clear()  # as the garbage collector does it
        return found

    monkeypatch.setattr(WriteBuffer, "_places", places)
    write_buffer.flush()
    np.testing.assert_array_equal(kept[:], values(store, N))
    assert store.stats().n_tensors == N


def test_a_write_buffer_that_goes_gives_back_what_its_rows_have_replaced() -> None:
    store = FrameStore(LAYOUT)
    array = filled(store, WriteBuffer(store, 1))
    for k, value in enumerate(values(store, N, 8)):
        array[k] = value
    assert store.stats().n_tensors == 2 * N
    before = array[:]
    copied = TensorArray(array.ids.copy(), store)  # which has the references from here on
    array.ids[...] = 0
    del array
    assert store.stats().n_tensors == N
    np.testing.assert_array_equal(copied[:], before)


def test_ids_that_can_only_be_read_are_given_back() -> None:
    store = FrameStore(LAYOUT)
    kept, ids = filled(store), store.append(values(store, 3, 9))
    ids.flags.writeable = False
    array = TensorArray(ids, store)
    del array
    assert store.stats().n_tensors == N
    np.testing.assert_array_equal(kept[:], values(store, N))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_row_is_not_undone_in_an_array_that_is_gone(dtype: type) -> None:
    store = FrameStore(LAYOUT)
    write_buffer = WriteBuffer(store, 1)
    kept, gone = (TensorArray(np.zeros(N, dtype), store, write_buffer) for _ in range(2))
    write_buffer.reserve(0, 1)
    gone[0] = values(store, N)[0]
    kept[1] = values(store, N)[0]  # has the same id
    del gone
    store.settle()
    write_buffer.forget(0)
    write_buffer.flush()
    assert store.stats().n_tensors == 1
    np.testing.assert_array_equal(kept[1], values(store, N)[0])


def test_appending_gives_back_what_is_gone() -> None:
    store = FrameStore(LAYOUT, codec="raw", block_frames=1, max_bytes=1 << 16)
    held = []
    with suppress(HeapFull):
        while True:
            held.append(TensorArray(store.append(values(store, N, len(held))), store))
    held.clear()
    array = TensorArray(store.append(values(store, N, 99)), store)
    np.testing.assert_array_equal(array[:], values(store, N, 99))


def test_a_copy_of_what_was_drawn_is_decoded() -> None:
    store = FrameStore(LAYOUT)
    array = filled(store)
    drawn = DrawnArray(array, ...)
    del array
    for copied in (copy.deepcopy(drawn), pickle.loads(pickle.dumps(drawn))):
        assert type(copied) is np.ndarray
        np.testing.assert_array_equal(copied, values(store, N))


def test_what_is_gone_makes_room() -> None:
    store = FrameStore(LAYOUT, codec="raw", block_frames=1, max_bytes=1 << 16)
    held = []
    with suppress(HeapFull):
        while True:
            held.append(filled(store, seed=len(held)))
    n_held = len(held)
    for k in range(3 * n_held):
        del held[0]
        held.append(filled(store, seed=n_held + 1 + k))
    np.testing.assert_array_equal(held[-1][:], values(store, N, 4 * n_held))


def test_an_array_may_go_at_any_line_of_a_call_of_its_store() -> None:
    store = FrameStore(LAYOUT)
    kept = filled(store)
    held: list[object] = [None]

    def prepare() -> Callable[[], object]:
        held[0] = filled(store, seed=1)

        def call() -> None:
            held[0] = None
            kept[2] = kept[3]
            store.settle()

        return call

    for place in at_every_line(prepare, raised=Interrupt):
        kept[2] = values(store, N)[2]
        held[0] = None
        assert store.stats().n_tensors == N, place
    np.testing.assert_array_equal(kept[:], values(store, N))


def test_the_garbage_collector_may_drop_an_array_in_any_thread() -> None:
    store = FrameStore(LAYOUT)
    kept, expected = filled(store), values(store, N)

    def make_and_drop() -> None:
        cycle: list[object] = [filled(store, seed=5)]
        cycle.append(cycle)

    def write_and_read() -> None:
        kept[3] = expected[3]
        np.testing.assert_array_equal(kept[:], expected)

    with meanwhile(make_and_drop, make_and_drop, write_and_read, gc.collect, seconds=1):
        pass
    gc.collect()
    assert store.stats().n_tensors == N


def test_a_write_buffer_that_was_not_made_is_known_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FrameStore(LAYOUT)
    array = filled(store)
    with monkeypatch.context() as patched:
        patched.setattr(WriteBuffer, "_allocate", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt) as kept:
            WriteBuffer(store, 1)
    del array
    assert store.stats().n_tensors == 0
    assert not store.state()["references"].any()
    assert kept.traceback


def test_write_buffers_are_made_and_go_while_a_store_asks_them() -> None:
    store = FrameStore(LAYOUT)
    made = [WriteBuffer(store, 1) for _ in range(3)]
    asked = [(made.append(WriteBuffer(store, 1)), made.pop(0), one)[-1] for one in store.write_buffers]
    assert len(asked) == 3
    assert len(list(store.write_buffers)) == 6
    del asked
    made.clear()
    assert not list(store.write_buffers)


def test_first_tensors_whose_release_is_interrupted_twice_go(monkeypatch: pytest.MonkeyPatch) -> None:
    store = AutoStore(LAYOUT)
    array = filled(store)
    store.decide()
    monkeypatch.setattr(FrameStore, "_give_back", once(FrameStore._give_back))
    monkeypatch.setattr(FirstTensors, "stay", once(FirstTensors.stay))
    del array
    for _ in range(2):
        with suppress(KeyboardInterrupt):
            store.stats()
    assert store.stats().n_tensors == 0


def once(function: Callable[..., None]) -> Callable[..., None]:
    """A function that is interrupted when it is called the first time."""
    calls = iter([KeyboardInterrupt])

    def called(*arguments: object) -> None:
        for interrupt in calls:
            raise interrupt
        function(*arguments)

    return called
