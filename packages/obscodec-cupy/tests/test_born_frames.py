"""Frames that are born on a device give the store that the CPU makes of them: equal ids, bytes and reads."""

from __future__ import annotations

import pickle

import numpy as np
import obscodec_cupy.backend
import pytest
from obscodec import FrameStack, FrameStore, Layout, StackStore

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
NOTHING = np.empty(0, np.int64)


def walk(n: int, layout: Layout, seed: int = 0) -> np.ndarray:
    """Frames of small changes, with a cut now and then, and zeros here and there."""
    rng = np.random.default_rng(seed)
    changes = (rng.random((n, layout.nbytes)) < 0.02) * rng.integers(256, size=(n, layout.nbytes), dtype=np.uint8)
    changes[:: n // 3 + 1] = rng.integers(256, size=layout.nbytes, dtype=np.uint8)
    rows = np.bitwise_xor.accumulate(changes, 0)
    rows[rng.random(n) < 0.1] = 0
    return layout.tensors(rows)


class Pair:
    """A store on the CPU, and one on a device, fed with the same frames."""

    def __init__(self, device: str, layout: Layout, stack: FrameStack | None = None, **options: object) -> None:
        self.there = obscodec_cupy.backend.device(device)
        self.layout = layout
        frame = layout if stack is None else stack.frame_layout(layout)
        stores = [
            FrameStore(frame, stack=stack.depth if stack else 1, device=where, **options) for where in ("cpu", device)
        ]
        self.stores = stores if stack is None else [StackStore(store, layout, stack) for store in stores]

    def replace(self, old: np.ndarray, tensors: np.ndarray, streams: object = 0, *, born: bool = True) -> np.ndarray:
        ids = self.stores[0].replace(old, tensors, streams)
        given = self.there.upload(tensors) if born else tensors
        np.testing.assert_array_equal(self.stores[1].replace(old, given, streams), ids)
        return ids

    def check(self, ids: np.ndarray) -> None:
        """Equal reads and equal bytes."""
        one, other = self.stores
        np.testing.assert_array_equal(one.read(ids).view(np.uint8), other.read(ids).view(np.uint8))
        assert one.stats().live_bytes == other.stats().live_bytes
        frames = [getattr(store, "frames", store) for store in self.stores]
        a, b = [pickle.loads(pickle.dumps(store._blocks)) for store in frames]
        assert a.n == b.n
        assert a.open.blocks == b.open.blocks
        for number in a.open.blocks:
            assert pickle.dumps(a.open.content(number)) == pickle.dumps(b.open.content(number))
        full = np.flatnonzero(a.heap.holds(np.arange(a.n)))
        assert [block.tobytes() for block in a.heap.get(full)] == [block.tobytes() for block in b.heap.get(full)]
        np.testing.assert_array_equal(a.open.references, b.open.references)
        assert pickle.dumps(a.tables) == pickle.dumps(b.tables)


@pytest.fixture(params=["delta-rle", "delta-rle|zstd:1"])
def codec(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("n_streams", [1, 3])
def test_frames_of_any_layout(cuda, layout, n_streams, codec):
    pair = Pair(cuda, layout, block_frames=4, codec=codec)
    frames = walk(40, layout)
    streams = np.arange(40) % n_streams
    ids = np.concatenate([pair.replace(NOTHING, frames[k : k + 10], streams[k : k + 10]) for k in range(0, 40, 10)])
    pair.check(ids)
