"""Stores in pairs, for tests: one on the CPU, and one on a device that is fed with arrays there."""

from collections import Counter

import numpy as np
import numpy.typing as npt
from obscodec import FrameStack, FrameStore, Layout
from obscodec.heap import SlotHeap
from obscodec.segments import Segments
from obscodec.stores import Store
from obscodec_cupy.device import opened

SMALL = Layout((9, 7), np.uint8)
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

    def __init__(self, device: str, layout: Layout, frame_stack: FrameStack | None = None, **options: object) -> None:
        self.there = opened.device(device)
        self.layout = layout
        options = {"frame_stack": frame_stack, **options}
        self.stores = [FrameStore(layout, device=where, **options) for where in ("cpu", device)]

    def replace(
        self, old: np.ndarray, tensors: np.ndarray, streams: object = 0, *, uploaded: bool = True
    ) -> np.ndarray:
        """Append tensors to both, then release ``old``."""
        ids = self.stores[0].append(tensors, streams)
        given = self.there.upload(tensors) if uploaded else tensors
        np.testing.assert_array_equal(self.stores[1].append(given, streams), ids)
        for store in self.stores:
            store.release(old)
        return ids

    def check(self, ids: np.ndarray) -> None:
        """Equal reads and equal bytes."""
        one, other = self.stores
        np.testing.assert_array_equal(one.read(ids).view(np.uint8), other.read(ids).view(np.uint8))
        there = self.there.empty((len(ids), *self.layout.shape), self.layout.dtype)
        other.read_into(ids, there)
        np.testing.assert_array_equal(one.read(ids).view(np.uint8), self.there.download(there).view(np.uint8))
        assert one.stats().live_bytes == other.stats().live_bytes
        a, b = [store.log.state() for store in self.stores]
        assert is_equal(a, b)


def read(store: Store, ids: npt.ArrayLike) -> np.ndarray:
    """What the device of a store reads."""
    device = opened.device(store.device)
    out = device.empty((len(ids), *store.layout.shape), store.layout.dtype)
    store.read_into(np.asarray(ids, np.int64), out)
    return device.download(out)


def is_equal(a: object, b: object) -> bool:
    """Whether two states are equal."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(is_equal(a[name], b[name]) for name in a)
    if isinstance(a, Segments):
        return [stream.tobytes() for stream in a] == [stream.tobytes() for stream in b]
    return bool(np.array_equal(a, b))


def taken_in(store: Store, tensors: object, which: list[int], streams: np.ndarray) -> np.ndarray:
    """The ids of tensors, which are one for several ids."""
    ids = np.zeros(len(which), np.int64)
    store.take_in(tensors, np.array(which), streams, ids)
    return ids


def without(held: np.ndarray, old: np.ndarray) -> np.ndarray:
    """The ids that are left when each of ``old`` goes once."""
    left = Counter(held.tolist())
    left.subtract(old.tolist())
    return np.array(list(left.elements()), np.int64)


def move_chunks(heap: SlotHeap) -> None:
    """Move the streams of all chunks in memory to new ones, as a heap does by itself if many streams are dead."""
    with heap.lock:
        for number, chunk in list(heap._log.chunks.items()):
            if not chunk.is_spilled:
                heap._empty(number)
