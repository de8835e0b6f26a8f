"""Bits equal a plain array, bit for bit, whatever is assigned to them."""

import copy
import pickle

import numpy as np
import pytest
from obscodec import CorruptStream
from obscodec_sb3.bits import Bits

SHAPE = 30, 2, 19
INDICES = [
    3, -1, np.int64(4), (4, 1), (5, 0, 2), (5, 0, -1), (slice(3, 9), 1), slice(7, 20, 3), ..., (..., 5), (2, ..., 3),
    (slice(None), 1, slice(2, 9)), (4, slice(None), 3), np.array([1, 1, 29]), [2, 5], (np.arange(5), np.arange(5) % 2),
    (np.arange(5), 1, slice(None)), (np.arange(3), 0, np.arange(3)), np.arange(30) % 7 == 0, (None, 3),
    (3, None, slice(None)), (..., None), (slice(2, 4), slice(None), slice(None)),
    (np.array([[1, 2], [3, 4]]), np.array([0, 1])), np.zeros(SHAPE, bool), [],
]  # fmt: skip


def same(found, plain):
    assert type(found) is type(plain)
    found, plain = np.ascontiguousarray(found), np.ascontiguousarray(plain)
    assert (found.dtype, found.shape) == (plain.dtype, plain.shape)
    assert found.tobytes() == plain.tobytes()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("distinct", [[0, 1], [1, 0], [-0.0, 0.0], [np.nan, 3], [0, 1, 2], [5]])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "bool", "float16"])
def test_they_equal_a_plain_array(dtype, distinct, seed):
    rng = np.random.default_rng(seed)
    with np.errstate(invalid="ignore"):
        numbers = np.array(distinct).astype(dtype)
    plain = np.full(SHAPE, numbers[0])
    bits = Bits(SHAPE, numbers[0])
    for i in range(120):
        index = INDICES[rng.integers(len(INDICES))]
        values = numbers[:2] if i < 100 else numbers
        value = rng.choice(values, size=plain[index].shape)
        if {*values.tolist()} <= {0, 1} and rng.random() < 0.5:
            value = value.astype(bool)
        elif np.ndim(value) and rng.random() < 0.3:
            value = value[..., :1]
        if np.size(value) or not np.size(plain[index]):
            for array in (bits, plain):
                array[index] = value
        same(bits[index], plain[index])
        same(bits[...], plain)
        if rng.random() < 0.1:
            bits = [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))][rng.integers(3)](bits)
    assert bits.is_packed == (len(np.unique(plain.view(f"u{plain.itemsize}"))) <= 2)
    assert bits.memory_bytes == (SHAPE[0] * SHAPE[1] * 3 if bits.is_packed else plain.nbytes)
    assert (bits.shape, bits.ndim, bits.size, bits.nbytes) == (plain.shape, plain.ndim, plain.size, plain.nbytes)
    same(np.asarray(bits), plain)
    same(bits.swapaxes(0, 1).reshape(60, 19)[...], plain.swapaxes(0, 1).reshape(60, 19))
    same(np.asarray(bits.reshape(-1)), plain.reshape(-1))
    same(np.asarray(bits.swapaxes(1, -1)), plain.swapaxes(1, -1))
    same(bits.mean(), plain.mean())
    same(bits == plain[3], plain == plain[3])
    made = Bits.of(plain)
    assert (made is not None) == bits.is_packed
    if made is not None:
        same(made[...], plain)


def test_a_part_can_only_be_read_and_so_can_a_view():
    bits = Bits((4, 1, 9), np.float32(1))
    for part in (bits[2], bits[1:3], bits[...], bits[0, 0, 2:5]):
        with pytest.raises(ValueError, match="read-only"):
            part[...] = 0
    bits[[1, 2]][0] = 0  # a copy in a plain array, too
    for view in (bits.swapaxes(0, 1), bits.reshape(2, 2, 9)):
        with pytest.raises(ValueError, match=r"^this array can only be read: it is a view, assign to the original$"):
            view[0] = 0
    assert (bits[...] == 1).all()
    copied = Bits((4, 2, 9), np.float32(1)).swapaxes(0, 1).reshape(8, 9)
    copied[3] = 0
    assert not copied[3].any()


def test_a_wrong_assignment_changes_nothing():
    bits = Bits((4, 2, 9), np.float32(1))
    bits[1] = 0
    before = np.array(bits)
    for index, value in ((0, np.zeros((3, 9))), (4, 0), ((0, 0, 9), 0), (0, "text"), ((0, 0, 0, 0), 1)):
        with pytest.raises((ValueError, IndexError)):
            bits[index] = value
        same(np.array(bits), before)


@pytest.mark.parametrize("flat", [False, True])
def test_a_state_has_the_rows_that_were_written(flat):
    bits = Bits((6, 2, 9), np.float32(1))
    bits[:4] = np.arange(72).reshape(4, 2, 9) % 5 == 0
    saved = (bits.swapaxes(0, 1).reshape(12, 9) if flat else bits).state(12 if flat else 4)
    loaded = Bits.restored(saved, np.ones((6, 2, 9), np.float32))
    same(loaded[...], np.array(bits.swapaxes(0, 1).reshape(12, 9) if flat else bits))
    loaded[0] = 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"values": np.array([0, 1], np.float64)},
        {"values": np.zeros(0, np.float32)},
        {"values": np.zeros(2, np.float32)},
        {"values": np.arange(3, dtype=np.float32)},
        {"values": np.zeros(1, np.float32)},
        {"bits": np.zeros((4, 2, 3), np.uint8)},
        {"bits": np.zeros((7, 2, 2), np.uint8)},
        {"bits": np.zeros((4, 2, 2), np.int8)},
        {"bits": None},
    ],
)
def test_a_state_that_does_not_fit_is_refused(wrong):
    state = {"bits": np.full((4, 2, 2), 255, np.uint8), "values": np.array([0, 1], np.float32), **wrong}
    with pytest.raises(CorruptStream):
        Bits.restored(state, np.zeros((6, 2, 9), np.float32))
