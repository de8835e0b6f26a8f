"""What goes in without a copy: numpy, DLPack exporters, the buffer protocol; and what is refused."""

from __future__ import annotations

import array
from typing import Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from obscodec import DTypeError, decode, encode
from obscodec.layout.arrays import as_array, as_writable
from obscodec.layout.dlpack import from_dlpack

EXPORTS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


class Exporter(Protocol):
    def __dlpack__(self, **arguments: object) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


class Foreign:
    """An array of another framework, as far as obscodec can tell."""

    def __init__(self, x: npt.NDArray[np.generic], device: int = 1) -> None:
        self.x = x
        self.device = device

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> object:
        if not EXPORTS_VERSIONS:
            return self.x.__dlpack__()  # as the standard allows
        return self.x.__dlpack__(max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


class BeforeVersions(Foreign):
    """An exporter from before DLPack 1.0."""

    def __dlpack__(self) -> object:  # type: ignore[override]
        return self.x.__dlpack__()


@pytest.mark.parametrize("kind", [Foreign, BeforeVersions])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint64", "float16", "float64", "complex128"])
def test_dlpack_shares_memory(kind: type[Foreign], dtype: str) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    for view in (x, x.T, x[:, 1:, ::2], x[0, 0, 0, ...], x[:0]):
        seen = from_dlpack(kind(view))
        assert seen.dtype == x.dtype
        assert seen.shape == view.shape
        assert np.array_equal(seen, view)
        assert view.size == 0 or np.shares_memory(seen, x)


def test_a_foreign_array_lives_as_long_as_its_view() -> None:
    seen = from_dlpack(Foreign(np.arange(1000)))
    assert seen.sum() == 499500


def test_dlpack_out_is_written() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = np.zeros_like(x)
    decode(encode(Foreign(x), "zstd"), Foreign(out))
    assert np.array_equal(out, x)


def test_a_strided_out_is_written() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    memory = np.zeros((2, 6), np.float32)
    decode(encode(x, "zstd"), memory[:, ::2])
    assert np.array_equal(memory[:, ::2], x)
    assert not memory[:, 1::2].any()


def test_a_big_endian_out_is_written() -> None:
    x = np.arange(6, dtype=np.float32)
    out = np.zeros(6, ">f4")
    decode(encode(x, "zstd"), out)
    assert np.array_equal(out, x)


@pytest.mark.skipif(not EXPORTS_VERSIONS, reason="numpy exports read-only arrays since 2.1")
def test_a_read_only_exporter_is_no_out() -> None:
    x = np.zeros(3)
    x.flags.writeable = False
    with pytest.raises(DTypeError, match="out is a read-only Foreign, pass one that can be written"):
        as_writable(Foreign(x))


def test_an_array_on_another_device_is_refused() -> None:
    with pytest.raises(DTypeError) as caught:
        encode(Foreign(np.zeros(3), device=2), "raw")
    assert str(caught.value) == "array lies in the memory of DLPack device type 2, copy it to the CPU first"


@pytest.mark.parametrize(
    "buffer",
    [b"abc", bytearray(b"abc"), memoryview(b"abcabc")[::2], array.array("d", [1.5, -0.0]), array.array("h", [-1, 2])],
    ids=["bytes", "bytearray", "memoryview", "doubles", "shorts"],
)
def test_the_buffer_protocol(buffer: bytes) -> None:
    seen = as_array(buffer)
    assert seen.tobytes() == memoryview(buffer).tobytes()
    assert decode(encode(buffer, "lz4")).tobytes() == seen.tobytes()


def test_a_bytearray_is_filled() -> None:
    out = bytearray(3)
    decode(encode(b"abc", "zstd"), out)
    assert out == b"abc"


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_small_floats_keep_their_bits(dtype: type) -> None:
    nbytes = np.dtype(dtype).itemsize
    every = np.arange(256**nbytes, dtype=f"u{nbytes}").view(dtype)
    for spec in ("raw", "rle", "shuffle|zstd:3"):
        decoded = decode(encode(every, spec))
        assert decoded.dtype == dtype
        assert decoded.tobytes() == every.tobytes()


def test_a_numpy_scalar_is_an_item_without_axes() -> None:
    decoded = decode(encode(np.float32(1.5), "raw"))
    assert decoded.shape == ()
    assert decoded == np.float32(1.5)
