"""What codecs and filters have in common: they are stages of a spec, and values."""

import re
from dataclasses import dataclass, fields
from typing import ClassVar, Self

from obscodec.errors import LevelError, SpecError
from obscodec.layout import Layout

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels that a stage offers.

    Attributes:
        ranges: inclusive ranges of levels, rising.
        default: the level when the spec names none; None if that is a mode of its own.
    """

    ranges: tuple[tuple[int, int], ...]
    default: int | None

    def __contains__(self, level: int) -> bool:
        return any(low <= level <= high for low, high in self.ranges)

    def __str__(self) -> str:
        return " or ".join(f"{low}..{high}" for low, high in self.ranges)


@dataclass(frozen=True)
class Stage:
    """One stage of a spec. Frozen: a stage is compared, hashed, pickled and sent as a value.

    Subclasses are frozen dataclasses. What they cache (contexts, scratch memory) is a field with ``init=False`` and
    ``compare=False``; it does not travel.

    Attributes:
        name: the name in a spec.
        format: the bytes that it writes, with a version: ``rle@2``.
        levels: the levels it offers, None if its spec takes no argument.
        layout: the layout of the items that it takes.
        level: the level from the spec, None for the mode without one.
    """

    name: ClassVar[str]
    format: ClassVar[str]
    levels: ClassVar[Levels | None] = None

    layout: Layout
    level: int | None = None

    def __post_init__(self) -> None:
        if self.levels is None:
            if self.level is not None:
                raise LevelError(f"{self.name} takes no level, got {self.level}")
        elif self.level is None:
            object.__setattr__(self, "level", self.levels.default)
        elif self.level not in self.levels:
            raise LevelError(f"{self.name} level must be in {self.levels}, got {self.level}")

    @classmethod
    def from_args(cls, layout: Layout, args: tuple[str, ...]) -> Self:
        """Build the stage from the arguments that a spec gives, ``("3",)`` of ``zstd:3``.

        Raises:
            SpecError: there are arguments that the stage does not take.
            LevelError: the level is not a whole number, or is out of range.
        """
        if not args:
            return cls(layout)
        if cls.levels is None or len(args) > 1:
            takes = "no argument" if cls.levels is None else "one argument, its level"
            raise SpecError(f"{cls.name} takes {takes}, got {','.join(args)!r}")
        if not _WHOLE_NUMBER.fullmatch(args[0]):  # stricter than int(), which takes '+3', ' 3' and '1_0'
            raise LevelError(f"{cls.name} level must be a whole number in {cls.levels}, got {args[0]!r}")
        return cls(layout, int(args[0]))

    @property
    def spec(self) -> str:
        """The canonical text that builds this stage."""
        return self.name if self.level is None else f"{self.name}:{self.level}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), {f.name: getattr(self, f.name) for f in fields(self) if f.init})


def _rebuild(cls: type[Stage], values: dict[str, object]) -> Stage:
    return cls(**values)  # type: ignore[arg-type]
