"""The checks of the contracts, which raise AssertionError; ``assert`` would do nothing under ``python -O``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from obscodec.errors import ObscodecError


def check(kept: bool, tested: object, broken: str) -> None:
    """Fail unless a law is ``kept``; the text says that ``tested`` is ``broken``, and how."""
    if not kept:
        raise AssertionError(f"{tested}: {broken}")


def check_refused(error: type[Exception], tested: object, what: str, call: Callable[[], object]) -> None:
    """Fail unless ``call`` raises ``error``."""
    try:
        call()
    except error:
        return
    except Exception as other:
        raise AssertionError(f"{tested}: {what} raises {other!r}, it should raise {error.__name__}") from other
    raise AssertionError(f"{tested}: {what} is accepted, it should raise {error.__name__}")


@contextmanager
def accepted(tested: object, what: str) -> Iterator[None]:
    """Fail if obscodec refuses what is done in this context."""
    try:
        yield
    except ObscodecError as error:
        raise AssertionError(f"{tested}: {what} raises {error!r}") from error


def equal(x: npt.NDArray[np.generic], y: npt.NDArray[np.generic]) -> bool:
    """Whether two arrays have the same shape, dtype and bytes, also of NaNs and negative zeros."""
    return x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes()
