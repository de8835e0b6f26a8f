"""Open blocks, as a FrameStore shows them: one for each sequence, with the frames that new ones are compared with."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from obscodec import FrameStore, Layout
from obscodec.frames.sizes import FullBlocks

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
def test_frames_of_each_sequence_join_its_own_block(codec: str) -> None:
    store = store_of(codec)
    frames = np.stack([walk(12, seed) for seed in range(3)], axis=1)
    ids = np.stack([store.append(step, [0, 1, 2]) for step in frames])
    blocks = ids // 8
    for sequence in range(3):
        full, opened = blocks[:8, sequence], blocks[8:, sequence]
        assert len(set(full.tolist())) == len(set(opened.tolist())) == 1
        assert (ids[:, sequence] % 8).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]
    assert len(np.unique(blocks)) == 6
    np.testing.assert_array_equal(store.read(ids.reshape(-1)), frames.reshape(-1, *FRAME.shape))


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
def test_open_blocks_are_counted_as_memory_and_are_not_in_the_heap(codec: str) -> None:
    stores, frames = [store_of(codec, recent=recent) for recent in (1, 6)], walk(8)
    for store in stores:
        assert store.stats().reserved_bytes == 0
        store.append(frames[:7])
        assert store.stats().live_bytes == 0
    one, six = (store.stats().reserved_bytes for store in stores)
    assert one > (7 if codec == "raw" else 1) * FRAME.nbytes
    assert six - one >= 5 * FRAME.nbytes  # of recent frames
    store = stores[0]
    assert (
        store.log.mean_frame_bytes(FullBlocks(0, 0)) == FRAME.nbytes
        if codec == "raw"
        else store.log.mean_frame_bytes(FullBlocks(0, 0)) < FRAME.nbytes
    )
    store.append(frames[7:])
    assert store.stats().live_bytes > 0  # a full block is stored at once


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


def test_references_are_kept_for_frames_that_no_patch_is_for() -> None:
    """A block that begins elsewhere than the one before it ended may begin with a frame that is kept as a reference."""
    store = store_of("delta-rle", block_frames=2)
    cuts = np.random.default_rng(0).integers(1, 256, (40, *FRAME.shape), np.uint8)
    ids = store.append(cuts)
    references = store.stats().dictionary_bytes
    assert references % FRAME.nbytes == 0
    np.testing.assert_array_equal(store.read(ids), cuts)
    rebuilt = pickle.loads(pickle.dumps(store))
    assert rebuilt.stats().dictionary_bytes == references > 0
    np.testing.assert_array_equal(rebuilt.read(ids), cuts)
