"""EncodedTensor: the self-describing form, and what becomes of it when bytes are lost or changed."""

import json
import math
import struct
import zlib

import numpy as np
import pytest
from obscodec import CorruptStream, EncodedTensor, Layout, SpecError, decode, encode

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
BYTES = encode(X, "shuffle|zstd:3").to_bytes()


def refused(encoded: bytes) -> str:
    with pytest.raises(CorruptStream) as caught:
        EncodedTensor.from_bytes(encoded)
    return str(caught.value)


def with_header(header: object, stream: bytes = b"", header_nbytes: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = struct.pack("<4sBI", b"OBSC", 1, len(text) if header_nbytes is None else header_nbytes) + text + stream
    return body + struct.pack("<I", zlib.crc32(body))


def test_there_and_back() -> None:
    for kind in (bytes, bytearray, memoryview):
        again = EncodedTensor.from_bytes(kind(BYTES))
        assert (again.spec, again.layout.shape, again.layout.dtype) == ("shuffle|zstd:3", (2, 3, 4), np.float32)
        assert np.array_equal(decode(again), X)
        assert again.to_bytes() == BYTES


def test_what_has_no_bytes_is_refused() -> None:
    for nothing in (20, "OBSC", None):
        with pytest.raises(TypeError, match=r"^memoryview: a bytes-like object is required, not "):
            EncodedTensor.from_bytes(nothing)  # type: ignore[arg-type]


def test_every_change_is_refused() -> None:
    """Each prefix, appended byte and flipped bit."""
    for end in range(len(BYTES)):
        refused(BYTES[:end])
    for byte in range(256):
        refused(BYTES + bytes([byte]))
    for bit in range(8 * len(BYTES)):
        flipped = bytearray(BYTES)
        flipped[bit // 8] ^= 1 << bit % 8
        refused(bytes(flipped))


def test_what_is_wrong_is_said() -> None:
    crc = zlib.crc32(BYTES[:-4])
    assert refused(b"") == "an encoded tensor has at least 13 bytes, got 0"
    assert refused(b"PNG" + BYTES[3:]) == "an encoded tensor begins with b'OBSC', got b'PNGC'"
    assert refused(BYTES[:4] + b"\2" + BYTES[5:]) == (
        "encoded tensor of version 2, this obscodec reads version 1: use a newer obscodec"
    )
    assert refused(BYTES[:-4] + bytes(4)) == (
        f"checksum of the encoded tensor is {crc:#010x}, its end says 0x00000000: the bytes are truncated or altered"
    )


GOOD = {"spec": "raw", "shape": [2], "dtype": "|u1", "dictionary_id": 0}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        [],
        3,
        {},
        {**GOOD, "shape": [-1]},
        {**GOOD, "shape": [True]},
        {**GOOD, "shape": [2**62, 2**62]},
        {**GOOD, "shape": [0, 2**70]},
        {**GOOD, "shape": [float("nan")]},
        {**GOOD, "shape": [1] * 64},
        {**GOOD, "shape": "2"},
        {**GOOD, "dtype": "O"},
        {**GOOD, "dtype": "(2,3)f4,f4"},
        {**GOOD, "dtype": "((((("},
        {**GOOD, "dtype": "a5"},  # numpy warns of it
        {**GOOD, "dtype": ">f4"},
        {**GOOD, "dtype": "<M8[0s]"},  # numpy crashes or raises SystemError with it
        {**GOOD, "dtype": ["|u1"]},
        {**GOOD, "dtype": "nope"},
        {**GOOD, "spec": 3},
        {**GOOD, "dictionary_id": "0"},
        {**GOOD, "dictionary_id": True},
        {**GOOD, "dictionary_id": 2**32},
        {**GOOD, "more": 1},
        {name: GOOD[name] for name in ("spec", "shape", "dtype")},
        json.dumps(GOOD).replace("{", '{"spec": "raw", ').encode(),
        json.dumps(GOOD).replace("[2]", "[" + 5000 * "9" + "]").encode(),
        json.dumps(GOOD).encode("utf-16"),
        json.dumps(GOOD).encode("utf-8-sig"),
        json.dumps(GOOD).encode() + 4032 * b" ",
    ],
    ids=lambda header: str(header)[:40],
)
def test_a_hostile_header_is_refused(header: object) -> None:
    assert refused(with_header(header)).startswith("the header of the encoded tensor ")


def test_what_is_wrong_with_a_header_is_said() -> None:
    unread = "the header of the encoded tensor can't be read: "
    assert refused(with_header({**GOOD, "more": 1})) == (
        f"{unread}an object with spec, shape, dtype, dictionary_id is expected, "
        "there are spec, shape, dtype, dictionary_id, more"
    )
    assert refused(with_header([])) == (
        f"{unread}an object with spec, shape, dtype, dictionary_id is expected, there are none"
    )
    assert refused(with_header({**GOOD, "spec": 3})) == f"{unread}spec is no str: 3"
    assert refused(with_header({**GOOD, "dictionary_id": True})) == f"{unread}dictionary_id is no int: True"
    assert refused(with_header({**GOOD, "dictionary_id": -1})) == f"{unread}dictionary_id is in 0..4294967295, got -1"
    assert refused(with_header({**GOOD, "dtype": ">f4"})) == (
        f"{unread}no dtype is named '>f4'; examples are '|u1', '<f4', 'bfloat16'"
    )
    assert refused(with_header(GOOD, b"ab", header_nbytes=2**31)) == (
        "the header of the encoded tensor has 2147483648 bytes of the 67 that follow, at most 4096 are possible"
    )
    assert refused(with_header(GOOD, header_nbytes=66)) == (
        "the header of the encoded tensor has 66 bytes of the 65 that follow, at most 4096 are possible"
    )


def test_a_header_that_reaches_to_the_checksum_is_followed_by_an_empty_stream() -> None:
    assert decode(EncodedTensor.from_bytes(with_header({**GOOD, "shape": [0]}))).shape == (0,)


def test_a_header_that_would_not_be_read_is_not_written() -> None:
    encoded = EncodedTensor(np.zeros(2, np.uint8), Layout((2,), np.uint8), "third-party:" + "x" * 5000)
    with pytest.raises(SpecError, match=r"^a header has at most 4096 bytes, with this spec 5067: shorten it$"):
        encoded.to_bytes()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("nope", "no codec is named 'nope' (in spec 'nope'), there are "),
        ("", "a stage is name[:arg,...] as in 'zstd:3', got '' in spec ''"),
        ("zstd:99", "zstd level must be in -100..-1 or 1..22, got 99"),
        ("bitpack|raw", "bitpack takes bool, got uint8: leave it out of the spec"),
        ("shuffle", "'shuffle' ends in a filter, add a codec behind it: 'shuffle|zstd:3' or 'shuffle|raw'"),
        ("raw" + "|zstd" * 899, "a spec has at most 8 stages, got 900: leave some out"),
    ],
)
def test_a_spec_that_names_no_codec_for_the_item_is_refused(spec: str, why: str) -> None:
    stream = np.zeros(2, np.uint8)
    with pytest.raises(CorruptStream) as caught:
        decode(EncodedTensor(stream, Layout((2,), np.uint8), spec))
    assert str(caught.value).startswith(f"an encoded tensor of uint8[2] names no codec for it: {why}")


@pytest.mark.parametrize("spec", ["raw", "rle", "delta-rle", "zstd:3", "lz4", "rle|zstd:3"])
def test_an_item_that_is_announced_too_large_is_refused(spec: str) -> None:
    for shape in ([2**30 + 1], [2**20, 2**20], [2**61], [2**30, 2, 2]):
        announced = with_header({**GOOD, "spec": spec, "shape": shape}, b"\0\0")
        assert refused(announced) == (
            f"an encoded tensor of {len(announced)} bytes announces an item of {math.prod(shape):,}, at most "
            "1,073,741,824 are allowed: pass max_bytes if you know who made it"
        )


def test_how_much_may_be_announced_is_a_choice_of_the_reader() -> None:
    ten = with_header({**GOOD, "shape": [10], "spec": "rle"}, b"\1\12a")
    assert decode(EncodedTensor.from_bytes(ten, max_bytes=10)).tobytes() == b"a" * 10
    with pytest.raises(CorruptStream, match="announces an item of 10, at most 9 are allowed"):
        EncodedTensor.from_bytes(ten, max_bytes=9)
    large = with_header({**GOOD, "shape": [2**40], "spec": "rle"}, b"\1\1a")
    assert EncodedTensor.from_bytes(large, max_bytes=2**40).layout.nbytes == 2**40
    for nbytes, allowed in ((70_000, True), (60_000, False)):  # 2 GiB / 32,768 is 65,536
        long = with_header({**GOOD, "shape": [2**31]}, bytes(nbytes))
        if allowed:
            assert EncodedTensor.from_bytes(long).stream.nbytes == nbytes
        else:
            assert "announces an item of 2,147,483,648, at most 1,9" in refused(long)


def test_an_item_of_exactly_one_gib_may_be_announced() -> None:
    assert EncodedTensor.from_bytes(with_header({**GOOD, "shape": [2**30]})).layout.nbytes == 2**30


@pytest.mark.parametrize("spec", ["raw", "rle", "delta-rle", "zstd:3", "shuffle|lz4", "rle|zstd:1"])
def test_a_bool_that_is_stored_as_another_byte_is_true(spec: str) -> None:
    encoded = encode(np.array([[0, 1, 2, 255], [128, 0, 0, 3]], np.uint8), spec)
    bools = Layout((2, 4), np.bool_)
    for out in (None, np.zeros((2, 4), np.bool_), np.zeros((4, 2), np.bool_).T):
        decoded = decode(EncodedTensor(encoded.stream, bools, encoded.spec), out)
        assert decoded.view(np.uint8).tolist() == [[0, 1, 1, 1], [1, 0, 0, 1]]


def test_an_encoded_tensor_prints_its_size():
    encoded = encode(np.zeros((84, 84), np.uint8), "zstd:3")
    size = f"{encoded.stream.nbytes} bytes of 7.06 kB"
    assert repr(encoded) == f"EncodedTensor(uint8[84, 84] by 'zstd:3': {size})"
