"""Real zarr arrays of both versions, read also where nobody imports obscodec, and real HDF5 files."""

import re
import subprocess
import sys
from pathlib import Path

import h5py
import numcodecs
import numpy as np
import numpy.typing as npt
import pytest
import zarr
import zarr.codecs
from atari_frames import frames
from hypothesis import given
from obscodec import CorruptStream, DTypeError, EncodedTensor, ShapeError, SpecError, decode, encode, pack, unpack
from obscodec.numcodecs import Obscodec
from obscodec.zarr import Obscodec as Serializer
from test_properties import quick, tensors

SPECS = ["auto", "delta-rle|zstd:3"]
DTYPES = ["?", "i1", "<u2", ">u2", "<i8", "<f4", ">f4", "<f8", "<c16", "<M8[ns]", "<m8[s]"]
FRAMES = frames("Pong", 70, seed=0)


def stored(store: Path, x: npt.NDArray[np.generic], version: int, spec: str = "auto", **options: object) -> zarr.Array:
    codecs = {"compressors": Obscodec(spec)} if version == 2 else {"serializer": Serializer(spec), "compressors": None}
    return zarr.create_array(store, data=x, zarr_format=version, overwrite=True, **codecs, **options)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("spec", SPECS)
def test_frames_are_read_by_a_program_that_does_not_import_obscodec(version: int, spec: str, tmp_path: Path) -> None:
    stored(tmp_path / "frames.zarr", FRAMES, version, spec, chunks=(16, 84, 84))
    files = [path for path in (tmp_path / "frames.zarr").rglob("*") if path.is_file() and b"OBSC" in path.read_bytes()]
    assert len(files) == 5
    assert sum(path.stat().st_size for path in files) < FRAMES.nbytes / 30
    code = f"""
import sys, numpy, zarr
assert "obscodec" not in sys.modules
array = zarr.open({str(tmp_path / "frames.zarr")!r}, mode="r")
numpy.save({str(tmp_path / "read.npy")!r}, array[:])
assert "obscodec" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert np.array_equal(np.load(tmp_path / "read.npy"), FRAMES)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3, 5, 40)])
def test_arrays_of_every_dtype_and_order(
    version: int, order: str, dtype: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    x = np.asarray(np.random.default_rng(0).integers(0, 2, shape), "i8").astype(dtype)
    options = {"order": order} if version == 2 else {"config": {"order": order}}
    stored(tmp_path / "x.zarr", x, version, chunks=tuple(min(n, 4) for n in shape), **options)
    again = zarr.open_array(tmp_path / "x.zarr", mode="r+")
    assert np.asarray(again[...]).astype(x.dtype).tobytes() == x.tobytes()  # version 3 is native
    if shape:
        again[1:3] = x[:2]
        assert np.array_equal(np.asarray(again[1:3]), x[:2])


@pytest.mark.parametrize("dtype", ["S5", "U3", [("a", "<f4"), ("b", ">i2", (2,))]])
def test_texts_and_structures_are_bytes(dtype: npt.DTypeLike) -> None:
    x = np.resize(np.arange(12, dtype="u1"), (12, np.dtype(dtype).itemsize)).copy().view(dtype)[:, 0]
    for array in (x, x.reshape(3, 4), x.reshape(3, 4).T, x[0].reshape(())):
        assert Obscodec().decode(Obscodec().encode(array)).tobytes() == array.tobytes(order="A")


@quick
@given(tensors())
def test_the_bytes_of_a_chunk_come_back(x: npt.NDArray[np.generic]) -> None:
    codec = numcodecs.get_codec({"id": "obscodec", "spec": "auto"})
    for array in (x, np.asfortranarray(x), x.T):
        encoded = codec.encode(array)
        assert codec.decode(encoded).tobytes() == array.tobytes(order="A")
        out = np.empty_like(array, order="K")
        codec.decode(np.frombuffer(encoded, np.uint8), out=out)
        assert out.tobytes(order="A") == array.tobytes(order="A")


def test_a_codec_equals_its_rebuilt_self() -> None:
    for codec in (Obscodec(), Obscodec("zstd:3")):
        assert numcodecs.get_codec(codec.get_config()) == codec
        assert eval(repr(codec)) == codec
    assert Serializer.from_dict(Serializer("zstd:3").to_dict()) == Serializer("zstd:3")
    assert Serializer.from_dict({"name": "obscodec"}) == Serializer("auto")


def test_a_filter_before_it_and_a_compressor_behind_it(tmp_path: Path) -> None:
    x = np.arange(1000, dtype="<i4")
    array = zarr.create_array(
        tmp_path / "v2.zarr", data=x, zarr_format=2, filters=[numcodecs.Delta("<i4"), Obscodec()], compressors=None
    )
    assert np.array_equal(np.asarray(array[:]), x)
    array = zarr.create_array(
        tmp_path / "v3.zarr",
        data=FRAMES,
        chunks=(8, 84, 84),
        shards=(32, 84, 84),
        filters=[zarr.codecs.TransposeCodec(order=(0, 2, 1))],
        serializer=Serializer("delta-rle"),
        compressors=zarr.codecs.ZstdCodec(level=3),
    )
    assert np.array_equal(np.asarray(array[10:50]), FRAMES[10:50])


@pytest.mark.parametrize("version", [2, 3])
def test_damaged_chunks_are_refused(version: int, tmp_path: Path) -> None:
    array = stored(tmp_path / "x.zarr", FRAMES[:8], version, chunks=(8, 84, 84))
    (file,) = [path for path in (tmp_path / "x.zarr").rglob("*") if path.is_file() and b"OBSC" in path.read_bytes()]
    whole = file.read_bytes()
    for damaged, text in [
        (whole[:-1], "checksum of the encoded tensor is "),
        (whole[:9], "an encoded tensor has at least 13 bytes, got 9"),
        (whole[:50] + b"\0" + whole[51:], "checksum of the encoded tensor is "),
        (bytes(100), r"an encoded tensor begins with b'OBSC', got b'\x00\x00\x00\x00'"),
    ]:
        file.write_bytes(damaged)
        with pytest.raises(CorruptStream, match=f"^{re.escape(text)}"):
            array[:]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (np.zeros((4, 84, 84), np.uint8), "a chunk of the array is uint8[8, 84, 84], there is one of uint8[4, 84, 84]"),
        (np.zeros((8, 84, 84), np.int8), "a chunk of the array is uint8[8, 84, 84], there is one of int8[8, 84, 84]"),
        (np.zeros((9, 84, 84), np.uint8), " announces an item of 63,504, at most 56,448 are allowed"),
    ],
)
def test_a_chunk_of_another_array_is_refused(other: npt.NDArray[np.generic], text: str, tmp_path: Path) -> None:
    array = stored(tmp_path / "x.zarr", FRAMES[:8], 3, chunks=(8, 84, 84))
    (file,) = [path for path in (tmp_path / "x.zarr").rglob("*") if path.is_file() and b"OBSC" in path.read_bytes()]
    file.write_bytes(encode(other).to_bytes())
    with pytest.raises(CorruptStream, match=re.escape(text)):
        array[:]


def test_impossible_arrays_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DTypeError, match=r"^an array of objects has no bytes: put a codec that makes bytes"):
        Obscodec().encode(np.array(["a", None], object))
    with pytest.raises(DTypeError, match=r"^dtype str96 can't be stored; "):
        stored(tmp_path / "x.zarr", np.array(["abc"], "U3"), 3)
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, "u1"), (2**30 + 1,), (0,))
    with pytest.raises(ShapeError, match=r"^a chunk has at most 1,073,741,824 bytes, got 1,073,741,825: make it small"):
        Obscodec().encode(huge)
    for kind in (Obscodec, Serializer):
        with pytest.raises(SpecError, match=r"^no codec is named 'zsdt' \(in spec 'zsdt'\), did you mean 'zstd'\? "):
            kind("zsdt")
        with pytest.raises(SpecError, match=r"^a spec is text such as 'zstd:3', got int$"):
            kind(3)  # type: ignore[arg-type]


def test_messages_in_an_hdf5_file(tmp_path: Path) -> None:
    """HDF5 knows no filters of Python: it keeps messages, one a row of any length, or a packed batch."""
    with h5py.File(tmp_path / "frames.h5", "w") as file:
        rows = file.create_dataset("frames", (len(FRAMES),), h5py.vlen_dtype(np.uint8))
        for i, frame in enumerate(FRAMES):
            rows[i] = np.frombuffer(encode(frame).to_bytes(), np.uint8)
        file["batch"] = np.frombuffer(pack(FRAMES), np.uint8)
    with h5py.File(tmp_path / "frames.h5") as file:
        assert all(np.array_equal(decode(EncodedTensor.from_bytes(file["frames"][i])), FRAMES[i]) for i in (0, 5, 69))
        (batch,) = unpack(file["batch"][:])
        assert np.array_equal(batch, FRAMES)
        with pytest.raises(CorruptStream):
            list(unpack(file["batch"][:-1]))
