"""Stage: what codecs and filters have in common, and Filter. They are stages of a spec, and values."""

import re
from abc import abstractmethod
from dataclasses import dataclass, fields
from functools import partial
from typing import ClassVar, Self

from obscodec.errors import LevelError, SpecError
from obscodec.layout import Layout, Rows

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels that a stage offers.

    Attributes:
        ranges: inclusive ranges of levels, rising.
        default: the level of a spec that names none; None if such a spec means a mode without a level.
    """

    ranges: tuple[tuple[int, int], ...]
    default: int | None

    def __contains__(self, level: int) -> bool:
        return any(low <= level <= high for low, high in self.ranges)

    def __str__(self) -> str:
        return " or ".join(f"{low}..{high}" for low, high in self.ranges)


@dataclass(frozen=True)
class Stage:
    """One stage of a spec, a value: it is compared, hashed and pickled by its fields.

    Subclasses are frozen dataclasses. A cache (contexts, scratch memory) is a field with ``init=False`` and
    ``compare=False``, and is not pickled.

    Attributes:
        name: the name in a spec.
        format: the name and version of its byte format: ``rle@1``.
        levels: the levels it offers, None if its spec takes no argument.
        layout: the layout of its input.
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
        """Build the stage from the arguments in a spec, ``("3",)`` of ``zstd:3``.

        Raises:
            SpecError: the stage does not take so many arguments.
            LevelError: the level is not a whole number, or the stage does not offer it.
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
        return partial(type(self), **{f.name: getattr(self, f.name) for f in fields(self) if f.init}), ()


@dataclass(frozen=True)
class Filter(Stage):
    """Turns items of its ``layout`` into items of the layout ``target``, and back without loss.

    A constructor refuses a layout that the filter can't take, with DTypeError or ShapeError.
    """

    @property
    @abstractmethod
    def target(self) -> Layout:
        """The layout of the output."""

    @abstractmethod
    def apply(self, rows: Rows, out: Rows) -> None:
        """Fill ``out``, ``u8[n, target.nbytes]``, from ``rows``, ``u8[n, layout.nbytes]``; both contiguous."""

    @abstractmethod
    def undo(self, rows: Rows, out: Rows) -> None:
        """The inverse of :meth:`apply`: fill ``out``, ``u8[n, layout.nbytes]``, from ``rows``.

        Raises:
            CorruptStream: :meth:`apply` does not write such ``rows``.
        """
