"""What goes in without a copy: numpy, DLPack exporters, the buffer protocol; and what is refused."""

import array
import re
import types
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
import obscodec
import pytest
from obscodec import DTypeError, decode, encode
from obscodec.layout import are_within, as_dtype
from obscodec.layout.arrays import as_array, as_numbers, as_writable
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


@pytest.mark.parametrize("view", [Foreign, lambda x: x.repeat(2, axis=1)[:, ::2], lambda x: x.astype(">f4")])
def test_any_out_is_written(view: Callable[[npt.NDArray[np.float32]], Foreign | npt.NDArray[np.float32]]) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = view(np.zeros_like(x))
    decode(encode(Foreign(x), "zstd"), out)
    assert np.array_equal(as_array(out), x)


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


def test_a_numpy_scalar_is_an_item_without_axes() -> None:
    decoded = decode(encode(np.float32(1.5), "raw"))
    assert decoded.shape == ()
    assert decoded == np.float32(1.5)


FLOATS = ["float16", "float32", "float64", "longdouble", "bfloat16", "float8_e5m2"]
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


class OnArm(np.ndarray):
    """Casts floats to integers as an Arm processor does: to the nearest integer there is, NaN to 0."""

    def astype(self, dtype, *args, **kwargs):
        x, dtype = np.asarray(self), np.dtype(dtype)
        if x.dtype.kind == "f" and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            exact = [0 if np.isnan(n) else limits.max if n == np.inf else int(max(n, limits.min)) for n in x.flat]
            x = np.array([min(n, limits.max) for n in exact], dtype).reshape(x.shape)
        return x.astype(dtype, *args, **kwargs).view(OnArm)


def floats_around(name):
    """The limits of an integer dtype as floats, and what is next to them."""
    limits = np.iinfo(name)
    end = 2.0 ** (limits.bits - (name[0] == "i"))
    begin = float(limits.min)
    within = [begin, np.nextafter(end, 0.0), 0.0, -0.0, 1.0]
    outside = [end, np.nextafter(end, np.inf), np.nextafter(begin, -np.inf), 2 * end, -2 * end, np.inf, -np.inf, np.nan]
    return within, outside


@pytest.mark.parametrize("name", INTEGERS)
def test_the_range_ends_before_the_power_of_two(name):
    within, outside = floats_around(name)
    assert are_within(np.array(within), np.dtype(name)).all()
    assert not are_within(np.array(outside), np.dtype(name)).any()
    assert not are_within(np.array(outside, complex), np.dtype(name)).any()


@pytest.mark.parametrize("view", [np.ndarray, OnArm])
@pytest.mark.parametrize("name", INTEGERS)
def test_floats_out_of_range_are_refused_on_any_processor(name, view):
    for number in floats_around(name)[1]:
        with pytest.raises(obscodec.DTypeError, match=re.escape(f"such as {number}, would be changed by dtype {name}")):
            as_dtype(np.array([1.0, number]).view(view), np.dtype(name))


@pytest.mark.parametrize("view", [np.ndarray, OnArm])
@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_that_round_up_beyond_their_range_are_refused(name, of, view):
    """The greatest becomes a power of two, which an Arm processor casts back to the greatest."""
    dtype, greatest = obscodec.Layout((), of).dtype, np.array([np.iinfo(name).max], name).view(view)
    with np.errstate(over="ignore"):
        nearest = np.asarray(greatest).astype(dtype)[0]
    if np.isfinite(nearest) and int(nearest) == np.iinfo(name).max:  # it has so many bits
        assert as_dtype(greatest, dtype) == greatest
    else:
        with pytest.raises(obscodec.DTypeError, match="would be changed"):
            as_dtype(greatest, dtype)


@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("name", INTEGERS)
def test_floats_within_the_range_stay_as_they_are(name, of):
    numbers = np.array([0.0, 1.0, 96.0]).astype(obscodec.Layout((), of).dtype)
    assert as_dtype(numbers, np.dtype(name)).tolist() == [0, 1, 96]


class Series:
    """An array with labels, as pandas has them."""

    def keys(self) -> range:
        return range(3)

    def __array__(self, dtype: object = None, copy: object = None) -> npt.NDArray[np.float64]:
        return np.arange(3.0)


def test_an_array_with_labels_is_an_array() -> None:
    assert (as_numbers(Series()) == np.arange(3.0)).all()


@pytest.mark.parametrize("value", [dict, types.SimpleNamespace(keys=None), {}], ids=str)
def test_what_has_keys_and_is_no_array_is_refused(value: object) -> None:
    with pytest.raises(DTypeError, match=r"^expected a numpy array"):
        encode(value)  # type: ignore[arg-type]
