"""Varints have one form each; what is no varint is refused. That they come back is in test_properties.py."""

from __future__ import annotations

import re

import numpy as np
import pytest
from obscodec import CorruptStream
from obscodec.varint import MAX_VARINT_NBYTES, decode_varint, encode_varint, encode_varints

FORMS = [
    (0, b"\x00"),
    (1, b"\x01"),
    (127, b"\x7f"),
    (128, b"\x80\x01"),
    (300, b"\xac\x02"),
    (2**14 - 1, b"\xff\x7f"),
    (2**14, b"\x80\x80\x01"),
    (2**63 - 1, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
]


def u8(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize(("value", "form"), FORMS)
def test_a_number_has_these_bytes(value: int, form: bytes) -> None:
    assert encode_varint(value) == form
    assert decode_varint(u8(form)) == (value, len(form))
    assert decode_varint(u8(b"\xff" + form + b"\xff"), 1) == (value, 1 + len(form))


def test_many_numbers_have_the_bytes_of_each() -> None:
    values = [value for value, _ in FORMS]
    for some in (values, values[::-1], values[:1], [128], [0, 128, 0], []):
        varints, nbytes = encode_varints(np.array(some, np.int64))
        assert varints.dtype == np.uint8
        assert varints.tobytes() == b"".join(map(encode_varint, some))
        assert nbytes.tolist() == [len(encode_varint(value)) for value in some]


@pytest.mark.parametrize(("data", "text"), [
    (b"", "it ends inside a varint"),
    (b"\x80", "it ends inside a varint"),
    (b"\xff" * 8, "it ends inside a varint"),
    (b"\x80\x00", "a varint is longer than it needs to be"),
    (b"\xff\x80\x00", "a varint is longer than it needs to be"),
    (b"\xff" * 8 + b"\x00", "a varint is longer than it needs to be"),
    (b"\x80" * 9 + b"\x01", "a varint has more than 9 bytes"),
    (b"\xff" * 9, "a varint has more than 9 bytes"),
])  # fmt: skip
def test_what_is_no_varint_is_refused(data: bytes, text: str) -> None:
    for before in (b"", b"\x05"):
        with pytest.raises(CorruptStream, match=f"^{re.escape(text)}$"):
            decode_varint(u8(before + data), len(before))


def test_no_varint_is_longer_than_the_longest() -> None:
    assert len(encode_varint(2**63 - 1)) == MAX_VARINT_NBYTES


def test_every_prefix_is_refused_and_each_number_has_one_form() -> None:
    found = {}
    for first in range(256):
        for second in range(256):
            data = bytes([first, second])
            try:
                value, nbytes = decode_varint(u8(data))
            except CorruptStream:
                continue
            assert encode_varint(value) == data[:nbytes]
            found.setdefault(value, set()).add(data[:nbytes])
    assert sorted(found) == list(range(2**14))
    assert all(len(forms) == 1 for forms in found.values())
