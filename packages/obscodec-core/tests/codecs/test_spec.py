"""How a spec is read. What is refused, and how, is in test_errors.py and test_encoded.py, too."""

from __future__ import annotations

import re

import numpy as np
import pytest
from obscodec import SpecError
from obscodec.codecs.spec import MAX_STAGES, StageSpec, check_spec, parse


@pytest.mark.parametrize(("spec", "stages"), [
    ("raw", [("raw", ())]),
    ("zstd:3", [("zstd", ("3",))]),
    ("zstd:-7", [("zstd", ("-7",))]),
    ("shuffle|delta-rle|lz4-frame:9", [("shuffle", ()), ("delta-rle", ()), ("lz4-frame", ("9",))]),
    ("own:a,b=c,:d", [("own", ("a", "b=c", ":d"))]),
    ("a1-b2|x", [("a1-b2", ()), ("x", ())]),
])  # fmt: skip
def test_a_spec_has_these_stages(spec: str, stages: list[tuple[str, tuple[str, ...]]]) -> None:
    assert parse(spec) == tuple(StageSpec(*stage) for stage in stages)


@pytest.mark.parametrize(
    ("stage", "meant"),
    [
        ("", ""),
        (" ", ""),
        ("Zstd", "zstd"),
        ("1zstd", ""),
        ("zstd ", "zstd"),
        ("zstd_3", ""),
        ("Delta_RLE", "delta-rle"),
        ("a--b", ""),
        ("a-", "a"),
        ("-a", "a"),
        ("zstd:", "zstd"),
        ("a:,b", ""),
        ("a:b,", "a:b"),
    ],
)
def test_a_stage_that_breaks_the_grammar_is_refused_wherever_it_stands(stage: str, meant: str) -> None:
    for spec in (stage, f"raw|{stage}", f"{stage}|raw"):
        text = f"a stage is name[:arg,...] as in 'zstd:3', got {stage!r} in spec {spec!r}"
        text += f": write {meant!r}" if meant else ""
        with pytest.raises(SpecError, match=f"^{re.escape(text)}$"):
            parse(spec)


def test_a_level_in_a_name_has_two_readings() -> None:
    text = "'own-codec-12' has two readings: write 'own-codec:12' for level 12, or 'own-codec:-12' for level -12"
    with pytest.raises(SpecError, match=f"^{re.escape(text)}$"):
        parse("shuffle|own-codec-12")


def test_a_spec_has_a_most_number_of_stages() -> None:
    assert len(parse("|".join(["raw"] * MAX_STAGES))) == 8
    with pytest.raises(SpecError, match=r"^a spec has at most 8 stages, got 9: leave some out$"):
        parse("|".join(["raw"] * 9))


@pytest.mark.parametrize(("spec", "kind"), [(None, "None"), (3, "int"), (b"raw", "bytes"), (np.zeros(2), "ndarray")])
def test_a_spec_is_a_text(spec: object, kind: str) -> None:
    for call in (check_spec, parse):
        with pytest.raises(SpecError) as caught:
            call(spec)
        assert str(caught.value).startswith("a spec is text such as 'zstd:3', got ")
        assert kind in str(caught.value)
    assert check_spec("any text") == "any text"
