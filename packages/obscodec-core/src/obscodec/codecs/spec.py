"""Specs: the text that names a codec. ``stage ("|" stage)*``, ``stage = name[":" arg("," arg)*]``."""

import re
from dataclasses import dataclass

from obscodec.arguments import kind_of
from obscodec.errors import SpecError

MAX_STAGES = 8  # more than the longest useful chains, which have five
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LEVEL_IN_NAME = re.compile(r"(?P<name>[a-z][a-z0-9]*(?:-[a-z][a-z0-9]*)*)-(?P<level>\d+)")


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One stage of a spec: ``zstd:3`` has the name ``zstd`` and the args ``("3",)``."""

    name: str
    args: tuple[str, ...]


def parse(spec: str) -> tuple[StageSpec, ...]:
    """The stages of a spec, from left to right.

    Raises:
        SpecError: the text does not follow the grammar, or has more than 8 stages.

    Example:
        >>> [stage.name for stage in parse("shuffle|zstd:3")]
        ['shuffle', 'zstd']
    """
    if (n := check_spec(spec).count("|") + 1) > MAX_STAGES:
        raise SpecError(f"a spec has at most {MAX_STAGES} stages, got {n}: leave some out")
    return tuple(_parse_stage(stage, spec) for stage in spec.split("|"))


def check_spec(spec: object) -> str:
    """``spec``; SpecError if it is no text."""
    if not isinstance(spec, str):
        raise SpecError(f"a spec is text such as 'zstd:3', got {kind_of(spec)}")
    return spec


def _parse_stage(stage: str, spec: str) -> StageSpec:
    name, colon, args = stage.partition(":")
    if level := _LEVEL_IN_NAME.fullmatch(stage):
        name, number = level["name"], level["level"]
        raise SpecError(
            f"{stage!r} has two readings: write '{name}:{number}' for level {number}, "
            f"or '{name}:-{number}' for level -{number}"
        )
    if _breaks_grammar(stage):
        meant = "".join(stage.lower().split()).replace("_", "-").strip(":-,")
        is_stage = not (_breaks_grammar(meant) or _LEVEL_IN_NAME.fullmatch(meant))
        hint = f": write {meant!r}" if is_stage else ""
        raise SpecError(f"a stage is name[:arg,...] as in 'zstd:3', got {stage!r} in spec {spec!r}{hint}")
    return StageSpec(name, tuple(args.split(",")) if colon else ())


def _breaks_grammar(stage: str) -> bool:
    name, colon, args = stage.partition(":")
    return not _NAME.fullmatch(name) or (bool(colon) and not all(args.split(",")))
