"""Golden files decode for ever: what one version has written, all later ones read."""

from __future__ import annotations

import csv
import json
import zlib
from pathlib import Path

import pytest
from obscodec import EncodedTensor, decode, encode
from obscodec.codecs import codec_from_config

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
