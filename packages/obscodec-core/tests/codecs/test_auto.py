"""``encode(x)`` finds the codec of a tensor: by the data alone, and never to the harm of its size."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from atari_frames import frames
from hypothesis import given
from hypothesis import strategies as st
from obscodec import EncodedTensor, Layout, SpecError, codec, decode, encode
from obscodec.codecs.auto import SAMPLE_NBYTES, sample_of, worth_trying
from obscodec.testing.codec_contract import FLOATS, INTEGERS, OTHERS
from test_properties import quick, tensors

RNG = np.random.default_rng(0)
NOISE = RNG.integers(0, 256, 1 << 20, np.uint8)


def check(x: npt.NDArray[np.generic]) -> EncodedTensor:
    """The laws that hold for every tensor."""
    encoded = encode(x)
    assert encoded.stream.nbytes <= x.nbytes
    assert encoded.spec in {"raw", *worth_trying(x)}
    again = encode(x, "auto")
    assert (again.spec, again.stream.tobytes()) == (encoded.spec, encoded.stream.tobytes())
    decoded = decode(EncodedTensor.from_bytes(encoded.to_bytes()))
    little = np.asarray(x, x.dtype.newbyteorder("<"))
    assert (decoded.shape, decoded.dtype, decoded.tobytes()) == (x.shape, little.dtype, little.tobytes())
    return encoded


@quick
@given(tensors(), st.sampled_from([1, 7, 40]), st.booleans(), st.booleans())
def test_decode_inverts_encode(x: npt.NDArray[np.generic], times: int, strided: bool, swapped: bool) -> None:
    """Of all dtypes and shapes, repeated to a length at which codecs are tried, of any strides and byte order."""
    if x.ndim:
        x = np.concatenate([x] * times)[:: -1 if strided else 1]
    if strided:
        x = x.T
    if swapped and x.dtype.isbuiltin == 1:  # those of ml_dtypes have one byte order
        x = x.astype(x.dtype.newbyteorder(">"))
    check(x)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS + OTHERS)
@pytest.mark.parametrize("shape", [(), (0,), (1000,), (3, 500), (300, 40, 50), (40, 60, 700), (1, 2**20)])
def test_every_dtype_at_every_size(dtype: str, shape: tuple[int, ...]) -> None:
    check(np.ones(shape, dtype))


@pytest.mark.parametrize("game", ["MsPacman", "Pong", "Breakout"])
def test_frames_are_as_small_as_with_the_best_candidate(game: str) -> None:
    played = frames(game, 400, seed=0)
    for x in (played[300], played[300:304], np.moveaxis(played[300:304], 0, -1), played[300:304] / np.float32(255)):
        assert encode(x).stream.nbytes == min(encode(x, spec).stream.nbytes for spec in worth_trying(x))


@pytest.mark.parametrize("game", ["MsPacman", "Pong", "Breakout"])
def test_a_sample_leads_to_the_best_candidate_of_many_frames(game: str) -> None:
    played = frames(game, 400, seed=0)
    assert check(played).spec == "delta-rle|zstd:3"
    assert encode(played).stream.nbytes == min(encode(played, spec).stream.nbytes for spec in worth_trying(played))


@pytest.mark.parametrize(
    ("x", "spec"),
    [
        (np.zeros(63, np.uint8), "raw"),
        (np.zeros(64, np.uint8), "rle|zstd:3"),
        (np.tile(NOISE[:500], 4), "zstd:3"),
        (np.float64(3.5), "raw"),
        (NOISE[:5000], "raw"),
        (NOISE, "raw"),
        (np.arange(10_000), "shuffle|zstd:3"),
        (np.add.outer(np.arange(128), np.arange(128)).astype(np.uint16) * 13 + NOISE[:128], "lorenzo|shuffle|zstd:3"),
        (
            np.uint16(300) * NOISE[:128] + (NOISE[:16384].reshape(128, 128) % 8).cumsum(0, np.uint16),
            "delta|shuffle|zstd:3",
        ),
        (NOISE[:4096].reshape(64, 64) < 128, "bitpack|zstd:3"),
        (NOISE[:4096].reshape(64, 64) < 3, "rle|zstd:3"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_each_candidate_is_best_for_some_data(x: npt.NDArray[np.generic], spec: str) -> None:
    assert encode(x).spec == spec


def test_bools_of_other_bytes_are_encoded_as_they_are() -> None:
    odd = np.full(1000, 2, np.uint8).view(np.bool_)
    encoded = encode(odd)
    assert "bitpack" not in encoded.spec
    assert decode(EncodedTensor(encoded.stream, Layout((1000,), "u1"), encoded.spec)).tolist() == [2] * 1000
    late = np.concatenate([np.zeros(SAMPLE_NBYTES * 2, np.bool_), odd, np.zeros(SAMPLE_NBYTES, np.bool_)])
    assert "bitpack" not in encode(late).spec


def test_a_tensor_whose_sample_misleads_is_not_made_larger() -> None:
    """The sample is of zeros, everything between its runs is noise."""
    x = RNG.integers(0, 256, 1 << 23, np.uint8)
    of_run = SAMPLE_NBYTES // 4
    for begin in np.linspace(0, len(x) - of_run, 4).astype(int):
        x[begin : begin + of_run] = 0
    assert not sample_of(x).any()
    assert check(x).spec == "raw"


def test_a_sample_has_rows_of_the_whole_tensor() -> None:
    sample = sample_of(np.arange(1 << 20, dtype=np.int32))
    assert sample[0] == 0
    assert sample[-1] == (1 << 20) - 1
    assert [int(a) for a, b in pairwise(sample) if b != a + 1] == [16383, 360447, 704511]


def test_auto_is_no_codec() -> None:
    with pytest.raises(SpecError) as caught:
        codec("auto", Layout((3,), "u1"))
    assert str(caught.value) == (
        "'auto' (in spec 'auto') looks at data: it is for encode() and buffers, on its own; name a codec"
    )
    with pytest.raises(SpecError, match=r"^'auto' \(in spec 'shuffle\|auto'\) looks at data: "):
        encode(np.zeros(3), "shuffle|auto")
