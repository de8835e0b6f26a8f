"""Arrays that share stores are written and read as if each had its own."""

from __future__ import annotations

import numpy as np
import pytest
from obscodec import AutoStore, Field, FrameStore, HeapFull, Layout, ShapeError, TensorArray
from obscodec.buffers import append_together, by_store, read_together, shared_stores, stats_of
from obscodec.stores import PinnedStore

FRAME = (20, 20)


def frames(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *FRAME), np.uint8)


def test_equal_fields_of_one_group_share_a_store() -> None:
    image, other, vector = Field(FRAME, "uint8", "raw"), Field(FRAME, "uint8", "zstd:1"), Field((3,), "float32")
    fields = {"a": image, "next_a": image, "b": image, "next_b": other, "c": vector, "d": Field(FRAME, "uint8", None)}
    stores = shared_stores(fields, group=lambda name: name.removeprefix("next_"))
    assert stores.keys() == {"a", "next_a", "b", "next_b"}
    assert list(by_store(stores).values()) == [["a", "next_a"], ["b"], ["next_b"]]


@pytest.mark.parametrize("batch", [(), (0,), (7,), (400,), (5, 3), (2, 3, 4)])
@pytest.mark.parametrize("store", [FrameStore, AutoStore])
def test_what_is_appended_together_is_read_together(batch: tuple[int, ...], store: type) -> None:
    one, other = store(Layout(FRAME, np.uint8)), store(Layout((1200,), np.uint8))
    n = int(np.prod(batch))
    drawn = frames(n + 1).reshape(n + 1, *FRAME)
    arrays = {
        "obs": drawn[:-1].reshape(*batch, *FRAME),
        "next_obs": drawn[1:].reshape(*batch, *FRAME),
        "other": np.full((*batch, 1200), 3, np.uint8),
    }
    stored = append_together(arrays, {"obs": one, "next_obs": one, "other": other})
    assert [array.ids.shape for array in stored.values()] == [batch] * 3
    for name, array in read_together(stored).items():
        assert np.array_equal(array, arrays[name])


def test_next_observations_are_the_observations_that_follow() -> None:
    store, drawn = FrameStore(Layout(FRAME, np.uint8)), frames(301)
    stored = append_together({"obs": drawn[:-1], "next_obs": drawn[1:]}, dict.fromkeys(("obs", "next_obs"), store))
    assert np.array_equal(stored["obs"].ids[1:], stored["next_obs"].ids[:-1])
    assert store.stats().n_tensors == 301


def test_a_refused_array_leaves_nothing_behind() -> None:
    store, small = FrameStore(Layout(FRAME, np.uint8)), FrameStore(Layout((5,), np.uint8))
    with pytest.raises(ShapeError):
        append_together({"a": frames(3), "b": np.zeros((3, 6), np.uint8)}, {"a": store, "b": small})
    assert store.stats().n_tensors == 0
    full = FrameStore(Layout((50, 1000), np.uint8), codec="raw", block_frames=1, max_bytes=1 << 20)
    noise = np.random.default_rng(0).integers(0, 256, (60, 50, 1000), np.uint8)
    with pytest.raises(HeapFull):
        append_together({"a": noise, "b": noise}, {"a": full, "b": full})
    assert full.stats().n_tensors == 0


def test_stats_count_a_store_once() -> None:
    store = PinnedStore(FrameStore(Layout(FRAME, np.uint8)))
    ids = store.append(frames(10)).astype(np.int32)
    stats = stats_of({"a": TensorArray(ids, store), "b": TensorArray(ids[:4], store), "reward": 40})
    assert stats.fields == {"a": store.stats(), "b": store.stats(), "reward": 40}
    assert str(stats) == f"5640 bytes in {stats.total_bytes}, {stats.ratio:.1f} times smaller"
    assert stats.raw_bytes == 14 * 400 + 40
    assert stats.total_bytes == store.stats().total_bytes + 14 * 4 + 40
