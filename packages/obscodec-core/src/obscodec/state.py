"""State: what a part of a buffer holds, in plain values, from which an equal part is made.

The parts of stores and buffers have two methods: ``state()`` returns a :data:`State`, and ``restore(state)`` fills a
part that was made with equal arguments, and is empty. Pickles and snapshots consist of states. Any later version reads
a snapshot; only the version that wrote a pickle reads that, see :func:`versioned`.

A state that is restored may come from a stranger. So each part checks what it gets, with the functions here, and
computes what follows from the rest, such as a list of free places, instead of reading it.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream, SnapshotError

# Values are None, numbers, texts, numpy arrays, Segments, Layouts, FrameStacks and Narrows, lists of them, and states.
State = dict[str, Any]

T = TypeVar("T", bound=np.generic)
V = TypeVar("V")
_MOST = (1 << 63) - 1


def part_of(state: Mapping[str, Any], name: str, kind: type[V]) -> V:
    """A value of a state; CorruptStream if there is none, or it is of another type."""
    value = state.get(name)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise CorruptStream(f"{name!r} of a state is a {kind.__name__}, got {type(value).__name__}")
    return value


def number_of(state: Mapping[str, Any], name: str, least: int = 0, most: int = _MOST) -> int:
    """A whole number of a state; CorruptStream if there is none, or it is out of range."""
    value = part_of(state, name, int)
    if not least <= value <= most:
        raise CorruptStream(f"{name!r} of a state is in {least}..{most}, got {value}")
    return value


def array_of(
    state: Mapping[str, Any], name: str, dtype: type[T] | np.dtype[T], shape: tuple[int | None, ...]
) -> npt.NDArray[T]:
    """A copy of an array of a state; ``shape`` has None for an axis of any length.

    Raises:
        CorruptStream: there is none, or it has another dtype or shape.
    """
    array = part_of(state, name, np.ndarray)
    fits = len(array.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits:
        wanted = ", ".join("n" if n is None else str(n) for n in shape)
        raise CorruptStream(f"{name!r} of a state is {np.dtype(dtype)}[{wanted}], got {array.dtype}{[*array.shape]}")
    return np.array(array, dtype, order="C")


def check_range(name: str, numbers: npt.NDArray[Any], least: int, most: int) -> None:
    """Make sure that all numbers of an array are in a range; CorruptStream if one is not."""
    if numbers.size and not least <= numbers.min() <= numbers.max() <= most:
        raise CorruptStream(f"{name!r} of a state is in {least}..{most}, got {numbers.min()}..{numbers.max()}")


def versioned(reduced: str | tuple[Any, ...], package: str = "obscodec") -> tuple[Any, ...]:
    """What ``__reduce_ex__`` returns, so that only the version that wrote a pickle reads it.

    A version may name classes and attributes as it likes. So the version comes first in the pickle: another one refuses
    it before it reads what it may not know.

    Args:
        reduced: what ``__reduce_ex__`` would return else, a tuple.
        package: the module whose ``__version__`` counts besides that of this package, such as ``"obscodec_sb3"``.
    """
    assert not isinstance(reduced, str)  # the name of a global variable
    make, arguments, *rest = reduced
    return _made, (_versions_of(package), make, arguments), *rest


class _Versions:
    """The versions of packages, which are compared as soon as they are unpickled."""

    def __init__(self, *packages: str) -> None:
        self._packages = packages

    def __reduce__(self) -> tuple[Any, ...]:
        return _same_versions, ({package: _version(package) for package in self._packages},)


@cache  # one object, which a pickle of many parts has once
def _versions_of(package: str) -> _Versions:
    return _Versions(*sorted({"obscodec", package}))


def _version(package: str) -> str:
    version: str = import_module(package).__version__
    return version


# Keep the names and the arguments of these two: pickles of other versions have them.
def _same_versions(written: dict[str, str]) -> _Versions:
    for package, version in written.items():
        if (here := _version(package)) != version:
            raise SnapshotError(
                f"a pickle was written by {package} {version}, and here is {here}: only the same version reads a "
                "pickle. Unpickle it where that version is installed, save it there with obscodec.save, or with the "
                "method save of a buffer, and load that here with load, which reads what every earlier version has "
                "saved"
            )
    return _Versions(*written)


def _made(_: _Versions, make: Callable[..., object], arguments: tuple[Any, ...]) -> object:
    return make(*arguments)
