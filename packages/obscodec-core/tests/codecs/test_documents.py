"""The examples in ``docs/formats`` are true."""

from __future__ import annotations

import csv
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from obscodec import EncodedTensor, Layout, available, codec, decode, encode, unpack
from obscodec.codecs import Filter, codec_from_config
from obscodec.codecs.formats.bitpack import BitPack
from obscodec.codecs.formats.delta import Delta
from obscodec.codecs.formats.shuffle import Shuffle

FORMATS = Path(__file__).parents[4] / "docs" / "formats"
EXAMPLE = re.compile(r"^- `(?P<values>[^`]+)` of (?P<dtype>\w+), `(?P<spec>[^`]+)`: `(?P<stream>[^`]*)`$", re.M)
EXAMPLES = [(p.stem, *m.groups()) for p in sorted(FORMATS.glob("*.md")) for m in EXAMPLE.finditer(p.read_text())]


@pytest.mark.parametrize(("file", "values", "dtype", "spec", "stream"), EXAMPLES)
def test_an_example_is_what_is_written_and_read(file: str, values: str, dtype: str, spec: str, stream: str) -> None:
    x = np.array(json.loads(values), dtype)
    tested = codec(spec, Layout.of(x))
    given = np.frombuffer(bytes.fromhex(stream), np.uint8)
    assert decode(EncodedTensor(given, Layout.of(x), spec)).tobytes() == x.tobytes()
    if file != "gzip":  # other builds of zlib write other bytes
        assert tested.encode(x).stream.tobytes().hex(" ") == stream.strip()


def test_the_packed_example_is_what_is_read() -> None:
    example = re.search(r"^- packed `(.+)` of (\w+): `(.+)`$", (FORMATS / "packed.md").read_text(), re.M)
    assert example is not None
    values, dtype, packed = example.groups()
    (batch,) = unpack(bytes.fromhex(packed))
    assert batch.dtype == dtype
    assert batch.tolist() == json.loads(values)


def test_every_file_of_a_format_has_an_example() -> None:
    described = {path.stem for path in FORMATS.glob("*.md")} - {
        "README",
        "checkpoint",
        "encoded-tensor",
        "packed",
        "snapshot",
    }
    assert {file for file, *_ in EXAMPLES} == described


def test_every_format_is_described() -> None:
    index = (FORMATS / "README.md").read_text()
    for name in available():
        assert re.search(rf"`{name}[`:\\]", index), name


GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.obsc"))
DETERMINED = ("raw", "rle", "shuffle|raw", "bitpack|raw", "delta|raw")  # formats that leave an encoder no choice


def checksums() -> dict[str, list[str]]:
    with (GOLDEN / "checksums.csv").open(newline="") as file:
        return {name: rest for name, *rest in csv.reader(file)}


def test_there_are_golden_files() -> None:
    assert len(FILES) == 60


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_file_decodes(path: Path) -> None:
    encoded = EncodedTensor.from_bytes(path.read_bytes())
    config = path.with_suffix(".json")
    x = codec_from_config(json.loads(config.read_text())).decode(encoded) if config.exists() else decode(encoded)
    shape = "x".join(map(str, x.shape))
    assert [x.dtype.name, shape, f"{zlib.crc32(x.tobytes()):08x}"] == checksums()[path.stem.split("_")[1]]
    assert encoded.to_bytes() == path.read_bytes()
    if encoded.spec in DETERMINED:
        assert encode(x, encoded.spec).to_bytes() == path.read_bytes()


def test_the_bytes_of_rle_are_those_of_its_document() -> None:
    """The worked example in ``docs/formats/rle.md``."""
    golden = EncodedTensor.from_bytes((GOLDEN / "rle_constant-of-70000.obsc").read_bytes())
    assert golden.stream.tobytes().hex(" ") == "01 f0 a2 04 07"


def applied(tested: Filter, rows: list[list[int]]) -> list[list[int]]:
    """What the filter makes of rows; undoing it must give them back."""
    taken = np.array(rows, np.uint8)
    given = np.empty((len(rows), tested.target.nbytes), np.uint8)
    tested.apply(taken, given)
    back = np.empty_like(taken)
    tested.undo(given, back)
    assert np.array_equal(back, taken)
    return given.tolist()


def test_shuffle_puts_first_bytes_first() -> None:
    assert applied(Shuffle(Layout((3,), "uint16")), [[1, 2, 3, 4, 5, 6], [0] * 6]) == [[1, 3, 5, 2, 4, 6], [0] * 6]
    assert Shuffle(Layout((3, 5), "float32")).target == Layout((4, 15), "uint8")


def test_shuffle_leaves_bytes_alone() -> None:
    assert applied(Shuffle(Layout((3,), "int8")), [[1, 2, 3]]) == [[1, 2, 3]]


def test_bitpack_begins_with_the_lowest_bit() -> None:
    assert applied(BitPack(Layout((10,), "bool")), [[1, 0, 0, 0, 0, 0, 0, 1, 0, 1]]) == [[0b10000001, 0b10]]
    assert BitPack(Layout((3, 5), "bool")).target == Layout((2,), "uint8")


def test_delta_goes_along_the_first_axis_and_wraps() -> None:
    assert applied(Delta(Layout((3,), "uint8")), [[5, 3, 255], [0, 255, 0]]) == [[5, 254, 252], [0, 255, 1]]
    assert applied(Delta(Layout((2, 2), "uint8")), [[1, 2, 11, 22]]) == [[1, 2, 10, 20]]
    assert applied(Delta(Layout((2,), "uint16")), [[255, 0, 0, 1]]) == [[255, 0, 1, 0]]


@pytest.mark.parametrize("shape", [(0,), (1,), (0, 3), (3, 0)])
def test_items_without_neighbours(shape: tuple[int, ...]) -> None:
    layout = Layout(shape, "uint8")
    assert applied(Delta(layout), [[7] * layout.nbytes] * 2) == [[7] * layout.nbytes] * 2
