"""Equal fields share a store, of which the memory is counted once."""

from __future__ import annotations

import numpy as np
from obscodec import Field, FrameStore, Layout, TensorArray
from obscodec_torchrl.arrays import shared_stores, stats_of

FRAME = (20, 20)


def test_equal_fields_of_one_group_share_a_store() -> None:
    image, other, vector = Field(FRAME, "uint8", "raw"), Field(FRAME, "uint8", "zstd:1"), Field((3,), "float32")
    fields = {"a": image, "next_a": image, "b": image, "next_b": other, "c": vector, "d": Field(FRAME, "uint8", None)}
    stores = shared_stores(fields, group=lambda name: name.removeprefix("next_"))
    assert stores.keys() == {"a", "next_a", "b", "next_b"}
    assert stores["a"] is stores["next_a"]
    assert len(set(stores.values())) == 3


def test_stats_count_a_store_once() -> None:
    store = FrameStore(Layout(FRAME, np.uint8))
    ids = store.append(np.random.default_rng(0).integers(0, 256, (10, *FRAME), np.uint8)).astype(np.int32)
    stats = stats_of({"a": TensorArray(ids, store), "b": TensorArray(ids[:4], store), "reward": 40})
    assert stats.fields == {"a": store.stats(), "b": store.stats(), "reward": 40}
    assert str(stats) == (
        f"5640 bytes in {stats.total_bytes}, {1 / stats.ratio:.2f} times larger\n  a, b: delta-rle, blocks of 16\n"
        "  reward: uncompressed"
    )
    assert stats.raw_bytes == 14 * 400 + 40
    assert stats.total_bytes == store.stats().total_bytes + 14 * 4 + 40
