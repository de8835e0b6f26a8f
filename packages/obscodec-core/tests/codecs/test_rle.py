"""What is particular to rle: the width of elements, the bound, huge runs, rows anywhere in memory."""

import numpy as np
import pytest
from obscodec import CorruptStream, EncodedTensor, Layout, codec, decode, encode
from obscodec.codecs.formats.rle import Rle
from obscodec.segments import Segments
from obscodec.varint import encode_varint


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("size", [0, 1, 2, 127, 128, 129, 16_383, 16_384, 16_385])
def test_the_bound_is_reached_when_every_element_is_a_run(dtype: str, size: int) -> None:
    x = np.arange(size).astype(dtype) % 251
    tested = Rle(Layout((size,), dtype))
    assert tested.encode(x).stream.nbytes == tested.bound()
    assert np.array_equal(tested.decode(tested.encode(x)), x)


def as_runs(x: np.ndarray) -> bytes:
    """Runs, however long, by their document."""
    begins = np.flatnonzero(np.append(True, x[1:] != x[:-1]))
    lengths = np.diff(begins, append=len(x)).tolist()
    return encode_varint(len(begins)) + b"".join(map(encode_varint, lengths)) + x[begins].tobytes()


def by_document(x: np.ndarray) -> bytes:
    runs = as_runs(x)
    return runs if len(runs) <= 1 + x.nbytes else b"\0" + x.tobytes()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_the_shorter_of_runs_and_the_item_is_written(dtype: str) -> None:
    """Items of one batch whose runs are from 2 bytes to far more than they are, in any order."""
    rng, n = np.random.default_rng(0), 600
    items = [np.resize(np.repeat(np.arange(n) % 200, length), n) for length in range(1, 300)]
    items += [np.resize(np.repeat(rng.integers(0, 200, n), rng.integers(1, length, n)), n) for length in range(2, 30)]
    x = np.stack(items).astype(dtype)
    rng.shuffle(x)
    tested = Rle(Layout((n,), dtype))
    streams = tested.encode_batch(tested.layout.rows(x), np.empty(len(x) * tested.bound(), np.uint8))
    assert list(map(bytes, streams)) == list(map(by_document, x))
    assert {stream[0] == 0 for stream in streams} == {False, True}
    decoded = np.empty((len(x), tested.layout.nbytes), np.uint8)
    tested.decode_batch(streams, decoded)
    assert np.array_equal(decoded, tested.layout.rows(x))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_runs_that_are_longer_than_the_item_are_read_but_not_in_a_chain(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 256, 8000, np.uint8).view(dtype)
    runs = np.frombuffer(as_runs(x), np.uint8)
    assert len(runs) > x.nbytes + 900
    assert np.array_equal(decode(EncodedTensor(runs, Layout.of(x), "rle")), x)
    compressed = encode_varint(len(runs)) + bytes(encode(runs, "zstd:1").stream)
    with pytest.raises(CorruptStream, match=f"has {len(runs)} bytes, at most {x.nbytes + 1} are possible"):
        decode(EncodedTensor(np.frombuffer(compressed, np.uint8), Layout.of(x), "rle|zstd:1"))


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
