"""EncodedTensor: the self-describing form, and what becomes of it when bytes are lost or changed."""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import pytest
from obscodec import CorruptStream, DTypeError, EncodedTensor, decode, encode
from obscodec.testing import FLOATS, INTEGERS, OTHERS

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


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS + OTHERS)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_every_dtype_and_shape_is_written_down(dtype: str, shape: tuple[int, ...]) -> None:
    import ml_dtypes  # noqa: F401, registers the names

    x = np.ones(shape, dtype)
    decoded = decode(EncodedTensor.from_bytes(encode(x, "gzip").to_bytes()))
    assert decoded.dtype == x.dtype
    assert decoded.shape == shape
    assert decoded.tobytes() == x.tobytes()


def test_what_has_no_bytes_is_refused() -> None:
    for nothing in (20, "OBSC", None):
        with pytest.raises(TypeError, match=r"^memoryview: a bytes-like object is required, not "):
            EncodedTensor.from_bytes(nothing)  # type: ignore[arg-type]


def test_bytes_are_not_decoded_as_they_are() -> None:
    with pytest.raises(DTypeError, match=r"^decode takes an EncodedTensor, got bytes: bytes become one by EncodedTens"):
        decode(BYTES)  # type: ignore[arg-type]


def test_every_prefix_is_refused() -> None:
    for end in range(len(BYTES)):
        refused(BYTES[:end])


def test_every_appended_byte_is_refused() -> None:
    for byte in range(256):
        refused(BYTES + bytes([byte]))


def test_every_flipped_bit_is_refused() -> None:
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
        {**GOOD, "shape": ["2"]},
        {**GOOD, "shape": [True]},
        {**GOOD, "shape": [2**62, 2**62]},
        {**GOOD, "shape": [0, 2**70]},
        {**GOOD, "dtype": "O"},
        {**GOOD, "dtype": "nope"},
        {**GOOD, "dtype": 3},
        {**GOOD, "spec": 3},
        {**GOOD, "dictionary_id": "0"},
        {**GOOD, "dictionary_id": True},
    ],
    ids=lambda header: str(header)[:40],
)
def test_a_hostile_header_is_refused(header: object) -> None:
    assert refused(with_header(header)).startswith("the header of the encoded tensor ")


def test_a_header_that_is_said_to_be_longer_than_all_is_refused() -> None:
    assert refused(with_header(GOOD, b"ab", header_nbytes=2**31)).startswith("the header of the encoded tensor ")


def test_a_header_written_by_hand_is_read() -> None:
    assert decode(EncodedTensor.from_bytes(with_header(GOOD, b"ab"))).tobytes() == b"ab"
