"""The gather writes what the store on the CPU reads: over resets, shapes, dtypes, sizes of blocks and schedules."""

from collections import deque

import numpy as np
import pytest
from atari_frames import frames
from cuda_on_cpu.device import SimulatedDevice
from mirrors import DeviceTables, gathered, launch
from obscodec import FrameStack, FrameStore, Layout, SlotError
from obscodec_cupy.codecs.codec import STATIC_NBYTES, frame_scratch
from obscodec_cupy.device.device import Device
from obscodec_cupy.frames.gather import Gather, Source

STARTS = {0, 1, 2, 5, 9, 40, 42, 59}


def stacks_of(played: np.ndarray, depth: int, axis: int, *, zeros: bool) -> np.ndarray:
    """Stacks of frames ``[n, channels, ...]``; an episode begins at each of ``STARTS``."""
    stacks, last = [], deque(maxlen=depth)
    for i, frame in enumerate(played):
        if i in STARTS:
            last.extend([np.zeros_like(frame) if zeros else frame] * depth)
        last.append(frame)
        stacks.append(np.concatenate(last))
    return np.stack(stacks) if axis == 0 else np.ascontiguousarray(np.moveaxis(np.stack(stacks), 1, -1))


def stored(stacks: np.ndarray, depth: int, axis: int = 0, **options) -> tuple[FrameStore, np.ndarray]:
    stack, layout = FrameStack(depth, axis), Layout(stacks.shape[1:], stacks.dtype)
    store = FrameStore(layout, frame_stack=stack, **options)
    return store, np.concatenate([store.append(part) for part in np.array_split(stacks, 7)])


def sparse(shape: tuple[int, ...], n: int, dtype: str, changed: float = 0.02) -> np.ndarray:
    """Frames of any dtype, of which some bytes change each time."""
    rng = np.random.default_rng(n)
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    rows = np.zeros((n, nbytes), np.uint8)
    for i in range(1, n):
        rows[i] = np.where(rng.random(nbytes) < changed, rng.integers(0, 256, nbytes), rows[i - 1])
    return rows.view(dtype).reshape(n, *shape)


@pytest.mark.parametrize(
    ("depth", "axis", "zeros"),
    [
        (1, 0, True),
        (1, -1, False),
        (2, 0, False),
        (3, -1, True),
        (4, 0, True),
        (4, -1, True),
        (4, 0, False),
        (8, -1, False),
    ],
)
def test_stacks_over_resets(device: Device, depth: int, axis: int, zeros: bool) -> None:
    stacks = stacks_of(frames("MsPacman", 80, 0)[:60, None], depth, axis, zeros=zeros)
    store, ids = stored(stacks, depth, axis)
    following = np.append(ids[1:], 0)
    places = np.random.default_rng(depth).permutation(60)[:24]
    first, second = gathered(device, store, [ids, following], places)
    np.testing.assert_array_equal(first, stacks[places])
    np.testing.assert_array_equal(second, store.read(following[places]))


@pytest.mark.parametrize("seed", [0, 2, 3])
@pytest.mark.parametrize("codec", ["delta-rle", "raw", "delta-rle|lz4:9"])
def test_every_schedule(codec: str, seed: int) -> None:
    device = SimulatedDevice(seed=seed)
    stacks = stacks_of(sparse((1, 60, 60), 40, "u1", 0.1), 4, 0, zeros=True)
    store, ids = stored(stacks, 4, codec=codec)
    places = np.random.default_rng(seed).permutation(39)
    first, second = gathered(device, store, [ids, ids[1:]], places)
    np.testing.assert_array_equal(first, stacks[places])
    np.testing.assert_array_equal(second, stacks[places + 1])


@pytest.mark.parametrize(("game", "seed"), [("MsPacman", 0), ("Pong", 1), ("Breakout", 2), ("MsPacman", 3)])
def test_listed_stacks_in_any_order(device: Device, game: str, seed: int) -> None:
    """Stacks of frames that never came one after the other, and of the same one several times."""
    played = frames(game, 80, 0)[:80, None]
    rng = np.random.default_rng(seed)
    order = rng.integers(0, 80, (40, 4))
    order[::5, 1:] = order[::5, :1]
    stacks = played[order].reshape(40, 4, 84, 84)
    store, ids = stored(stacks, 4)
    assert (ids < 0).any()
    (got,) = gathered(device, store, [ids])
    np.testing.assert_array_equal(got, stacks)


# Each shape with some of the sizes of a block: g++ compiles a kernel for each pair.
@pytest.mark.parametrize(
    ("shape", "dtype", "block_frames"),
    [
        ((), "u1", 3),
        ((), "u1", 32),
        ((1,), "u1", 16),
        ((7,), "f4", 1),
        ((7,), "f4", 16),
        ((5, 3), "u1", 32),
        ((13,), "i2", 3),
        ((3, 11), "c16", 16),
        ((64, 64, 3), "u1", 1),
        ((64, 64, 3), "u1", 3),
        ((210, 160), "u1", 16),
        ((17, 19, 23), "u1", 32),
    ],
)
def test_frames_of_any_shape(device: Device, shape: tuple[int, ...], dtype: str, block_frames: int) -> None:
    n = 2 * block_frames + 2
    rows = sparse(shape, n, dtype, 0.5 if block_frames == 3 else 0.02)
    store = FrameStore(Layout(shape, dtype), block_frames=block_frames)
    ids = store.append(rows)
    places = np.append(np.arange(n), [0, n - 1])
    (got,) = gathered(device, store, [ids], places)
    assert got.tobytes() == rows[places].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "seed"), [("delta-rle", 0), ("delta-rle", 1), ("raw", 2), ("delta-rle|lz4", 0)])
def test_blocks_larger_than_what_is_loaded_at_once(device: Device, codec: str, seed: int) -> None:
    """Dense runs take several tiles, noise takes long ones, distant changes long varints, others none at all."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((40, 30_000), np.uint8)
    for i in range(1, 40):
        rows[i] = rows[i - 1]
        kind = rng.integers(5)
        if kind == 0:
            rows[i] = rng.integers(0, 256, 30_000)
        elif kind == 1:
            rows[i, :: rng.integers(5, 9)] += 1
        elif kind == 2:
            rows[i, [1, 20_000, 29_999]] += 1
        elif kind == 3:
            rows[i, 500 : rng.integers(600, 9_000)] += 3
    store = FrameStore(Layout((30_000,), np.uint8), codec=codec)
    ids = store.append(rows)
    places = rng.permutation(40)
    (got,) = gathered(device, store, [ids], places)
    np.testing.assert_array_equal(got, rows[places])


@pytest.mark.parametrize("depth", [1, 4])
def test_frames_larger_than_shared_memory(device: Device, depth: int) -> None:
    stacks = stacks_of(sparse((1, 300, 333), 20, "u1"), depth, 0, zeros=True)
    store, ids = stored(stacks, depth)
    if hasattr(device, "n_launches"):
        assert Gather(device, store.layout, 16, frame_stack=store.frame_stack).scratch_nbytes(5) == 5 * 99_904
    places = np.array([19, 3, 0, 17, 16])
    (got,) = gathered(device, store, [ids], places)
    np.testing.assert_array_equal(got, stacks[places])


@pytest.mark.parametrize("shared_kib", [48, 99, 227])
def test_frames_are_in_shared_memory_as_long_as_they_fit(shared_kib: int) -> None:
    device = SimulatedDevice()
    device.shared_nbytes = shared_kib << 10
    most = device.shared_nbytes - STATIC_NBYTES
    for nbytes in (1, most - 16, most - 15, most + 1):
        shared_nbytes, scratch_nbytes = frame_scratch(device, nbytes)
        assert (shared_nbytes > 0) == (scratch_nbytes == 0) == (nbytes <= most - 15)
        assert shared_nbytes + STATIC_NBYTES <= device.shared_nbytes
        assert max(shared_nbytes, scratch_nbytes) == (nbytes + 15) // 16 * 16


@pytest.mark.parametrize("codec", ["delta-rle", "raw", "delta-rle|lz4:9"])
@pytest.mark.parametrize("n_streams", [1, 3])
def test_ids_of_a_store_that_changes(device: Device, codec: str, n_streams: int) -> None:
    """Released blocks, blocks that are still open, several streams, ids that begin late, id 0."""
    rows = frames("Pong", 80, 0)[:80]
    store = FrameStore(Layout((84, 84), np.uint8), codec=codec, first_id=100, block_frames=8)
    ids = store.append(rows, np.arange(80) % n_streams)
    store.release(ids[5:40])
    ids[5:40] = 0
    (got,) = gathered(device, store, [ids], np.arange(80))
    np.testing.assert_array_equal(got, store.read(ids))


@pytest.mark.parametrize(("n", "threads", "parts"), [(5, 512, 2), (70, 256, 2), (1030, 256, 1)])
def test_as_many_threads_as_suit_the_number_of_samples(device: Device, n: int, threads: int, parts: int) -> None:
    stacks = stacks_of(sparse((1, 6, 5), 60, "u1"), 4, 0, zeros=False)
    store, ids = stored(stacks, 4)
    assert Gather(device, store.layout, 16, frame_stack=FrameStack(4))._kernel(n, [])[1:] == (threads, parts)
    places = np.random.default_rng(n).integers(60, size=n)
    (got,) = gathered(device, store, [ids], places)
    np.testing.assert_array_equal(got, stacks[places])


def test_an_output_at_any_address(device: Device) -> None:
    rows = frames("Pong", 80, 0)[:5]
    store = FrameStore(Layout((84, 84), np.uint8))
    ids, mirror = device.upload(store.append(rows).astype(np.int32)), DeviceTables(device, store)
    memory = device.zeros((5 * 7056 + 32,), np.uint8)
    for at in (1, 2, 4, 8):
        out = memory[at : at + 5 * 7056].reshape((5, 84, 84))
        launch(Gather(device, store.layout, 16), mirror.header, 5, [Source(ids, out)])
        mirror.check()
        np.testing.assert_array_equal(device.download(out), rows)


@pytest.mark.parametrize("depth", [1, 4])
def test_ids_that_are_of_nothing_are_zeros_and_reported(device: Device, depth: int) -> None:
    stacks = stacks_of(frames("Pong", 80, 0)[:20, None], depth, 0, zeros=False)
    store, ids = stored(stacks, depth)
    mirror, n_ids = DeviceTables(device, store), 32
    gather = Gather(device, store.layout, 16, frame_stack=store.frame_stack)
    wrong = [n_ids * depth, 2**31 - 1, -(2**31), -5000, -1, *([2] if depth > 1 else [])]
    for bad in wrong:
        chosen = np.append(ids, bad)
        (got,) = gathered(device, store, [chosen], np.arange(20), tables=mirror)
        np.testing.assert_array_equal(got, stacks)
        with pytest.raises(SlotError, match=r"sample 1 of a batch asks for a tensor that the store does not have"):
            gathered(device, store, [chosen, ids], np.array([3, 20]), tables=mirror)
    for place in (-1, 20, 2**62):
        out = device.empty((2, *store.layout.shape), np.uint8)
        source = Source(device.upload(ids.astype(np.int32)), out)
        launch(gather, mirror.header, 2, [source], device.upload(np.array([place, 4])))
        with pytest.raises(SlotError, match=r"sample 0 of"):
            mirror.check()
        np.testing.assert_array_equal(device.download(out), [np.zeros_like(stacks[0]), stacks[4]])


def test_damaged_tables_are_reported(device: Device) -> None:
    """Frames before a frame, and in a list, that do not exist."""
    stacks = frames("Pong", 80, 0)[np.random.default_rng(0).integers(0, 80, (12, 4))]
    store, ids = stored(stacks, 4)
    frames_before = store.log.tables.previous
    for bad in (-1, 10_000):
        frames_before[:] = bad
        store.log.stacks.frames[:12, 2] = bad
        with pytest.raises(SlotError, match="sample 0 of"):
            gathered(device, store, [ids])
