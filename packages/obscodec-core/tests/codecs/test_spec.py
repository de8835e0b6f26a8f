"""How a spec is read. What is refused, and how, is in test_errors.py and test_encoded.py, too."""

import copy
import pickle
import re
from dataclasses import FrozenInstanceError, dataclass, field
from typing import ClassVar

import pytest
from obscodec import Layout, LevelError, SpecError
from obscodec.codecs.spec import MAX_STAGES, StageSpec, parse
from obscodec.codecs.stage import Levels, Stage


@pytest.mark.parametrize(("spec", "stages"), [
    ("raw", [("raw", ())]),
    ("zstd:3", [("zstd", ("3",))]),
    ("zstd:-7", [("zstd", ("-7",))]),
    ("shuffle|delta-rle|lz4:9", [("shuffle", ()), ("delta-rle", ()), ("lz4", ("9",))]),
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


def test_a_spec_has_a_most_number_of_stages() -> None:
    assert len(parse("|".join(["raw"] * MAX_STAGES))) == 8
    with pytest.raises(SpecError, match=r"^a spec has at most 8 stages, got 9: leave some out$"):
        parse("|".join(["raw"] * 9))


LAYOUT = Layout((3,), "uint8")
LEVELS = Levels(((-3, -1), (1, 9)), default=5)


@dataclass(frozen=True)
class Plain(Stage):
    name: ClassVar[str] = "plain"
    format: ClassVar[str] = "plain@1"


@dataclass(frozen=True)
class Leveled(Stage):
    name: ClassVar[str] = "leveled"
    format: ClassVar[str] = "leveled@1"
    levels: ClassVar[Levels | None] = LEVELS
    scratch: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class WithAMode(Leveled):
    name: ClassVar[str] = "with-a-mode"
    levels: ClassVar[Levels | None] = Levels(((1, 2),), default=None)


def test_levels_are_those_in_the_ranges() -> None:
    assert [level for level in range(-5, 12) if level in LEVELS] == [-3, -2, -1, *range(1, 10)]
    assert str(LEVELS) == "-3..-1 or 1..9"


@pytest.mark.parametrize(("kind", "args", "spec"), [
    (Plain, (), "plain"),
    (Leveled, (), "leveled:5"),
    (Leveled, ("9",), "leveled:9"),
    (Leveled, ("-1",), "leveled:-1"),
    (WithAMode, (), "with-a-mode"),
    (WithAMode, ("2",), "with-a-mode:2"),
])  # fmt: skip
def test_a_stage_is_made_of_the_arguments_of_its_spec(kind: type[Stage], args: tuple[str, ...], spec: str) -> None:
    assert kind.from_args(LAYOUT, args).spec == spec


@pytest.mark.parametrize(("kind", "args", "error", "text"), [
    (Plain, ("1",), SpecError, "plain takes no argument, got '1'"),
    (Leveled, ("1", "2"), SpecError, "leveled takes one argument, its level, got '1,2'"),
    (Leveled, ("0",), LevelError, "leveled level must be in -3..-1 or 1..9, got 0"),
    (Leveled, ("10",), LevelError, "leveled level must be in -3..-1 or 1..9, got 10"),
    *[
        (Leveled, (wrong,), LevelError, f"leveled level must be a whole number in -3..-1 or 1..9, got {wrong!r}")
        for wrong in ("x", "+3", " 3", "03", "1_0", "3.0", "-0", "", "1234567890", "٣")
    ],
])  # fmt: skip
def test_other_arguments_are_refused(
    kind: type[Stage], args: tuple[str, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(text)}$") as caught:
        kind.from_args(LAYOUT, args)
    assert type(caught.value) is error


def test_a_level_for_a_stage_without_levels_is_refused() -> None:
    with pytest.raises(LevelError, match=r"^plain takes no level, got 3$"):
        Plain(LAYOUT, 3)


@pytest.mark.parametrize("rebuild", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_a_stage_is_a_value_and_what_it_caches_stays(rebuild) -> None:
    stage = Leveled(LAYOUT, 7)
    stage.scratch["n"] = 1
    again = rebuild(stage)
    assert again == stage == Leveled(LAYOUT, 7)
    assert hash(again) == hash(stage)
    assert again.scratch == {}
    assert stage != Leveled(LAYOUT, 8)
    assert stage != Leveled(Layout((4,), "uint8"), 7)
    assert stage != WithAMode(LAYOUT, 1)
    with pytest.raises(FrozenInstanceError):
        stage.level = 3
