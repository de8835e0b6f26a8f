"""Arrays are written as the library safetensors writes them, and read as it reads them; anything else is refused."""

import json
import struct

import numpy as np
import pytest
from obscodec.trees import format_arrays, parse_arrays
from safetensors.numpy import load, save

RNG = np.random.default_rng(0)
DTYPES = ("|b1", "|u1", "|i1", "<u2", "<i2", "<f2", "<u4", "<i4", "<f4", "<u8", "<i8", "<f8")
ARRAYS = {f"a/{dtype}": RNG.integers(2, size=(3, k)).astype(dtype) for k, dtype in enumerate(DTYPES)}
ARRAYS |= {"empty": np.zeros((0, 4), "<i8"), "one": np.array(7, "<u2"), "é\\'": np.arange(5, dtype="|u1")}


def file(header, content=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def check_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        np.testing.assert_array_equal(found[name], array, name)


@pytest.mark.parametrize("arrays", [{}, ARRAYS, {"x": np.full((2, 3), np.nan)}])
def test_the_library_reads_what_is_written_and_the_reverse(arrays):
    check_equal(load(format_arrays(arrays)), arrays)
    check_equal(parse_arrays(save(arrays)), arrays)
    check_equal(parse_arrays(save(arrays, metadata={"who": "they"})), arrays)
    check_equal(parse_arrays(format_arrays(arrays)), arrays)


def test_arrays_are_aligned_and_can_be_written_to():
    for array in parse_arrays(file({"x": about(shape=[2])}, bytes(8)) + b"").values():
        assert array.flags.aligned
        array[:] = 3


def about(dtype="I32", shape=(2,), data_offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": [*shape], "data_offsets": [*data_offsets], **more}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it has 0 bytes"),
        (struct.pack("<Q", 1 << 63), "its header has 9223372036854775808 bytes, the file 8"),
        (file(b"[]"), "its header is no object"),
        (file(b"{"), "Expecting"),
        (file(b"\xff"), "utf-8"),
        (file(b"[" * 100_000), "its header is no JSON"),
        (file(b'{"x": {}, "x": {}}'), "its header has a name twice"),
        (file({"x": 3}), "its header is no object"),
        (file({"x": about(dtype="BF16")}, bytes(8)), "'x' is no array"),
        (file({"x": about(dtype=["I32"])}, bytes(8)), "'x' is no array"),
        (file({"x": about(more=1)}, bytes(8)), "'x' is no array"),
        (file({"x": about(data_offsets=(0,))}, bytes(8)), "'x' is no array"),
        (file({"x": about(shape=[-2])}, bytes(8)), "'x' has numbers that no array has"),
        (file({"x": about(shape=[True, 2])}, bytes(8)), "'x' has numbers that no array has"),
        (file({"x": about(shape=[2.0])}, bytes(8)), "'x' has numbers that no array has"),
        (file({"x": about(shape=[3])}, bytes(8)), r"'x' has the bytes 0\.\.8 for int32\[3\], 0 come before it"),
        (file({"x": about(data_offsets=(4, 12))}, bytes(12)), r"has the bytes 4\.\.12"),
        (file({"x": about(), "y": about()}, bytes(8)), r"'y' has the bytes 0\.\.8 for int32\[2\], 8 come before it"),
        (file({"x": about()}, bytes(9)), "its arrays have 8 bytes of 9"),
        (file({"x": about()}, bytes(7)), "its arrays have 8 bytes of 7"),
        (file({"x": about(shape=[0, 1 << 61, 1 << 61], data_offsets=(0, 0))}), "."),
        (file({"x": about(shape=[1] * 70, data_offsets=(0, 4))}, bytes(4)), "."),
    ],
)
def test_what_is_no_such_file_is_refused(content, message):
    with pytest.raises(ValueError, match=message):
        parse_arrays(content)


def test_each_prefix_is_refused():
    whole = format_arrays(ARRAYS)
    for n in range(0, len(whole), 7):
        with pytest.raises(ValueError, match=r"ha(s|ve) "):
            parse_arrays(whole[:n])
