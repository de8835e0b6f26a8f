"""Open blocks, as a FrameStore shows them: one for each sequence, with the frames that new ones are compared with."""

import copy
import pickle

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
