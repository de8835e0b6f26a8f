"""What is particular to rle: the width of elements, the bound, huge runs, rows anywhere in memory."""

from __future__ import annotations

import numpy as np
import pytest
from atari_frames import frames
from obscodec import CorruptStream, Layout, Segments, codec, decode, encode
from obscodec.codecs.rle import Rle


@pytest.mark.parametrize(
    ("dtype", "width"),
    [("bool", 1), ("float16", 2), ("float32", 4), ("datetime64[s]", 8), ("complex128", 8), ("longdouble", 8)],
)
def test_the_width_of_an_element(dtype: str, width: int) -> None:
    assert Rle(Layout((3,), dtype)).width == width


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("size", [0, 1, 2, 127, 128, 129, 16_383, 16_384, 16_385])
def test_the_bound_is_reached_when_every_element_is_a_run(dtype: str, size: int) -> None:
    x = np.arange(size).astype(dtype) % 251
    tested = Rle(Layout((size,), dtype))
    assert tested.encode(x).stream.nbytes == tested.bound()
    assert np.array_equal(tested.decode(tested.encode(x)), x)


def test_a_huge_constant_item_is_a_few_bytes() -> None:
    x = np.full(2**25 + 3, 9, np.uint8)
    encoded = encode(x, "rle")
    assert encoded.stream.nbytes == 6
    assert np.array_equal(decode(encoded), x)


@pytest.mark.parametrize("length", [1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_run_lengths_around_each_size_of_a_varint(length: int) -> None:
    x = np.repeat(np.array([1, 2, 1], np.uint8), [length, 5, length])
    assert np.array_equal(decode(encode(x, "rle")), x)


@pytest.mark.parametrize("dtype", ["uint16", "uint64"])
def test_rows_that_are_not_aligned(dtype: str) -> None:
    layout = Layout((33,), dtype)
    rle = codec("rle", layout)
    rows = np.random.default_rng(0).integers(0, 3, (5, layout.nbytes), np.uint8)
    memory = np.full(rows.size + 2, 0xA5, np.uint8)
    unaligned = memory[1:-1].reshape(rows.shape)
    unaligned[:] = rows
    streams = Segments.of(list(rle.encode_batch(unaligned, np.empty(5 * rle.bound(), np.uint8))))
    unaligned[:] = 0
    rle.decode_batch(streams, unaligned)
    assert np.array_equal(unaligned, rows)
    assert memory[[0, -1]].tolist() == [0xA5, 0xA5]


def test_streams_in_several_buffers() -> None:
    rle = codec("rle", Layout((4,), "uint8"))
    buffers = (np.array([1, 4, 7, 1, 4, 8], np.uint8), np.array([0xFF, 1, 4, 9], np.uint8))
    segments = Segments(buffers, np.array([1, 0, 0]), np.array([1, 3, 0]), np.array([3, 3, 3]))
    rows = np.zeros((3, 4), np.uint8)
    rle.decode_batch(segments, rows)
    assert rows[:, 0].tolist() == [9, 8, 7]


def test_read_only_streams() -> None:
    rle = codec("rle", Layout((4,), "uint8"))
    stream = np.frombuffer(bytes([1, 4, 7]), np.uint8)
    rows = np.zeros((1, 4), np.uint8)
    rle.decode_batch(Segments.packed(stream, np.array([3])), rows)
    assert rows.tolist() == [[7] * 4]


def test_a_corrupt_stream_in_a_batch_is_noticed() -> None:
    rle = codec("rle", Layout((4,), "uint8"))
    with pytest.raises(CorruptStream):
        rle.decode_batch(Segments.of([bytes([1, 4, 7]), bytes([1, 3, 7])]), np.zeros((2, 4), np.uint8))


@pytest.mark.parametrize("game", ["MsPacman", "Pong"])
def test_real_frames(game: str) -> None:
    played = frames(game, 300, seed=1)
    rle = codec("rle", Layout((84, 84), "uint8"))
    rows = rle.layout.rows(played)
    streams = rle.encode_batch(rows, np.empty(len(rows) * rle.bound(), np.uint8))
    decoded = np.empty_like(rows)
    rle.decode_batch(streams, decoded)
    assert np.array_equal(decoded, rows)
    runs = 1 + np.count_nonzero(np.diff(rows[0].astype(np.int16)))
    assert streams.lengths[0] <= 2 + 2 * runs + rows.shape[1] // 128
