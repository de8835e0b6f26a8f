"""A store that is full keeps what it has, refuses what does not fit, and has room again for what takes its place."""

from collections.abc import Callable

import numpy as np
import pytest
from obscodec import AutoStore, FrameStore, HeapFull, Layout, TensorArray
from obscodec.stores import Narrow, Store
from obscodec.stores.narrow.narrow_store import NarrowStore

FRAME, STACK = Layout((21, 21), np.uint8), Layout((4, 21, 21), np.uint8)
PIXELS = Narrow(np.dtype(np.float32), 8, (("/", 255),), np.dtype(np.float32))
MAX_BYTES = 1 << 18


def of_codec(codec: str, block_frames: int) -> Callable[[], Store]:
    return lambda: FrameStore(FRAME, codec=codec, block_frames=block_frames, max_bytes=MAX_BYTES)


def narrow_store() -> NarrowStore:
    layouts = FRAME, Layout(FRAME.shape, np.float32)
    return NarrowStore(PIXELS, *(FrameStore(of, codec="raw", block_frames=1, max_bytes=MAX_BYTES) for of in layouts))


MAKERS: dict[str, Callable[[], Store]] = {
    **{f"{codec}, {n}": of_codec(codec, n) for codec, n in [("delta-rle", 16), ("delta-rle|zstd:3", 16)]},
    **{f"{codec}, {n}": of_codec(codec, n) for codec, n in [("zstd:3", 4), ("lz4", 1), ("raw", 16), ("delta-rle", 1)]},
    "stacks": lambda: FrameStore(STACK, frame_stack=4, codec="raw", block_frames=1, max_bytes=MAX_BYTES),
    "auto": lambda: AutoStore(FRAME, max_bytes=MAX_BYTES),
    "narrow": narrow_store,
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_full_store_keeps_what_it_has(name: str) -> None:
    store, rng, held = MAKERS[name](), np.random.default_rng(0), {}

    def noise(n: int) -> np.ndarray:
        drawn = rng.integers(256, size=(n, *store.layout.shape), dtype=np.uint8)
        if store.layout.dtype == np.uint8:
            return drawn
        return drawn.astype(np.float32) / np.float32(255) + np.float32(1e-3) * (rng.random((n, 1, 1), "f4") < 0.5)

    def append() -> None:
        batch = noise(7)
        held.update(zip(store.append(batch).tolist(), batch, strict=True))

    def check() -> None:
        assert store.stats().n_tensors == len(held)
        np.testing.assert_array_equal(store.read([*held]), np.stack([*held.values()]))

    with pytest.raises(HeapFull):  # noqa: PT012
        while True:
            append()
    for _ in range(3):
        with pytest.raises(
            HeapFull, match=rf"bytes do not fit: .* max_bytes is {MAX_BYTES}: free slots, or allow more$"
        ):
            store.append(noise(700))
    assert len(held) > 100
    check()
    for _ in range(3):
        gone = [*held][:60]
        store.release(gone)
        for tensor_id in gone:
            del held[tensor_id]
        append()
        check()
    store.release([*held])
    assert store.stats().n_tensors == 0


def test_an_assignment_without_room_changes_nothing() -> None:
    array = TensorArray.zeros((100,), FrameStore(FRAME, codec="raw", block_frames=1, max_bytes=30_000))
    noise = np.random.default_rng(0).integers(256, size=(110, *FRAME.shape), dtype=np.uint8)
    array[:50] = noise[60:]
    before = array[:], array.ids.copy()
    with pytest.raises(HeapFull):
        array[40:] = noise[:60]
    np.testing.assert_array_equal(array[:], before[0])
    np.testing.assert_array_equal(array.ids, before[1])
    assert array.store.stats().n_tensors == 50
