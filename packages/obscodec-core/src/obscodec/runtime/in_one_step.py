"""Several assignments in one step."""

from collections import deque
from itertools import starmap
from operator import setitem
from typing import Any

import numpy as np
import numpy.typing as npt


def assign(*elements: tuple[npt.NDArray[np.generic], Any, Any]) -> None:
    """Assign to elements of arrays, one after the other, such that no exception of a signal handler comes between.

    Python looks for signals between its own instructions, and here are none. The first assignment may raise; let the
    others be plain copies from arrays of the same shape and dtype to ``...``, which need no memory. Each is an array,
    which elements of it, and what to put there.
    """
    deque(starmap(setitem, elements), maxlen=0)
