import copy
import pickle
import re
import threading

import numpy as np
import pytest
from atari_frames import frames
from hypothesis import given, settings
from hypothesis import strategies as st
from obscodec import CorruptStream, DTypeError, HeapFull, Layout, ShapeError, SlotError, TensorStore, codec

SPECS = ["raw", "rle", "zstd:1", "lz4", "lz4-frame", "gzip:1", "shuffle|zstd:3", "delta|lz4", "rle|zstd:1"]
FRAMES = Layout((84, 84), np.uint8)


def frame_store(**options) -> TensorStore:
    return TensorStore(codec("zstd:1", FRAMES), 100, **options)


def random_tensors(layout: Layout, n: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).integers(256, size=(n, layout.nbytes), dtype=np.uint8)
    return layout.tensors(rows)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("game", ["MsPacman", "Pong", "Breakout"])
def test_read_gives_what_was_written(spec, game):
    store = TensorStore(codec(spec, FRAMES), 100)
    written = frames(game, 60, seed=0)
    store.write(np.arange(60, 0, -1), written)
    np.testing.assert_array_equal(store.read(np.arange(60, 0, -1)), written)
    which = np.random.default_rng(0).integers(60, size=150)
    np.testing.assert_array_equal(store.read(60 - which), written[which])


@given(
    shape=st.lists(st.integers(0, 5), max_size=3).map(tuple),
    dtype=st.sampled_from(["?", "u1", "<i2", "<f4", "<f8", "<c8", "<M8[ns]"]),
    spec=st.sampled_from(["raw", "rle", "zstd:1", "lz4"]),
    seed=st.integers(0, 100),
)
@settings(deadline=None)
def test_every_layout_keeps_its_bits(shape, dtype, spec, seed):
    layout = Layout(shape, dtype)
    store = TensorStore(codec(spec, layout), 10)
    written = random_tensors(layout, 7, seed)
    store.write(np.arange(1, 8), written)
    read = store.read([7, 1, 0])
    assert read.dtype == layout.dtype
    assert read[:2].tobytes() == written[[6, 0]].tobytes()
    assert not layout.rows(read)[2].any()


def test_big_endian_and_strided_tensors_are_stored_by_value():
    layout = Layout((3, 2), "<i4")
    store = TensorStore(codec("zstd:1", layout), 4)
    written = np.arange(24, dtype=">i4").reshape(4, 2, 3).transpose(0, 2, 1)
    store.write([1, 2, 3, 4], written)
    np.testing.assert_array_equal(store.read([1, 2, 3, 4]), written)


@pytest.mark.parametrize("ids", [[0], [1, 0, 2], [2, 2, 1], []])
def test_out_is_filled_whatever_its_strides(ids):
    store = frame_store()
    store.write([1, 2], frames("Pong", 2, seed=1))
    expected = store.read(ids)
    for out in (
        np.full((len(ids), 84, 84), 9, np.uint8),
        np.full((len(ids), 84, 168), 9, np.uint8)[:, :, ::2],
        np.full((84, len(ids), 84), 9, np.uint8).swapaxes(0, 1),
        np.full((len(ids), 84, 84), 9, np.uint8)[::-1],
    ):
        assert store.read(ids, out=out) is out
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("spec", ["raw", "rle", "delta-rle", "zstd:1", "shuffle|lz4", "delta-rle|zstd:1"])
def test_tensors_without_bytes(spec):
    store = TensorStore(codec(spec, Layout((0, 1 << 40), np.uint8)), 10)
    ids = store.append(np.empty((3, 0, 1 << 40), np.uint8))
    adopting = TensorStore(store.codec, 10)
    adopted = adopting.transfer(store, ids[None])[0]
    for holding, of in [(store, ids), (pickle.loads(pickle.dumps(store)), ids), (adopting, adopted)]:
        assert holding.read([0, *of]).shape == (4, 0, 1 << 40)


def test_id_0_is_the_zero_tensor():
    assert not frame_store().read([0, 0]).any()


def test_threads_change_nothing():
    written = frames("MsPacman", 60, seed=0)
    reads = []
    for threads in (1, 2, 7):
        store = frame_store(threads=threads)
        store.write(np.arange(1, 61), written)
        reads.append(store.read(np.arange(60, -1, -1)))
    np.testing.assert_array_equal(reads[0], reads[1])
    np.testing.assert_array_equal(reads[0], reads[2])


@pytest.mark.parametrize("rebuild", [lambda store: pickle.loads(pickle.dumps(store)), copy.deepcopy])
def test_a_rebuilt_store_holds_the_same_and_goes_on_on_its_own(rebuild):
    store = frame_store()
    ids = store.append(frames("Pong", 20, seed=0))
    store.release(ids[::2])
    rebuilt = rebuild(store)
    np.testing.assert_array_equal(rebuilt.read(ids[1::2]), store.read(ids[1::2]))
    assert rebuilt.stats().n_tensors == store.stats().n_tensors == 10
    new = rebuilt.append(frames("Pong", 90, seed=1))
    assert set(new.tolist()).isdisjoint(ids[1::2].tolist())
    assert store.stats().n_tensors == 10


def test_statistics_count_tensors_and_bytes():
    store = frame_store()
    assert store.stats().total_bytes == 0
    assert store.stats().ratio == 1.0
    store.append(frames("Pong", 50, seed=0))
    stats = store.stats()
    assert stats.n_tensors == 50
    assert stats.raw_bytes == 50 * 84 * 84
    assert stats.live_bytes <= stats.reserved_bytes < stats.total_bytes
    assert stats.ratio == stats.raw_bytes / stats.total_bytes


FRAME = np.zeros((1, 84, 84), np.uint8)
REFUSED_CALLS = [
    (
        "write",
        ([0, 1], np.ones((2, 84, 84), np.uint8)),
        SlotError,
        "slot 0 is the zero tensor and can't be written, use 1..100",
    ),
    ("write", ([1, 101], np.ones((2, 84, 84), np.uint8)), SlotError, "slots are in 0..100, got 101"),
    ("write", ([-1, 1], np.ones((2, 84, 84), np.uint8)), SlotError, "slots are in 0..100, got -1"),
    ("write", ([1, 2], FRAME), ShapeError, "2 slots take 2 tensors, got 1"),
    ("write", ([1], FRAME[:, 1:]), ShapeError, "items have shape (n, 84, 84), got (1, 83, 84)"),
    (
        "write",
        ([1], FRAME.astype(np.int8)),
        DTypeError,
        "items have dtype uint8, got int8: convert the array, nothing is cast here",
    ),
    ("append", (FRAME[0],), ShapeError, "items have shape (n, 84, 84), got (84, 84)"),
    (
        "append",
        (np.zeros((99, 84, 84), np.uint8),),
        SlotError,
        "99 tensors need 99 free slots, there are 98 of 100: release some, or make a larger store",
    ),
    ("read", ([3],), SlotError, "slot 3 holds nothing"),
    ("read", ([101],), SlotError, "slots are in 0..100, got 101"),
    ("read", ([1.5],), SlotError, "ids are integers, got float64"),
    ("read", ([[1, 2]],), ShapeError, "ids have shape (n,), got (1, 2)"),
    ("read", ([1, 2], FRAME), ShapeError, "out has shape (2, 84, 84), got (1, 84, 84)"),
    ("read", ([1], FRAME[:, 1:]), ShapeError, "out has shape (1, 84, 84), got (1, 83, 84)"),
    (
        "read",
        ([1], FRAME.astype(np.int8)),
        DTypeError,
        "out has dtype uint8, got int8",
    ),
    (
        "read",
        ([1], np.broadcast_to(FRAME, FRAME.shape)),
        DTypeError,
        "out is a read-only ndarray, pass one that can be written",
    ),
    ("release", ([1, 3],), SlotError, "slot 3 holds nothing that could be released"),
    ("release", ([1, 2, 1],), SlotError, "slot 1 is released twice, it holds one tensor"),
    ("release", ([101],), SlotError, "slots are in 0..100, got 101"),
]


@pytest.mark.parametrize(("call", "arguments", "error", "text"), REFUSED_CALLS)
def test_a_refused_call_changes_nothing(call, arguments, error, text):
    store = frame_store()
    ids = store.append(frames("Pong", 2, seed=0))
    before = store.read(ids), store.stats()
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        getattr(store, call)(*arguments)
    np.testing.assert_array_equal(store.read(ids), before[0])
    assert store.stats() == before[1]
    assert len(store.append(np.zeros((98, 84, 84), np.uint8))) == 98


def test_a_full_store_keeps_what_it_has_and_its_free_slots():
    store = TensorStore(codec("raw", FRAMES), 100, max_bytes=20_000)
    ids = store.append(frames("Pong", 2, seed=0))
    text = (
        r"^7056 bytes do not fit: the heap has reserved 20000 bytes for 14112 live ones, max_bytes is 20000: "
        r"free slots, or allow more$"
    )
    for _ in range(200):
        with pytest.raises(HeapFull, match=text):
            store.append(frames("Pong", 1, seed=0))
    np.testing.assert_array_equal(store.read(ids), frames("Pong", 2, seed=0))
    store.release(ids)
    store.append(frames("Pong", 2, seed=1))


def test_appending_and_releasing_for_ever_takes_no_more_slots_than_are_held():
    store = frame_store()
    rng = np.random.default_rng(0)
    held = {
        int(i): frame for i, frame in zip(store.append(frames("Pong", 80, seed=0)), frames("Pong", 80, 0), strict=True)
    }
    for step in range(300):
        gone = rng.choice(list(held), size=20, replace=False)
        store.release(gone)
        for i in gone:
            del held[int(i)]
        new = np.roll(frames("Pong", 80, seed=0), step, axis=0)[:20]
        held.update(zip(store.append(new).tolist(), new, strict=True))
    np.testing.assert_array_equal(store.read(list(held)), np.stack(list(held.values())))
    assert store.stats().n_tensors == 80


def test_two_threads_read_while_one_writes():
    store = TensorStore(codec("zstd:1", FRAMES), 100, threads=2)
    flat = np.broadcast_to(np.arange(1, 101, dtype=np.uint8)[:, None, None], (100, 84, 84))
    store.write(np.arange(1, 101), flat)
    stop = threading.Event()
    torn = []

    def read(seed):
        rng = np.random.default_rng(seed)
        while not stop.is_set():
            tensors = store.read(rng.integers(1, 101, size=40))
            torn.extend(tensor for tensor in tensors if (tensor != tensor[0, 0]).any())

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    for reader in readers:
        reader.start()
    rng = np.random.default_rng(2)
    for _ in range(100):
        values = rng.integers(1, 256, size=30, dtype=np.uint8)
        store.write(rng.integers(1, 101, size=30), np.broadcast_to(values[:, None, None], (30, 84, 84)))
    stop.set()
    for reader in readers:
        reader.join()
    assert not torn


def test_a_full_store_can_be_overwritten():
    store = TensorStore(codec("zstd:1", Layout((84, 84), np.uint8)), n_slots=20)
    played = frames("Pong", 60, seed=0)
    ids = store.append(played[:20])
    np.testing.assert_array_equal(store.replace(ids[5:15], played[20:30]), ids[5:15])
    np.testing.assert_array_equal(store.read(ids), np.concatenate([played[:5], played[20:30], played[15:20]]))
    with pytest.raises(SlotError, match=r"^1 tensors need 1 free slots, there are 0 of 20"):
        store.append(played[:1])


@pytest.mark.parametrize("spec", ["rle", "delta-rle", "zstd:1"])
def test_what_takes_the_place_of_a_lost_stream_is_longer_than_any_that_can_be_read(spec):
    """Those of ``rle@1`` could be longer than those that are written today."""
    store = TensorStore(codec(spec, FRAMES), 5)
    store.restore(TensorStore(codec(spec, FRAMES), 5).state() | {"lost": np.array([3])})
    assert store._heap.get(np.array([3])).lengths[0] > store.codec.read_bound()
    with pytest.raises(CorruptStream):
        store.read([3])
