"""Open blocks, as a FrameStore shows them: one for each sequence, with the frames that new ones are compared with."""

import copy
import ctypes
import mmap
import pickle
import sys

import numpy as np
import pytest
from obscodec import FrameStore, Layout

FRAME = Layout((8, 9), "uint8")
CODECS = ["delta-rle", "raw"]


def walk(n: int, seed: int = 0) -> np.ndarray:
    """Noise, then frames that differ from the one before them in one pixel."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.integers(1, 256, (1, FRAME.nbytes), np.uint8), n, axis=0)
    for i in range(1, n):
        rows[i:, rng.integers(FRAME.nbytes)] += np.uint8(rng.integers(1, 256))
    return FRAME.tensors(rows)


def store_of(codec: str, **options: int) -> FrameStore:
    return FrameStore(FRAME, codec=codec, **{"block_frames": 8, **options})


@pytest.mark.parametrize("codec", CODECS)
def test_a_frame_is_known_among_the_last_ones_of_its_sequence_only(codec: str) -> None:
    store, frames = store_of(codec, recent=3), walk(5)
    ids = store.append(frames)
    assert store.append(frames[[2, 3, 4]]).tolist() == ids[[2, 3, 4]].tolist()
    again = store.append(frames[[1]])  # four frames ago
    assert again[0] not in ids
    assert store.append(frames[[4]], 1)[0] not in ids  # of another sequence
    assert store.append(frames[[1]]).tolist() == again.tolist()
    assert store.stats().n_tensors == 7


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("rebuild", [lambda store: pickle.loads(pickle.dumps(store)), copy.deepcopy])
def test_a_rebuilt_store_fills_its_open_blocks_as_before(codec: str, rebuild) -> None:
    frames, sequences = np.concatenate([walk(11), walk(21, 1)]), np.repeat([0, 1], [11, 21])
    store = store_of(codec, recent=2)
    ids = store.append(frames, sequences)
    rebuilt = rebuild(store)
    assert rebuilt.stats().n_tensors == store.stats().n_tensors
    more, of = np.concatenate([frames[[10, 9]], walk(20, 1)[18:], walk(9, 2)]), np.repeat([0, 1, 0], [2, 2, 9])
    added = [one.append(more, of) for one in (store, rebuilt)]
    np.testing.assert_array_equal(*added)
    assert added[0][:2].tolist() == ids[[10, 9]].tolist()  # the recent frames are known still
    for one in (store, rebuilt):
        np.testing.assert_array_equal(one.read(ids), frames)
        np.testing.assert_array_equal(one.read(added[0]), more)
    assert rebuilt.stats().live_bytes == store.stats().live_bytes


def resident_bytes(memory: np.ndarray, page_nbytes: int) -> int:
    """Bytes of the pages of some size, counted from the begin of a chunk, of which any byte is in memory."""
    libc, n = ctypes.CDLL(None, use_errno=True), -(-len(memory) // mmap.PAGESIZE)
    found = np.zeros(n, np.uint8)
    address = ctypes.c_void_p(memory.ctypes.data)
    assert libc.mincore(address, ctypes.c_size_t(len(memory)), ctypes.c_void_p(found.ctypes.data)) == 0
    pages = np.flatnonzero(found & 1) * mmap.PAGESIZE // page_nbytes
    return len(np.unique(pages)) * page_nbytes


@pytest.mark.skipif(sys.platform != "linux", reason="mincore tells which pages are in memory")
@pytest.mark.parametrize("codec", ["delta-rle", "raw"])
@pytest.mark.parametrize("page_nbytes", [4096, 16384, 65536])
def test_open_blocks_count_whole_pages(page_nbytes, codec, monkeypatch):
    """Three chunks of each sequence end in the middle of a page, which can have 64 KiB on Arm."""
    n_sequences, store = 5, FrameStore(Layout((40, 40), np.uint8), codec=codec)
    opened = store.log.open
    for seed in range(3):
        frames = np.random.default_rng(seed).integers(256, size=(n_sequences, 40, 40), dtype=np.uint8)
        store.append(frames, np.arange(n_sequences))
        others = opened.rows.nbytes + opened.queue.nbytes + opened.leaving.nbytes
        chunks = [memory for parts in opened._memories for memory in parts if len(memory)]
        taken = sum(resident_bytes(chunk, page_nbytes) for chunk in chunks)
        with monkeypatch.context() as patched:
            patched.setattr(mmap, "PAGESIZE", page_nbytes)
            assert taken <= opened.memory_bytes - others <= taken + n_sequences * page_nbytes
            assert store.memory_bytes >= taken
