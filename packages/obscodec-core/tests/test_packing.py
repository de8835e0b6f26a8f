"""What pack makes of batches, unpack gives back; and bytes that are not whole are refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from obscodec import CorruptStream, pack, unpack

SHAPES = [(0,), (5,), (3, 4), (3, 0, 4), (6, 2, 5, 7), (6, 5, 7, 2), (4, 2, 3, 5, 6), (2, 3, 1, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["u1", "?", "<f4", "<i8", "<c8", ml_dtypes.bfloat16])
def test_batches_come_back(shape: tuple[int, ...], dtype: str) -> None:
    drawn = np.random.default_rng(0).integers(0, 2, shape)
    batches = [drawn.astype(dtype), drawn[:1].astype(dtype)]
    given_back = list(unpack(pack(batches)))
    assert [batch.dtype for batch in given_back] == [np.dtype(dtype)] * 2
    for batch, expected in zip(given_back, batches, strict=True):
        assert np.array_equal(batch, expected)


@given(arrays.arrays(np.uint8, arrays.array_shapes(max_dims=5, max_side=6)), st.integers(1, 3))
def test_any_batch_comes_back(batch: np.ndarray, n: int) -> None:
    assert all(np.array_equal(given_back, batch) for given_back in unpack(pack([batch] * n)))


def test_frames_that_stacks_share_take_little() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (103, 20, 20), np.uint8)
    stacks = np.stack([frames[i : i + 100] for i in range(4)], axis=1)
    assert len(pack([stacks])) < 1.1 * frames.nbytes
    assert len(pack([np.moveaxis(stacks, 1, -1)])) < 1.1 * frames.nbytes


def test_every_prefix_and_every_appended_byte_is_refused() -> None:
    packed = pack([np.arange(60, dtype=np.uint8).reshape(3, 4, 5)])
    for n in range(1, len(packed)):
        with pytest.raises(CorruptStream):
            list(unpack(packed[:n]))
    with pytest.raises(CorruptStream, match="the bytes are truncated: 9 should follow, 1 are left"):
        list(unpack(packed + b"\0"))


def test_a_changed_byte_is_refused_or_changes_the_shape_only() -> None:
    batch = np.arange(60, dtype=np.uint8).reshape(3, 4, 5)
    packed = pack([batch])
    for place in range(len(packed)):
        changed = bytearray(packed)
        changed[place] ^= 1
        try:
            given_back = list(unpack(changed))
        except CorruptStream:
            continue
        assert sorted(given_back[0].reshape(-1)) == sorted(batch.reshape(-1))
