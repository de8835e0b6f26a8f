"""IdExchange: replaces ids in arrays, all of them or none, whatever interrupts it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from obscodec.errors import HeapFull, SlotError
from obscodec.layout import same_values
from obscodec.runtime import LockOrder, PicklableLock, says_memory_error
from obscodec.segments import Ints
from obscodec.stores.ids import hand_over
from obscodec.stores.references import Alive, Guard, Owned, References


class Place(NamedTuple):
    """Some elements of an array of ids: ``ids[index]``, where the index names no element twice."""

    ids: npt.NDArray[np.signedinteger]
    index: Any


class _Exchange:
    """Ids ``new``, ``i64[n]``, on their way to their places, in order; see ``IdExchange.put_ids`` for ``replaced``.

    numpy fills each place in one step, so the content of a place shows whether the exchange has reached it.
    """

    def __init__(self, places: Sequence[Place], new: Ints, replaced: Ints | None) -> None:
        self._places = places
        self._new = new
        self.replaced = replaced
        self._old = [np.array(ids[index], np.int64).reshape(-1) for ids, index in places]
        self._ends = list(accumulate(map(len, self._old)))
        self._left: Ints | None = None  # ids without an owner, once they are known

    def put(self) -> None:
        """Put the ids into their places.

        Raises:
            HeapFull: the dtype of an array can't hold an id.
        """
        largest = max(int(self._new.max(initial=0)), -int(self._new.min(initial=0)))
        for ids, _ in self._places:
            most = np.iinfo(ids.dtype).max
            if largest > most:
                raise HeapFull(f"the store has given out an id over {most}: use an array of ids of a wider dtype")
        for (ids, index), new in zip(self._places, self.by_place(self._new), strict=True):
            cast = new.astype(ids.dtype)  # numpy may crash if it has no memory to cast while it assigns
            ids[index] = cast.reshape(np.shape(ids[index]))

    def left(self) -> Ints:
        """The ids to give back: the old ids of places that have the new ones, the new ids of other places.

        Each call returns the same array: ids that were given back are 0 in it, and so are not given back twice.
        """
        if self._left is None:
            self._left = np.concatenate(
                [
                    old if same_values(np.reshape(ids[index], -1), new) else new
                    for (ids, index), old, new in zip(self._places, self._old, self.by_place(self._new), strict=True)
                ]
            )
        return self._left

    def by_place(self, ids: Ints) -> list[Ints]:
        """Those of ``ids``, such as :meth:`left` has them, for each place."""
        return [ids[begin:end] for begin, end in zip([0, *self._ends], self._ends, strict=False)]


class Buffered(Protocol):
    """A buffer in which rows wait on their way into a store."""

    def flush(self) -> None:
        """Store the rows."""

    def drop(self, ids: npt.NDArray[np.signedinteger]) -> None:
        """Forget the rows for an array of ids that is gone."""


class IdExchange(ABC):
    """The part of a store that keeps arrays of its ids in step with it.

    Attributes:
        guard: keeps all tensors of this moment until the guard that it returns is closed, though they are released
            meanwhile. A reader that does not hold :attr:`changing` makes a guard before it copies ids, and closes it
            when it has decoded them. So no writer waits for it. Called with ``i64[n]``, the guard owns these ids, as
            the array is when it is closed: they are given back then.
        own: called with an object and ids, to each of which the caller has a reference. The object owns these from then
            on; when it is gone, the next call that changes or counts tensors gives those back that the result has then.
        changing: the lock for changes of arrays of ids; stores whose arrays change together share it.
        write_buffers: buffers with rows on their way into this store.
    """

    guard: Callable[..., Guard]
    own: Callable[[object, Ints], Owned]
    changing: PicklableLock
    write_buffers: Alive[Buffered]
    _exchange: _Exchange | None  # under way, or interrupted before it was settled
    _references: References

    def __new__(cls, *_: object, **__: object) -> Self:
        """Make the attributes here: another thread may ask for them as soon as the object exists."""
        made = super().__new__(cls)
        made.changing, made.write_buffers, made._exchange = PicklableLock(LockOrder.CHANGING), Alive(), None
        made._references = References()
        made.guard, made.own = made._references.guard, made._references.own
        return made

    @abstractmethod
    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """Store tensors, and give the caller one reference to each id.

        Args:
            tensors: ``[m, *shape]``; see ``Store.append``.
            which: ``i64[n]``, the number of the tensor for each id; each of ``0..m-1`` at least once.
            sequences: ``i64[m]``, the sequence of each tensor.
            ids: ``i64[n]`` of zeros, filled. Whatever ends this call, the caller owns a reference to each id that is
                not 0 then, and no other reference exists.

        Raises:
            ShapeError: the tensors have another shape.
            DTypeError: the tensors have another dtype.
            HeapFull: there is not enough room.
        """

    @abstractmethod
    def _give_back(self, ids: Ints) -> None:
        """Give back one reference to each id, and set it to 0. A tensor without references is dropped.

        Whatever ends this call, the caller still owns a reference to each id that is not 0 then, and can call again.

        Args:
            ids: ``i64[n]``; 0 is ignored.

        Raises:
            SlotError: an id is of no tensor, or is given back more often than it was given out; nothing was done.
        """

    @says_memory_error
    def exchange(self, places: Sequence[Place], tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints) -> None:
        """Store tensors, put their ids into places, and give the old ids of the places back.

        Whatever ends this call, each place has all of its new ids, and their tensors are stored, or it is as it was.
        ``places`` are different elements of arrays, in the order of ``which``; see :meth:`take_in` for the rest, and
        for errors.

        Raises:
            HeapFull: there is not enough room, or the dtype of an array can't hold an id.
            SlotError: an old id is of no tensor.
        """
        new = np.zeros(len(which), np.int64)
        with self.changing:
            try:
                exchange = self._begin_exchange(places, new)
                self.take_in(tensors, which, sequences, new)
                exchange.put()
            finally:
                self.settle()

    @says_memory_error
    def put_ids(self, places: Sequence[Place], ids: Ints, replaced: Ints | None = None) -> None:
        """Put ids into places, and give the old ids of the places back; see :meth:`exchange`.

        The places take over the references of ``ids``, ``i64[n]``, which are set to 0. The old ids wait for the guards
        of this moment in ``replaced``, ``i64[n]`` of zeros: a caller with a guard can put them back meanwhile, after
        :meth:`settle`. A place that this call has not reached has its new ids there.
        """
        new = np.zeros_like(ids)
        with self.changing:
            try:
                exchange = self._begin_exchange(places, new, replaced)
                hand_over(ids, new)
                exchange.put()
            finally:
                self.settle()

    def settle(self, released: Ints | None = None) -> None:
        """Finish an exchange that was interrupted, and let go of ids that have no owner any more.

        Called with :attr:`changing` held, before ids change otherwise. Then lets go of ``released``, ``i64[n]``, which
        are set to 0: they are given back as soon as all guards of this moment are closed. If one of them is of no
        tensor, this call or a later one raises ``SlotError``.
        """
        if self._exchange is not None:
            self._finish()
        if self._references.gone:
            while self._references.gone:
                for write_buffer in self.write_buffers:
                    write_buffer.drop(self._references.gone[0].ids)
                self._references.release_gone()
            self._catch_up()
        if released is not None:
            self._let_go(released)

    def _finish(self) -> None:
        """Let go of the ids that an interrupted exchange took out of places, or did not put there."""
        assert self._exchange is not None
        try:
            self._let_go(self._exchange.left(), self._exchange.replaced)
        except SlotError:  # an old id is of no tensor: give back the ids of the other places
            for part in self._exchange.by_place(self._exchange.left()):
                with suppress(SlotError):
                    self._let_go(part)
            self._exchange = None
            raise
        self._exchange = None

    def _catch_up(self) -> None:
        """Give back what was released, as far as it waits for no guard any more."""
        with self.changing:
            while (ids := self._references.first_free()) is not None:
                try:
                    self._give_back(ids)  # sets ids to 0, so it can be repeated
                except SlotError:
                    self._references.done()
                    raise
                self._references.done()

    def _let_go(self, ids: Ints, waiting: Ints | None = None) -> None:
        self._catch_up()
        if self._references.must_wait:
            self._references.release(ids, np.zeros_like(ids) if waiting is None else waiting)
        else:
            self._give_back(ids)

    def _begin_exchange(self, places: Sequence[Place], new: Ints, replaced: Ints | None = None) -> _Exchange:
        if self._exchange is not None:
            self._finish()
        self._catch_up()  # and no settle: some of the places may be of an array that is gone meanwhile
        self._exchange = exchange = _Exchange(places, new, replaced)
        return exchange
