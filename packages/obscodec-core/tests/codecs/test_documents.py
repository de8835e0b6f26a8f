"""The examples in ``docs/formats`` are true."""

import csv
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from obscodec import EncodedTensor, Layout, available, codec, decode, encode, unpack
from obscodec.codecs import codec_from_config

FORMATS = Path(__file__).parents[4] / "docs" / "formats"
EXAMPLE = re.compile(r"^- `(?P<values>[^`]+)` of (?P<dtype>\w+), `(?P<spec>[^`]+)`: `(?P<stream>[^`]*)`$", re.M)
EXAMPLES = [(p.stem, *m.groups()) for p in sorted(FORMATS.glob("*.md")) for m in EXAMPLE.finditer(p.read_text())]


@pytest.mark.parametrize(("values", "dtype", "spec", "stream"), [of[1:] for of in EXAMPLES])
def test_an_example_is_what_is_written_and_read(values: str, dtype: str, spec: str, stream: str) -> None:
    x = np.array(json.loads(values), dtype)
    tested = codec(spec, Layout.of(x))
    given = np.frombuffer(bytes.fromhex(stream), np.uint8)
    assert decode(EncodedTensor(given, Layout.of(x), spec)).tobytes() == x.tobytes()
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
        "batch",
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
# Formats that leave an encoder no choice.
DETERMINED = ("raw", "rle", "shuffle|raw", "bitpack|raw", "delta|raw", "lorenzo|raw")


def checksums() -> dict[str, list[str]]:
    with (GOLDEN / "checksums.csv").open(newline="") as file:
        return {name: rest for name, *rest in csv.reader(file)}


def test_there_are_golden_files() -> None:
    assert len(FILES) == 57


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
