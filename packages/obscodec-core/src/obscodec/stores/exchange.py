"""Exchange: new ids take the places of others, all or none, whatever ends it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.errors import HeapFull
from obscodec.segments import Ints


class Place(NamedTuple):
    """Where ids are.

    Attributes:
        ids: an integer array.
        index: what of it, any index of numpy that selects nothing twice.
    """

    ids: npt.NDArray[np.signedinteger]
    index: Any


class Exchange:
    """Ids on their way to their places. Each place is filled in one step, which shows to what point it has come.

    Args:
        places: where they go; none of them twice.
        new: ``i64[n]``, the ids for all places, one behind the other.
    """

    def __init__(self, places: Sequence[Place], new: Ints) -> None:
        self._places = places
        self._new = new
        self._old = [np.array(ids[index], np.int64).reshape(-1) for ids, index in places]
        self._ends = list(accumulate(map(len, self._old)))
        self._left: Ints | None = None  # the ids that nobody has any more

    def put(self) -> None:
        """Put the ids into their places.

        Raises:
            HeapFull: an array of ids is of a dtype that is too narrow.
        """
        largest = max(int(self._new.max(initial=0)), -int(self._new.min(initial=0)))
        for ids, _ in self._places:
            most = np.iinfo(ids.dtype).max
            if largest > most:
                raise HeapFull(f"the store has given out an id over {most}: use an array of ids of a wider dtype")
        for (ids, index), new in zip(self._places, self._parts(), strict=True):
            cast = new.astype(ids.dtype)  # numpy may crash if it casts while it assigns, without memory
            ids[index] = cast.reshape(np.shape(ids[index]))

    def left(self) -> Ints:
        """The ids to give back: the old ones of the places that have the new ones, the new ones of the others.

        The same array at each call, so that what was given back of it, which is 0 then, is not given back again.
        """
        if self._left is None:
            self._left = np.concatenate(
                [
                    old if np.array_equal(np.reshape(ids[index], -1), new) else new
                    for (ids, index), old, new in zip(self._places, self._old, self._parts(), strict=True)
                ]
            )
        return self._left

    def _parts(self) -> list[Ints]:
        """The new ids of each place."""
        return [self._new[begin:end] for begin, end in zip([0, *self._ends], self._ends, strict=False)]
