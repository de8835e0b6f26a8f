"""Frames that are born on a device give the store that the CPU makes of them: equal ids, bytes and reads."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import obscodec_cupy.backend
import pytest
from cuda_on_cpu.device import SimulatedDevice
from cuda_on_cpu.fixtures import on_new_streams
from obscodec import MAX_REFERENCES, DTypeError, FrameStack, FrameStore, HeapFull, Layout, ShapeError
from obscodec_cupy.born_frames import CudaFrameBatch, CudaFrameEncoder
from stores_in_pairs import NOTHING, SMALL, Pair, walk, without

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
    pair = Pair(cuda, SMALL, block_frames=int(rng.integers(1, 9)), stack=int(rng.choice([1, 4])))
    frames = walk(60, SMALL, seed)
    held = NOTHING
    for _ in range(12):
        n, n_streams = int(rng.choice([4, 40, 128])), int(rng.choice([1, 5, 64]))
        first, step = rng.integers(60), rng.choice([0, 1, 2])
        which = (first + step * (np.arange(n) // n_streams)) % 60
        which = np.where(rng.random(n) < 0.2, rng.integers(60, size=n), which)
        old = rng.permutation(held)[: rng.integers(len(held) + 1)]
        ids = pair.replace(old, frames[which], np.arange(n) % n_streams, born=bool(rng.random() < 0.7))
        held = without(held, old)
        held = np.append(held, ids)
    pair.check(held)


def test_large_frames(cuda):
    pair = Pair(cuda, Layout((90, 91, 3), np.uint32), block_frames=2)
    ids = pair.replace(NOTHING, walk(5, pair.layout))
    pair.check(ids)


def test_a_store_that_was_pickled_goes_on(cuda):
    pair = Pair(cuda, SMALL, block_frames=4)
    frames = walk(30, SMALL)
    ids = pair.replace(NOTHING, frames[:11])
    pair.stores = [pickle.loads(pickle.dumps(store)) for store in pair.stores]
    pair.check(np.append(ids, pair.replace(NOTHING, frames[8:])))


def test_threads_feed_streams_of_their_own(cuda):
    store, there = FrameStore(SMALL, device=cuda, block_frames=4), obscodec_cupy.backend.device(cuda)
    frames, ids = walk(40, SMALL), [NOTHING] * 3

    def feed(stream):
        for k in range(0, 40, 8):
            ids[stream] = np.append(ids[stream], store.append(there.upload(frames[k : k + 8]), stream))

    threads = [threading.Thread(target=feed, args=(stream,)) for stream in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stream in range(3):
        np.testing.assert_array_equal(store.read(ids[stream]), frames)


def test_marks_tell_frames_apart(device):
    """Wherever they begin in memory; only zeros have the mark 0."""
    for nbytes in (1, 7, 8, 16, 63, 250):
        encoder = CudaFrameEncoder(device, Layout((nbytes,), np.uint8), 1)
        base = np.random.default_rng(0).integers(256, size=nbytes, dtype=np.uint8)
        one_more = base + np.eye(nbytes, dtype=np.uint8)
        turned = np.stack([np.roll(base, k) for k in range(nbytes)])
        some = np.unique(np.concatenate([base[None], one_more, turned, np.eye(nbytes, dtype=np.uint8)]), axis=0)
        rows = np.concatenate([some, np.zeros((1, nbytes), np.uint8)])
        rows = rows if some.any(axis=1).all() else some
        marks = encoder.marks(device.upload(rows))
        assert len(set(marks.tolist())) == len(rows)
        np.testing.assert_array_equal(marks == 0, ~rows.any(axis=1))
        shifted = device.upload(np.append(np.zeros(3, np.uint8), rows))[3:].reshape(rows.shape)
        np.testing.assert_array_equal(encoder.marks(shifted), marks)


@pytest.mark.parametrize("born", [[True, False, True], [False, True, False], [True, True, False]])
def test_a_stream_goes_on_from_the_cpu_on_the_device_and_back(cuda, born):
    pair = Pair(cuda, SMALL, block_frames=4)
    frames = walk(30, SMALL)
    ids = [pair.replace(NOTHING, frames[9 * k : 9 * k + 12], 0, born=there) for k, there in enumerate(born)]
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
        ids = pair.replace(held[:2], tensors, np.arange(3), born=step != 3)
        held = np.append(held[2:], ids)
        repeated = np.array([0, 1, 2, 1, int(rng.integers(3))])
        one, other = (
            store.replace_repeated(NOTHING, given, repeated, np.arange(3))
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
    assert pair.stores[1]._blocks.open.n_references == MAX_REFERENCES
    pair.check(ids)


def test_marks_that_take_different_frames_for_equal(cuda, monkeypatch):
    """Every byte is compared, so the batch is taken in by the CPU then."""
    marks = CudaFrameEncoder.marks
    monkeypatch.setattr(CudaFrameEncoder, "marks", lambda encoder, rows: np.sign(marks(encoder, rows)) ** 2)
    downloads = []
    monkeypatch.setattr(
        CudaFrameBatch, "rows", lambda batch, rows=CudaFrameBatch.rows: downloads.append(1) or rows(batch)
    )
    pair = Pair(cuda, SMALL, block_frames=4)
    frames = walk(30, SMALL)
    ids = np.concatenate([pair.replace(NOTHING, frames[k : k + 10], np.arange(10) % 2) for k in (0, 10, 20)])
    assert len(downloads) == 3
    pair.check(ids)


def test_a_byte_anywhere_makes_a_frame_another_one(cuda, monkeypatch):
    monkeypatch.setattr(CudaFrameEncoder, "marks", lambda encoder, rows: np.ones(len(rows), np.int64))
    pair = Pair(cuda, Layout((250,), np.uint8))
    base = np.random.default_rng(0).integers(1, 255, size=250, dtype=np.uint8)
    for at in range(0, 250, 7):
        changed = base.copy()
        changed[at] += 1
        one, other = pair.replace(NOTHING, np.stack([base, changed]), at)
        assert one != other


def test_no_frame_visits_the_host(cuda, monkeypatch):
    monkeypatch.setattr(CudaFrameBatch, "rows", lambda batch: pytest.fail("the frames were downloaded"))
    pair = Pair(cuda, Layout((84, 84), np.uint8))
    frames = np.concatenate([walk(100, pair.layout), walk(100, pair.layout)[::-1]])
    downloaded, device = [], type(pair.there)
    download = device.download
    monkeypatch.setattr(device, "download", lambda self, x: downloaded.append(x.nbytes) or download(self, x))
    ids = pair.stores[1].append(pair.there.upload(frames))
    assert sum(downloaded) < frames.nbytes / 4  # patches, and the frames that became references
    np.testing.assert_array_equal(pair.stores[1].read(ids), frames)


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


def test_frames_that_are_taken_in_are_not_refused_for_want_of_room_for_recent_ones(cuda, monkeypatch):
    pair, frames = Pair(cuda, SMALL, block_frames=4), walk(40, SMALL)
    held = pair.replace(NOTHING, frames[:10], np.arange(10) % 2)

    def refuse(batch, slots, recent):
        raise HeapFull("no more")

    with monkeypatch.context() as patch:
        patch.setattr(CudaFrameBatch, "keep", refuse)
        held = pair.replace(held, frames[5:20], np.arange(15) % 2)
    pair.check(held)
    for born in (True, False, True):
        held = np.append(held, pair.replace(NOTHING, frames[15:30], np.arange(15) % 2, born=born))
    pair.check(held)


@pytest.mark.parametrize("after", range(1, 12))
def test_a_device_that_is_full_refuses_the_batch(cuda, monkeypatch, after):
    """Whichever allocation fails, nothing was stored, and the stream goes on as if nobody had tried."""
    pair = Pair(cuda, SMALL, block_frames=4)
    frames = walk(40, SMALL)
    ids = pair.replace(NOTHING, frames[:10], np.arange(10) % 2)
    before = pair.stores[1].stats().n_tensors
    given, empty, n_asked = pair.there.upload(frames[10:25]), type(pair.there).empty, 0

    def refuse(device, shape, dtype):
        nonlocal n_asked
        n_asked += 1
        if n_asked == after:
            raise HeapFull("no more")
        return empty(device, shape, dtype)

    with monkeypatch.context() as patch:
        patch.setattr(type(pair.there), "empty", refuse)
        try:
            ids = np.append(ids, pair.stores[1].append(given, np.arange(15) % 20))
        except HeapFull:
            assert pair.stores[1].stats().n_tensors == before
        else:
            assert n_asked < after, "an allocation failed and nobody was told"
    np.testing.assert_array_equal(
        pair.stores[1].append(given, np.arange(15) % 20), pair.stores[0].append(frames[10:25], np.arange(15) % 20)
    )


@pytest.mark.parametrize("n_again", [0, 3])
@pytest.mark.parametrize("seed", range(2))
def test_batches_of_several_streams_of_work_are_in_order(monkeypatch, seed, n_again):
    """The work of each batch is queued where the caller says; on the simulated device all of it is done late."""
    monkeypatch.setattr(CudaFrameBatch, "rows", lambda batch: pytest.fail("frames are not equal that should be"))
    late = SimulatedDevice(seed=1 + seed)
    monkeypatch.setattr(obscodec_cupy.backend, "device", lambda name: late)
    pair = Pair("cuda", SMALL, block_frames=4)
    frames, streams = walk(60, SMALL, seed), on_new_streams(late, 3)
    ids = NOTHING
    for k in range(12):
        with streams[k % 3]():
            ids = np.append(ids, pair.replace(NOTHING, frames[max(0, 5 * k - n_again) : 5 * k + 5], 0))
    pair.check(ids)


def test_arrays_that_are_refused(cuda):
    store = FrameStore(SMALL, device=cuda)
    there = obscodec_cupy.backend.device(cuda)
    with pytest.raises(ShapeError, match=r"^items have shape \(n, 9, 7\), got \(2, 7, 9\)$"):
        store.append(there.upload(np.ones((2, 7, 9), np.uint8)))
    with pytest.raises(
        DTypeError, match=r"^items have dtype uint8, got int8: convert the array, nothing is cast here$"
    ):
        store.append(there.upload(np.ones((2, 9, 7), np.int8)))
    with pytest.raises(ShapeError, match=r"^streams are numbers from 0 on, got -1$"):
        store.append(there.upload(np.ones((2, 9, 7), np.uint8)), [0, -1])
    with pytest.raises(ShapeError, match=r"^2 tensors have 2 streams or one for all"):
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
    store, there = FrameStore(SMALL, device=cuda), obscodec_cupy.backend.device(cuda)
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
