"""What pack makes of batches, unpack gives back; and bytes that are not whole are refused."""

import pickle
import re
import struct

import ml_dtypes
import numpy as np
import pytest
from obscodec import (
    AutoStore,
    CorruptStream,
    DTypeError,
    EncodedTensor,
    FrameStore,
    Layout,
    ShapeError,
    TensorArray,
    encode,
    pack,
    unpack,
)
from obscodec.codecs import encoded
from obscodec.layout import ArrayLike, as_array

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


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.int16).reshape(2, 3, 4),
        bytearray(b"abc"),
        memoryview(b"abc"),
        b"abc",
        b"",
    ],
    ids=lambda array: type(array).__name__,
)
def test_an_array_is_one_batch_and_not_its_rows(array: ArrayLike) -> None:
    (batch,) = unpack(pack(array))
    assert np.array_equal(batch, as_array(array))
    assert pack(array) == pack([array]) == pack(iter([array]))


def test_an_array_that_can_not_be_a_batch_is_refused() -> None:
    store = FrameStore(Layout((4,), "u1"))
    with pytest.raises(DTypeError, match=r"^expected a numpy array, .*, got TensorArray: convert it first"):
        pack(TensorArray.zeros((3,), store))  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"^a batch is an array \[n, \*shape\], got a single number: write x\[None\]$"):
        pack(np.array(3))
    with pytest.raises(DTypeError, match=r"^batches must be some arrays \[n, \*shape\], or one, got int: write pack"):
        pack(3)  # type: ignore[arg-type]


def test_frames_that_stacks_share_take_little() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (103, 20, 20), np.uint8)
    stacks = np.stack([frames[i : i + 100] for i in range(4)], axis=1)
    assert len(pack([stacks])) < 1.1 * frames.nbytes
    assert len(pack([np.moveaxis(stacks, 1, -1)])) < 1.1 * frames.nbytes


def test_what_is_no_packed_batches_is_refused_at_once() -> None:
    encoded = encode(np.zeros(9))
    text = (
        "packed must be the bytes that pack() gave, got those of one EncodedTensor: pass them to "
        "EncodedTensor.from_bytes, and that to decode"
    )
    with pytest.raises(CorruptStream, match=f"^{re.escape(text)}$"):
        unpack(encoded.to_bytes())
    for wrong, kind in [(encoded, "EncodedTensor"), ("text", "str"), (None, "None")]:
        with pytest.raises(DTypeError, match=rf"^packed must be the bytes that pack\(\) gave, got {kind}$"):
            unpack(wrong)  # type: ignore[arg-type]


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


def announced(shape: tuple[int, ...], message: bytes) -> bytes:
    """A batch of a shape, with the message of another one."""
    return struct.pack(f"<QB{len(shape)}Q", len(message), len(shape), *shape) + message


def of_zeros(*shape: int, spec: str = "delta-rle|zstd:3") -> bytes:
    return encode(np.zeros(shape, np.uint8), spec).to_bytes()


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((), of_zeros()),
        ((), of_zeros(1)),
        ((6,), of_zeros(2, 3)),
        ((2, 3), of_zeros(3, 2)),
        ((2, 3), of_zeros(6)),
        ((4,), of_zeros(4, spec="raw")),
        ((0,) * 65, of_zeros(0, 0, 0)),
        ((1,) * 255, of_zeros(1, 1, 1)),
        ((2**64 - 1, 0), of_zeros(2**40, 0)),
        ((2**64 - 1, 0, 5, 5), of_zeros(0, 5, 5)),
        ((0, 2**20, 2**31, 2**31), of_zeros(0, 2**31, 2**31)),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, tuple) else "",
)
def test_a_shape_that_is_not_the_one_of_its_message_is_refused(shape: tuple[int, ...], message: bytes) -> None:
    with pytest.raises(CorruptStream, match=r"^a batch of shape .* (is announced, there is a message|can't be: )"):
        list(unpack(announced(shape, message)))


def test_a_batch_that_is_announced_too_large_is_refused() -> None:
    message = EncodedTensor(np.zeros(9, np.uint8), Layout((2**20, 2**20), np.uint8), "delta-rle|zstd:3").to_bytes()
    with pytest.raises(CorruptStream, match="announces an item of 1,099,511,627,776, at most 1,073,741,824 are all"):
        list(unpack(announced((2**20, 2**20), message)))
    with pytest.raises(CorruptStream, match="announces an item of 60, at most 59 are allowed"):
        list(unpack(pack([np.zeros((3, 4, 5), np.uint8)]), max_bytes=59))
    assert len(list(unpack(pack([np.zeros((3, 4, 5), np.uint8)] * 2), max_bytes=60))) == 2


def test_what_a_store_pickled_is_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as large as the store was, and pickles come from friends."""
    first, frames = AutoStore(Layout((4000,), np.uint8)), FrameStore(Layout((4000,), np.uint8))
    ids = [store.append(np.ones((5, 4000), np.uint8)) for store in (first, frames)]
    pickled = pickle.dumps([first, frames])
    monkeypatch.setattr(encoded, "_SMALL_NBYTES", 1000)
    monkeypatch.setattr(encoded, "_MOST_EXPANSION", 1)
    for store, its in zip(pickle.loads(pickled), ids, strict=True):
        assert (store.read(its) == 1).all()
