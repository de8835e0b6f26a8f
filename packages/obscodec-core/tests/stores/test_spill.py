"""Each kind of store reads from files what it reads from memory."""

import pickle

import numpy as np
import obscodec
import obscodec.heap
import pytest
from obscodec import AutoStore, FrameStack, FrameStore, Layout
from obscodec.stores import Store

FRAME = Layout((1, 40, 40), np.uint8)
STACK = FrameStack(4)
N = 1200


def frames() -> np.ndarray:
    """Noise, which no codec makes smaller: 1.9 MB in 1200 frames."""
    return np.random.default_rng(0).integers(256, size=(N, *FRAME.shape), dtype=np.uint8)


def stacks() -> np.ndarray:
    first = np.concatenate([np.zeros((3, *FRAME.shape), np.uint8), frames()])
    return np.concatenate([first[i : i + N] for i in range(4)], axis=1)


def floats() -> np.ndarray:
    """Images in 0..1, and some that are none."""
    images = frames().astype(np.float32) / 255
    images[::7] = np.random.default_rng(1).random(images[::7].shape, np.float32)
    return images


CASES = {
    "single frames": (lambda: FrameStore(FRAME, codec="zstd:1", block_frames=1), frames),
    "frames": (lambda: FrameStore(FRAME, codec="delta-rle"), frames),
    "compressed frames": (lambda: FrameStore(FRAME, codec="delta-rle|zstd:1"), frames),
    "stacks": (lambda: FrameStore(Layout((4, 40, 40), np.uint8), frame_stack=STACK), stacks),
    "narrow": (lambda: AutoStore(Layout((1, 40, 40), np.float32), codec="zstd:1"), floats),
}


@pytest.mark.parametrize("case", CASES)
def test_a_store_reads_the_same_from_files(case, tmp_path):
    make, tensors = CASES[case]
    store: Store = make()
    expected = tensors()
    ids = np.concatenate([store.append(expected[i : i + 50]) for i in range(0, N, 50)])
    before = store.stats()
    freed = store.spill(str(tmp_path), before.reserved_bytes // 2)
    stats = store.stats()
    assert before.reserved_bytes // 4 <= freed < before.reserved_bytes  # the newest chunk may be large
    assert freed == before.reserved_bytes - stats.reserved_bytes
    assert freed // 2 < stats.disk_bytes <= freed
    assert stats.total_bytes == before.total_bytes - freed
    taken_bytes = stats.total_bytes - room_bytes(store)
    assert 0.95 * taken_bytes <= store.memory_bytes <= 1.05 * taken_bytes
    check_equal(store, ids, expected)

    check_equal(pickle.loads(pickle.dumps(store)), ids, expected)
    obscodec.save(store, tmp_path / "saved")
    check_equal(obscodec.load(tmp_path / "saved"), ids, expected)

    store.release(ids[: N // 2])
    store.append(expected[: N // 4])
    assert store.stats().disk_bytes < stats.disk_bytes
    check_equal(store, ids[N // 2 :], expected[N // 2 :])


def room_bytes(store: Store) -> int:
    """What is not written yet of the newest chunks: how much depends on when the background stored blocks."""
    if isinstance(store, FrameStore):
        return store.log.heap.stats().room_bytes
    return sum(room_bytes(part) for part in store._parts)


def check_equal(store: Store, ids: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(store.read(ids).view(np.uint8), expected.view(np.uint8))
