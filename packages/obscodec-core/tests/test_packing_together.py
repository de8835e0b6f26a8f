"""Arrays that are packed together come back, and bytes that are not whole are refused."""

from __future__ import annotations

import numpy as np
import pytest
from obscodec import CorruptStream, FrameStore, Layout, ShapeError, TensorArray, note_of, pack_together, unpack_together

FRAME = (20, 20)


def compressed(plain: np.ndarray, store: FrameStore) -> TensorArray:
    array = TensorArray.zeros(plain.shape[:-2], store)
    array[...] = plain
    return array


def frames(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (*shape, *FRAME), np.uint8)


def unpacked(packed: bytes) -> list[np.ndarray]:
    rows, parts = zip(*unpack_together(packed), strict=True)
    assert [part.stop for part in rows[:-1]] == [part.start for part in rows[1:]]
    assert [part.stop - part.start for part in rows] == [len(part[0]) for part in parts]
    return [np.concatenate(of_array) for of_array in zip(*parts, strict=True)]


@pytest.mark.parametrize("n", [1, 60, 50_000])
def test_arrays_come_back_in_their_order(n: int) -> None:
    one, other = FrameStore(Layout(FRAME, np.uint8)), FrameStore(Layout(FRAME, np.uint8))
    plain = [np.arange(n), frames(min(n, 100) + 1)[np.arange(n) % 100], np.arange(3.0 * n).reshape(n, 3)]
    plain += [np.roll(plain[1], -1, axis=0), plain[1][:, None]]
    arrays = [plain[0], *(compressed(plain[i], one) if i in (1, 3) else plain[i] for i in (1, 2, 3)), plain[4]]
    arrays[4] = compressed(plain[4], other)
    for given, expected in zip(unpacked(pack_together(arrays)), plain, strict=True):
        assert given.dtype == expected.dtype
        assert np.array_equal(given, expected)


def test_what_arrays_of_one_store_share_takes_little() -> None:
    store, drawn = FrameStore(Layout(FRAME, np.uint8)), frames(101)
    together = pack_together([compressed(drawn[:-1], store), compressed(drawn[1:], store)])
    assert len(together) < 1.1 * drawn.nbytes


def test_no_arrays_and_no_rows() -> None:
    assert list(unpack_together(pack_together([]))) == []
    assert list(unpack_together(pack_together([np.zeros((0, 3))]))) == []


def test_arrays_that_are_not_equally_long_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"equally long, got \[3, 4\]"):
        pack_together([np.zeros(3), np.zeros(4)])


def test_every_prefix_and_every_appended_byte_is_refused() -> None:
    packed = pack_together([np.arange(20), compressed(frames(20), FrameStore(Layout(FRAME, np.uint8)))])
    for n in range(0, len(packed), 7):
        with pytest.raises(CorruptStream):
            list(unpack_together(packed[:n]))
    for more in (b"\0", packed[-30:], pack_together([np.arange(3)])[60:]):
        with pytest.raises(CorruptStream):
            list(unpack_together(packed + more))


def test_a_note_comes_back() -> None:
    packed = pack_together([np.arange(3)], {"length": 3, "paths": [["a", "b"]]})
    assert note_of(packed) == {"length": 3, "paths": [["a", "b"]]}
    assert note_of(pack_together([])) is None
    with pytest.raises(CorruptStream, match="do not begin"):
        note_of(packed[:20])
