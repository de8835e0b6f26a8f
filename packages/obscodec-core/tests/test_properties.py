"""Laws over dtypes, shapes, contents and chains that hypothesis makes up."""

import re

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obscodec import CorruptStream, EncodedTensor, Layout, codec, decode, encode
from obscodec.testing.codec_contract import FLOATS, INTEGERS, OTHERS
from obscodec.varint import decode_varint, encode_varint

PLAIN = ("raw", "rle", "zstd:1", "zstd:-7", "lz4", "lz4:9")
ANY = (*PLAIN, "shuffle|zstd:3", "rle|zstd:3", "shuffle|rle|lz4", "lorenzo|raw", "lorenzo|shuffle|lz4")
UNSIGNED = ("delta|raw", "delta|shuffle|lz4", "delta|rle|zstd:1")
BOOLS = ("bitpack|rle", "bitpack|raw", "bitpack|delta|zstd:3")

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@st.composite
def tensors(draw: st.DrawFn) -> npt.NDArray[np.generic]:
    """Any dtype and shape, with bytes that repeat more or less."""
    layout = Layout(draw(shapes), draw(st.sampled_from(INTEGERS + FLOATS + OTHERS)))
    is_bool = layout.dtype == np.bool_
    alphabet = draw(st.lists(st.integers(0, 1 if is_bool else 255), min_size=1, max_size=8))
    picks = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, len(alphabet), layout.nbytes)
    content = np.array(alphabet, np.uint8)[np.sort(picks) if draw(st.booleans()) else picks]
    return layout.tensors(content.reshape(1, -1))[0, ...]


@st.composite
def tensors_and_specs(draw: st.DrawFn) -> tuple[npt.NDArray[np.generic], str]:
    x = draw(tensors())
    specs = ANY
    if x.dtype.kind == "u" and x.ndim:
        specs += UNSIGNED
    if x.dtype == np.bool_:
        specs += BOOLS
    return x, draw(st.sampled_from(specs))


@quick
@given(tensors_and_specs())
def test_decode_inverts_encode(drawn: tuple[npt.NDArray[np.generic], str]) -> None:
    x, spec = drawn
    encoded = EncodedTensor.from_bytes(encode(x, spec).to_bytes())
    decoded = decode(encoded)
    assert decoded.dtype == x.dtype
    assert decoded.shape == x.shape
    assert decoded.tobytes() == x.tobytes()
    assert encoded.stream.nbytes <= codec(spec, encoded.layout).bound()
    assert codec(spec, encoded.layout).spec == encoded.spec


@quick
@given(st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 300), max_size=20))
def test_varints(values: list[int]) -> None:
    varints = np.frombuffer(b"".join(map(encode_varint, values)), np.uint8)
    at = 0
    for value in values:
        found, at = decode_varint(varints, at)
        assert found == value
    assert at == len(varints)


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
