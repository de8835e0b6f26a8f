"""IdExchange: new ids take the places of others in arrays, all or none, whatever ends it."""

import threading
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, Self
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from obscodec.errors import HeapFull, SlotError
from obscodec.runtime import PicklableLock, says_memory_error
from obscodec.segments import Ints
from obscodec.stores.ids import hand_over

_READINGS = threading.Lock()  # of all stores; several threads can sample


class Place(NamedTuple):
    """Where ids are.

    Attributes:
        ids: an integer array.
        index: what of it, any index of numpy that selects nothing twice.
    """

    ids: npt.NDArray[np.signedinteger]
    index: Any


class _Exchange:
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
        for (ids, index), new in zip(self._places, self._by_place(self._new), strict=True):
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
                    for (ids, index), old, new in zip(self._places, self._old, self._by_place(self._new), strict=True)
                ]
            )
        return self._left

    def left_of_places(self) -> list[Ints]:
        """:meth:`left`, of each place."""
        return self._by_place(self.left())

    def _by_place(self, ids: Ints) -> list[Ints]:
        return [ids[begin:end] for begin, end in zip([0, *self._ends], self._ends, strict=False)]


class Reading(Protocol):
    """What decodes in the background."""

    def wait(self) -> None:
        """Wait until it has decoded."""


class Buffered(Protocol):
    """Where rows wait that are on their way into a store."""

    def flush(self) -> None:
        """Store them."""


class IdExchange:
    """What arrays of ids, and those that read and write them, ask of the store of their tensors.

    Attributes:
        changing: held while an array of ids of this store is changed; stores whose arrays change together have one.
        write_buffers: where rows wait that are on their way into this store.
        readings: what decodes in the background.
    """

    changing: PicklableLock
    write_buffers: WeakSet[Buffered]
    readings: WeakSet[Reading]
    _exchange: _Exchange | None  # that is under way, or ended before it was settled

    def __new__(cls, *_: object, **__: object) -> Self:
        """See the class; this is there before any thread can ask for it."""
        made = super().__new__(cls)
        made.changing, made.write_buffers, made.readings, made._exchange = PicklableLock(), WeakSet(), WeakSet(), None
        return made

    @abstractmethod
    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """See ``Store.take_in``."""

    @abstractmethod
    def give_back(self, ids: Ints) -> None:
        """See ``Store.give_back``."""

    def note_reading(self, reading: Reading) -> None:
        """Have whoever releases tensors wait for a reading in the background."""
        with _READINGS:
            self.readings.add(reading)

    def wait_for_readings(self) -> None:
        """Wait until nothing decodes in the background: what it reads may be released then."""
        with _READINGS:
            readings = list(self.readings) if self.readings else []
            self.readings.clear()
        for reading in readings:
            reading.wait()

    @says_memory_error
    def exchange(self, places: Sequence[Place], tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints) -> None:
        """Store tensors, and put their ids where others are, which are given back.

        Whatever ends this call, wherever: each place has all of its new ids, and each tensor that one of them is for is
        stored, or the place is as it was.

        Args:
            places: where the ids go, in the order of ``which``; none of them twice.
            tensors: ``[m, *shape]``; see ``Store.append``.
            which: ``i64[n]``, the tensor that each id is for, each of ``0..m-1`` at least once.
            sequences: ``i64[m]``, the sequence of each tensor.

        Raises:
            ShapeError: the tensors have another shape.
            DTypeError: the tensors have another dtype.
            HeapFull: there is not enough room, or an array of ids is of a dtype that is too narrow.
            SlotError: what is in a place is of no tensor.
        """
        new = np.zeros(len(which), np.int64)
        with self.changing:
            try:
                exchange = self._begin_exchange(places, new)
                self.take_in(tensors, which, sequences, new)
                exchange.put()
            finally:
                self._settle_exchange()

    @says_memory_error
    def put_ids(self, places: Sequence[Place], ids: Ints) -> None:
        """Put ids where others are, which are given back; see :meth:`exchange`.

        Args:
            places: where they go, none of them twice.
            ids: ``i64[n]``, of which the caller owns one reference to each; set to 0.
        """
        new = np.zeros_like(ids)
        with self.changing:
            try:
                exchange = self._begin_exchange(places, new)
                hand_over(ids, new)
                exchange.put()
            finally:
                self._settle_exchange()

    def _begin_exchange(self, places: Sequence[Place], new: Ints) -> _Exchange:
        self._settle_exchange()
        self.wait_for_readings()
        self._exchange = exchange = _Exchange(places, new)
        return exchange

    def _settle_exchange(self) -> None:
        """Give back what an exchange took out, or, where it ended before, what it was about to put there."""
        if self._exchange is not None:
            try:
                self.give_back(self._exchange.left())
            except SlotError:  # what was in a place is of no tensor: nobody can give that back
                for part in self._exchange.left_of_places():
                    with suppress(SlotError):
                        self.give_back(part)
                self._exchange = None
                raise
            self._exchange = None
