"""Arrays of a device give the store that the same arrays of the CPU give: equal ids, bytes and reads."""

import pickle
from functools import partial

import numpy as np
import pytest
from cuda_on_cpu.device import SimulatedDevice
from cuda_on_cpu.fixtures import on_new_streams
from obscodec import AutoStore, DTypeError, FrameStack, FrameStore, HeapFull, Layout, ShapeError, TensorArray
from obscodec.arrays import WriteBuffer
from obscodec.streams import MAX_REFERENCES
from obscodec_cupy.device import opened
from stores_in_pairs import NOTHING, SMALL, Pair, taken_in, walk, without
from together import together

LAYOUTS = [
    Layout((84, 84), np.uint8),
    Layout((3, 5), np.float32),
    Layout((1,), np.uint8),
    Layout((), np.float64),
    Layout((9, 7), np.uint8),
    Layout((33,), np.int16),
    Layout((2, 3, 4), np.complex64),
    Layout((131, 65), np.uint8),
]


@pytest.mark.parametrize("codec", ["delta-rle", "delta-rle|zstd:1"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("n_streams", [1, 3])
@pytest.mark.filterwarnings("ignore:frames of the codec:UserWarning")
def test_frames_of_any_layout(cuda, layout, n_streams, codec):
    pair = Pair(cuda, layout, block_frames=4, codec=codec)
    frames = walk(40, layout)
    streams = np.arange(40) % n_streams
    ids = np.concatenate([pair.replace(NOTHING, frames[k : k + 10], streams[k : k + 10]) for k in range(0, 40, 10)])
    pair.check(ids)


@pytest.mark.parametrize("seed", range(4))
def test_any_program(cuda, seed):
    """Repetitions, resets, zeros, releases, 64 streams, frames of the CPU in between."""
    rng = np.random.default_rng(seed)
    pair = Pair(cuda, SMALL, block_frames=int(rng.integers(1, 9)), recent=int(rng.choice([3, 6])))
    frames = walk(60, SMALL, seed)
    held = NOTHING
    for _ in range(12):
        n, n_streams = int(rng.choice([4, 40, 128])), int(rng.choice([1, 5, 64]))
        first, step = rng.integers(60), rng.choice([0, 1, 2])
        which = (first + step * (np.arange(n) // n_streams)) % 60
        which = np.where(rng.random(n) < 0.2, rng.integers(60, size=n), which)
        old = rng.permutation(held)[: rng.integers(len(held) + 1)]
        ids = pair.replace(old, frames[which], np.arange(n) % n_streams, uploaded=bool(rng.random() < 0.7))
        held = without(held, old)
        held = np.append(held, ids)
    pair.check(held)


def test_a_store_that_was_pickled_goes_on(cuda):
    pair = Pair(cuda, SMALL, block_frames=4)
    frames = walk(30, SMALL)
    ids = pair.replace(NOTHING, frames[:11])
    pair.stores = [pickle.loads(pickle.dumps(store)) for store in pair.stores]
    pair.check(np.append(ids, pair.replace(NOTHING, frames[8:])))


def test_threads_feed_streams_of_their_own(cuda):
    store, there = FrameStore(SMALL, device=cuda, block_frames=4), opened.device(cuda)
    frames, ids = walk(40, SMALL), [NOTHING] * 3

    def feed(stream):
        for k in range(0, 40, 8):
            ids[stream] = np.append(ids[stream], store.append(there.upload(frames[k : k + 8]), stream))

    together(*(partial(feed, stream) for stream in range(3)))
    for stream in range(3):
        np.testing.assert_array_equal(store.read(ids[stream]), frames)


@pytest.mark.parametrize("uploaded", [[True, False, True], [False, True, False], [True, True, False]])
def test_a_stream_goes_on_from_the_cpu_on_the_device_and_back(cuda, uploaded):
    pair = Pair(cuda, SMALL, block_frames=4)
    frames = walk(30, SMALL)
    ids = [pair.replace(NOTHING, frames[9 * k : 9 * k + 12], 0, uploaded=there) for k, there in enumerate(uploaded)]
    assert set(ids[0].tolist()) & set(ids[1].tolist())  # the frames that come twice
    pair.check(np.concatenate(ids))


@pytest.mark.parametrize(
    ("layout", "stack"),
    [
        (Layout((4, 12, 11), np.uint8), FrameStack(4)),
        (Layout((6, 5, 5), np.uint8), FrameStack(2)),
        (Layout((12, 11, 4), np.uint8), FrameStack(4, -1)),
        (Layout((7, 5, 6), np.uint8), FrameStack(2, -1)),
        (Layout((7, 5, 3), np.float32), FrameStack(3, -1)),
        (Layout((7, 2), np.complex128), FrameStack(2, -1)),
        (Layout((4,), np.float16), FrameStack(4)),
    ],
    ids=str,
)
def test_stacks_of_frames(cuda, layout, stack):
    """Several environments, with resets, stacks of zeros and stacks that repeat."""
    pair = Pair(cuda, layout, stack, block_frames=3)
    frames = walk(40, stack.frame_layout(layout))
    held, rng = NOTHING, np.random.default_rng(0)
    for step in range(10):
        newest = np.array([step, 20 + step, 35])[:, None]
        which = np.maximum(newest - np.arange(stack.depth)[::-1], [[0], [20 + step // 4], [0]])
        tensors = np.ascontiguousarray(stack.join(frames[which.reshape(-1)]))
        if step == 5:
            tensors[1] = 0
        ids = pair.replace(held[:2], tensors, np.arange(3), uploaded=step != 3)
        held = np.append(held[2:], ids)
        repeated = [0, 1, 2, 1, int(rng.integers(3))]
        one, other = (
            taken_in(store, given, repeated, np.arange(3))
            for store, given in zip(pair.stores, (tensors, pair.there.upload(tensors)), strict=True)
        )
        np.testing.assert_array_equal(one, other)
        held = np.append(held, one)
    pair.check(held)


def test_many_first_frames_become_references(cuda):
    """More than there is room for, in one batch, with frames between them that join nothing."""
    pair = Pair(cuda, SMALL, block_frames=2)
    noise = np.random.default_rng(0).integers(256, size=(50, *SMALL.shape), dtype=np.uint8)
    frames = np.concatenate([noise[:20], walk(10, SMALL), noise[:5] ^ 1, noise[20:]])
    ids = pair.replace(NOTHING, frames, np.arange(65))
    ids = np.append(ids, pair.replace(NOTHING, frames[::-1], np.arange(65)))
    assert pair.stores[1].log.open.n_reference_frames == MAX_REFERENCES
    pair.check(ids)


def test_a_byte_anywhere_makes_a_frame_another_one(cuda):
    pair = Pair(cuda, Layout((250,), np.uint8))
    base = np.random.default_rng(0).integers(1, 255, size=250, dtype=np.uint8)
    for at in range(0, 250, 7):
        changed = base.copy()
        changed[at] += 1
        one, other = pair.replace(NOTHING, np.stack([base, changed]), at)
        assert one != other


def test_a_full_store_changes_as_the_cpu_changes_it(cuda):
    pair = Pair(cuda, SMALL, max_bytes=1 << 13, block_frames=2)
    noise = np.random.default_rng(0).integers(256, size=(400, *SMALL.shape), dtype=np.uint8)
    held, n_full = NOTHING, 0
    for k in range(0, 400, 10):
        try:
            ids = pair.stores[0].append(noise[k : k + 10], np.arange(10) % 2)
        except HeapFull:
            n_full += 1
            with pytest.raises(HeapFull, match="bytes do not fit"):
                pair.stores[1].append(pair.there.upload(noise[k : k + 10]), np.arange(10) % 2)
            for store in pair.stores:
                store.release(held[:12])
            held = held[12:]
        else:
            np.testing.assert_array_equal(
                pair.stores[1].append(pair.there.upload(noise[k : k + 10]), np.arange(10) % 2), ids
            )
            held = np.append(held, ids)
    assert n_full > 3
    for one, other in zip(*(store.read(held) for store in pair.stores), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("n_again", [0, 3])
@pytest.mark.parametrize("seed", range(2))
def test_batches_of_several_streams_of_work_are_in_order(monkeypatch, seed, n_again):
    """The work of each batch is queued where the caller says; on the simulated device all of it is done late."""
    late = SimulatedDevice(seed=1 + seed)
    monkeypatch.setattr(opened, "device", lambda name: late)
    pair = Pair("cuda", SMALL, block_frames=4)
    frames, streams = walk(60, SMALL, seed), on_new_streams(late, 3)
    ids = NOTHING
    for k in range(12):
        with streams[k % 3]():
            ids = np.append(ids, pair.replace(NOTHING, frames[max(0, 5 * k - n_again) : 5 * k + 5], 0))
    pair.check(ids)


def test_arrays_that_are_refused(cuda):
    store = FrameStore(SMALL, device=cuda)
    there = opened.device(cuda)
    with pytest.raises(ShapeError, match=r"^items have shape \(n, 9, 7\), got \(2, 7, 9\)$"):
        store.append(there.upload(np.ones((2, 7, 9), np.uint8)))
    with pytest.raises(
        DTypeError, match=r"^items have dtype uint8, got int8: convert the array, nothing is cast here$"
    ):
        store.append(there.upload(np.ones((2, 9, 7), np.int8)))
    with pytest.raises(ShapeError, match=r"^sequences are numbers from 0 on, got -1$"):
        store.append(there.upload(np.ones((2, 9, 7), np.uint8)), [0, -1])
    with pytest.raises(ShapeError, match=r"^2 tensors have 2 sequences or one for all"):
        store.append(there.upload(np.ones((2, 9, 7), np.uint8)), [0, 1, 2])
    with pytest.raises(ShapeError, match=r"^items have shape \(n, 9, 7\), got \(\)$"):
        store.append(there.upload(np.ones((9, 7), np.uint8))[0, 0])
    with pytest.raises(DTypeError, match=r"^expected an array on "):
        store.append([[1]])
    with pytest.raises(DTypeError, match=r"^tensors are a numpy array, for a store on the CPU, got "):
        FrameStore(SMALL).append(there.upload(np.ones((2, 9, 7), np.uint8)))
    assert len(store.append(there.upload(np.ones((0, 9, 7), np.uint8)))) == 0
    assert store.stats().n_tensors == 0


def test_frames_that_lie_apart(cuda):
    store, there = FrameStore(SMALL, device=cuda), opened.device(cuda)
    wide = np.random.default_rng(0).integers(256, size=(10, 18, 15), dtype=np.uint8)
    ids = store.append(there.upload(wide)[::2, 3:12, 1::2])
    np.testing.assert_array_equal(store.read(ids), wide[::2, 3:12, 1::2])


def test_tensors_of_torch(cuda):
    torch = pytest.importorskip("torch")
    pair = Pair(cuda, SMALL, block_frames=4)
    frames = walk(20, SMALL)
    where = "cpu" if isinstance(pair.there, SimulatedDevice) else cuda
    given = torch.as_tensor(frames, device=where)
    np.testing.assert_array_equal(pair.stores[1].append(given), pair.stores[0].append(frames))
    turned = given.transpose(1, 2).contiguous().transpose(1, 2)
    np.testing.assert_array_equal(pair.stores[1].append(turned, 1), pair.stores[0].append(frames, 1))


@pytest.mark.parametrize("kind", ["frames", "stacks", "floats", "raw"])
def test_an_auto_store_decides_with_arrays_of_a_device(cuda, kind):
    there = opened.device(cuda)
    played = walk(700, Layout((24, 24), np.uint8))[:, None]
    tensors = {
        "frames": played,
        "raw": np.random.default_rng(0).integers(256, size=(700, 1, 24, 24), dtype=np.uint8),
        "stacks": np.concatenate([played[:-3], played[1:-2], played[2:-1], played[3:]], axis=1),
        "floats": played + np.random.default_rng(0).random((700, 1, 1, 1), np.float32),
    }[kind]
    layout = Layout(tensors.shape[1:], tensors.dtype)  # blocks of the same number, so that ids are equal
    stores = [AutoStore(layout, block_frames=8, device=where) for where in ("cpu", cuda)]
    ids = NOTHING
    for k in range(0, len(tensors), 100):
        some = tensors[k : k + 100]
        one = stores[0].append(some)
        np.testing.assert_array_equal(stores[1].append(there.upload(some)), one)
        ids = np.append(ids, one)
    for which in (slice(0, 20), slice(400, 410)):
        given = tensors[which], there.upload(tensors[which])
        one, other = (store.append(some) for store, some in zip(stores, given, strict=True))
        for store in stores:
            store.release(ids[which])
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(stores[0].read(one), stores[1].read(other))
    some, which = tensors[:3], [0, 1, 2, 1]
    for store, given in zip(stores, (some, there.upload(some)), strict=True):
        again = taken_in(store, given, which, np.zeros(3, np.int64))
        np.testing.assert_array_equal(store.read(again), some[which])


def test_arrays_are_assigned_arrays_of_a_device(cuda):
    there = opened.device(cuda)
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
    with pytest.raises(DTypeError, match=r"^values of dtype float64, such as [0-9.]+, would be changed by dtype uint8"):
        arrays[1][0] = there.upload(frames[0] + 0.5)
    with pytest.raises(ShapeError, match="can't be assigned to shape"):
        arrays[1][0] = there.upload(frames[:2])


def test_rows_of_the_cpu_and_of_a_device_wait_together(cuda):
    there = opened.device(cuda)
    store = FrameStore(SMALL, device=cuda)
    array = TensorArray.zeros((6, 2), store, write_buffer=WriteBuffer(store, n_envs=2))
    frames = walk(12, SMALL).reshape(6, 2, *SMALL.shape)
    for row in range(6):
        array[row] = there.upload(frames[row]) if row % 2 else frames[row]
    np.testing.assert_array_equal(array[:], frames)
