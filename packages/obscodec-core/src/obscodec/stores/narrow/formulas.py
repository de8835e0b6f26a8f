"""Formulas that turn small integers into numbers, and a search for the formula behind given numbers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.errors import DTypeError, SpecError
from obscodec.layout import storable

Dtype = np.dtype[np.generic]
Steps = tuple[tuple[str, float], ...]
Array = npt.NDArray[np.generic]
Doubles = npt.NDArray[np.float64]

_OPERATIONS: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}

# How images become floats: ToTensor, division or multiplication by the reciprocal (torch on a GPU), -1..1 or -0.5..0.5,
# and a cast of integers.
_OF_8_BITS: Final[tuple[Steps, ...]] = (
    (),
    (("-", 128),),
    (("/", 255),),
    (("*", 1 / 255),),
    (("/", 256),),
    (("/", 127.5), ("-", 1)),
    (("*", 1 / 127.5), ("-", 1)),
    (("/", 255), ("-", 0.5)),
    (("*", 1 / 255), ("-", 0.5)),
    (("/", 255), ("-", 0.5), ("/", 0.5)),
    (("/", 255), ("*", 2), ("-", 1)),
    (("-", 127.5), ("/", 127.5)),
    (("-", 128), ("/", 128)),
)
# Also depth images, in metres.
_OF_16_BITS: Final[tuple[Steps, ...]] = (
    (),
    (("-", 32768),),
    (("/", 65535),),
    (("*", 1 / 65535),),
    (("/", 65536),),
    (("/", 32767.5), ("-", 1)),
    (("/", 1000),),
    (("*", 0.001),),
    (("/", 5000),),
)

_DOUBLE: Final = np.dtype(np.float64)
_MIN_LEVELS = 8  # fewer numbers are evenly spaced by chance
_MAX_ULPS = 4  # how far two or three roundings move a number
_NEAR_ULPS = 2  # about how far a line through all numbers is off


@dataclass(frozen=True)
class Formula:
    """Steps that turn a code ``k`` into a number, each rounded to a float dtype.

    Attributes:
        steps: pairs of ``+``, ``-``, ``*`` or ``/`` and a number.
        arithmetic: the float dtype of each step.

    Raises:
        SpecError: a step is malformed.
        DTypeError: ``arithmetic`` is no float.

    Example:
        >>> formula = Formula((("/", 255), ("-", 0.5)), np.dtype(np.float32))
        >>> print(formula)
        k / 255 - 0.5 in float32
        >>> formula.numbers(256)[[0, 255]]
        array([-0.5,  0.5], dtype=float32)
    """

    steps: Steps = ()
    arithmetic: Dtype = _DOUBLE

    def __post_init__(self) -> None:
        arithmetic = storable(np.dtype(self.arithmetic))
        if arithmetic.kind != "f" and arithmetic.name != "bfloat16":
            raise DTypeError(f"a formula is computed in a float dtype, got {arithmetic.name}")
        for operation, number in self.steps:
            if operation not in _OPERATIONS or not np.isfinite(number) or (number == 0 and operation in "*/"):
                raise SpecError(f"a step is one of + - * / and a finite number, got {operation!r} and {number!r}")
        object.__setattr__(self, "steps", tuple((operation, float(number)) for operation, number in self.steps))
        object.__setattr__(self, "arithmetic", arithmetic)

    def numbers(self, n_codes: int) -> Array:
        """The numbers of the codes ``0..n_codes-1``, in the dtype of the arithmetic."""
        with np.errstate(all="ignore"):
            numbers: Array = np.arange(n_codes).astype(self.arithmetic)
            for operation, number in self.steps:
                numbers = _OPERATIONS[operation](numbers, np.asarray(number).astype(self.arithmetic))
        return numbers

    def __str__(self) -> str:
        text, is_sum = "k", False
        for operation, number in self.steps:
            text = f"({text})" if is_sum and operation in "*/" else text
            if operation == "+" and number < 0:
                operation, number = "-", -number
            text, is_sum = f"{text} {operation} {number:.9g}", operation in "+-"
        return f"{text} in {self.arithmetic.name}"


def candidates(dtype: Dtype, numbers: Doubles, bits: int) -> Iterator[Formula]:
    """Formulas that could have made numbers from codes, the likely ones first.

    Well-known formulas come first. The others follow from the spacing of the numbers: a scale and an offset, in each
    order in which a program may apply them, with constants as round as the numbers allow (``0.485``), then with the
    closest floats. With 8 bits and round constants the lowest number may have any code, else it has code 0.

    Args:
        dtype: of the numbers.
        numbers: ``f64[n]``, different and rising.
        bits: of a code, 8 or 16.
    """
    known = _OF_8_BITS if bits == 8 else _OF_16_BITS
    if dtype.kind in "iu":
        yield from (Formula(steps) for steps in known[:2])
        return
    arithmetics = list(dict.fromkeys([dtype, *map(np.dtype, (np.float32, np.float64, np.float16))]))
    yield from (Formula(*pair) for pair in product(known, arithmetics))
    for arithmetic in arithmetics:
        grid = _grid_under(numbers, max(_ulp(dtype, numbers), _ulp(arithmetic, numbers)))
        if grid is None or grid.n_levels > 1 << bits:
            continue
        n_firsts = (1 << bits) - grid.n_levels + 1 if bits == 8 else 1  # the code of the lowest number
        for first in range(n_firsts):
            yield from (Formula(_rounded(form), arithmetic) for form in _forms(grid, first))
        for form in _forms(grid, 0):
            yield from (Formula(steps, arithmetic) for steps in _around(form, arithmetic))


class _Grid(NamedTuple):
    """Evenly spaced numbers ``low + level * scale``, and how far ``low`` may be off."""

    low: float
    scale: float
    n_levels: int
    error: float


def _grid_under(numbers: Doubles, ulp: float) -> _Grid | None:
    """The grid that rising numbers, rounded to ``ulp``, lie on; None if there is none, or too few numbers."""
    numbers = np.unique(numbers)  # 0.0 and -0.0 are one number
    if len(numbers) < _MIN_LEVELS:
        return None
    gaps = np.diff(numbers)
    smallest = gaps[gaps < 1.5 * gaps.min()].mean()
    levels = np.append(0, np.cumsum(np.rint(gaps / smallest)))
    error = _MAX_ULPS * ulp
    if levels[-1] >= 1 << 16 or error > smallest / 2:
        return None
    scale, low = np.polyfit(levels, numbers, 1)
    if np.abs(low + scale * levels - numbers).max() > error:
        return None
    return _Grid(float(low), float(scale), int(levels[-1]) + 1, error)


# Steps with measured numbers: the operation, the number, how far it may be off.
_Form = tuple[tuple[str, float, float], ...]


def _forms(grid: _Grid, first: int) -> Iterator[_Form]:
    """The orders in which a program may scale and shift, if the lowest number has the code ``first``."""
    scale, offset = grid.scale, grid.low - first * grid.scale
    slack = grid.error / (grid.n_levels - 1) / scale  # of the scale, relative
    error = grid.error * (1 + first / (grid.n_levels - 1))
    for unit in (1, 255):
        head: _Form = (("/", 255, 0),) if unit == 255 else ()
        times, over = ("*", scale * unit, slack * scale * unit), ("/", 1 / scale / unit, slack / scale / unit)
        before, after = ("+", offset / scale / unit, error / scale / unit), ("+", offset, error)
        yield from ((*head, before, over), (*head, before, times), (*head, over, after), (*head, times, after))


def _rounded(form: _Form) -> Steps:
    """The steps with each number as round as its error allows."""
    steps = ((operation, _shortest(number, error)) for operation, number, error in form)
    return tuple(step for step in steps if step != ("+", 0))


def _shortest(number: float, error: float) -> float:
    """The number with the fewest decimals that is at most ``error`` away."""
    return next((short for n in range(17) if abs((short := round(number, n)) - number) <= error), number)


def _around(form: _Form, arithmetic: Dtype) -> Iterator[Steps]:
    """The steps with each number replaced by the floats around it."""
    near: list[list[float]] = []
    for _, number, error in form:
        ulp = _ulp(arithmetic, np.array([number])) if error else 0.0
        near.append([number + n * ulp for n in (range(-_NEAR_ULPS, _NEAR_ULPS + 1) if error else (0,))])
    for numbers in product(*near):
        yield tuple((operation, number) for (operation, _, _), number in zip(form, numbers, strict=True))


def _ulp(dtype: Dtype, numbers: Doubles) -> float:
    """The distance between floats near the largest number; infinite for a dtype that numpy lacks."""
    if dtype.kind != "f":
        return float("inf")
    with np.errstate(over="ignore"):
        return float(np.spacing(np.abs(numbers).max().astype(dtype)))
