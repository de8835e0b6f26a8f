"""Every store keeps the contract: these are the laws of the room."""

from collections.abc import Callable

import numpy as np
import pytest
from obscodec import AutoStore, FrameStack, FrameStore, Layout
from obscodec.stores import Store
from obscodec.stores.narrow.narrow import Narrow
from obscodec.stores.narrow.narrow_store import NarrowStore
from obscodec.testing import StoreContract

SMALL = Layout((6, 5), "uint8")
FLOATS = Layout((6, 5), "float32")
PLANES = Layout((6, 5, 4), "uint8")
PIXELS = Narrow(np.dtype(np.float32), 8, (("/", 255),), np.dtype(np.float32))
CENTERED = Narrow(np.dtype(np.float32), 8, (("/", 127.5), ("-", 1)), np.dtype(np.float32))  # no code is 0


STORES: dict[str, Callable[[], Store]] = {
    "patches": lambda: FrameStore(SMALL, codec="delta-rle", block_frames=4),
    "patches, compressed": lambda: FrameStore(SMALL, codec="delta-rle|zstd:1", block_frames=4),
    "single frames": lambda: FrameStore(SMALL, codec="zstd:1", block_frames=1),
    "floats": lambda: FrameStore(FLOATS, codec="shuffle|lz4", block_frames=3),
    # as images of four channels are kept for a codec of images
    "planes": lambda: FrameStore(PLANES, frame_stack=FrameStack(1, axis=-1), codec="pred", block_frames=2),
    "interleaved": lambda: FrameStore(SMALL, codec="zstd:1", block_frames=4, interleaved=True),
    "undecided": lambda: AutoStore(SMALL, decide_after=1000),
    "deciding": lambda: AutoStore(SMALL, decide_after=7),
}


class TestStores(StoreContract):
    @pytest.fixture(autouse=True, params=STORES)
    def _make(self, request: pytest.FixtureRequest) -> None:
        vars(self)["make"] = STORES[request.param]


class TestStackStore(StoreContract):
    def make(self) -> Store:
        return FrameStore(Layout((3, 6, 5), "uint8"), frame_stack=3, block_frames=4)

    def tensors(self, n: int) -> np.ndarray:
        """Consecutive stacks."""
        frames = super().tensors(n + 2)[:, 0]
        return np.stack([frames[i : i + 3] for i in range(n)])


class TestNarrowStores(StoreContract):
    kinds: str = "both"

    @pytest.fixture(autouse=True, params=[PIXELS, CENTERED], ids=str)
    def _narrow(self, request: pytest.FixtureRequest) -> None:
        self.narrow = request.param

    def make(self) -> Store:
        codes = FrameStore(SMALL, codec="rle", block_frames=1)
        return NarrowStore(self.narrow, codes, FrameStore(FLOATS, codec="lz4", block_frames=1))

    def tensors(self, n: int) -> np.ndarray:
        """Two that are narrow, then one that is wide; or those of one kind."""
        tensors, codes = super().tensors(n), np.random.default_rng(0).integers(0, 256, (n, 6, 5), np.uint8)
        narrow = np.flatnonzero({"both": np.arange(n) % 3 != 2, "narrow": np.ones(n), "wide": np.zeros(n)}[self.kinds])
        self.narrow.undo(codes[narrow], tensors, narrow)
        return tensors


class TestAutoStoreThatHasDecided(StoreContract):
    def make(self) -> Store:
        store = AutoStore(SMALL, codec="delta-rle", block_frames=4, decide_after=2)
        store.release(store.append(np.array([[[1]], [[2]]], np.uint8).repeat(6, 1).repeat(5, 2)))
        return store
