"""The examples in ``docs/formats`` are true."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from obscodec import EncodedTensor, Layout, available, codec, decode, unpack

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
