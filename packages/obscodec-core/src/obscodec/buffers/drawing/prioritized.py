"""Prioritized: draws steps in proportion to their priorities."""

from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_integers, as_number, says_arguments
from obscodec.buffers.drawing.counts import Counts, greater, most, no_greater
from obscodec.buffers.drawing.draws import Rng, as_floats, as_generator
from obscodec.buffers.drawing.sum_tree import find_leaves, new_tree, set_leaves
from obscodec.buffers.memory import making_room
from obscodec.errors import CorruptStream, ShapeError, SlotError
from obscodec.fixed import Fixed
from obscodec.runtime import PicklableLock
from obscodec.segments import Ints
from obscodec.state import State, array_of, check_range, number_of, part_of, versioned

_MAKE_ANOTHER = "make another Prioritized, which draws new steps first"
_MOST = 1 << 62
_LEAST_WEIGHT, _GREATEST_WEIGHT = 1e-300, 1e300  # of an item that can be drawn; the sum of all stays finite


@says_arguments
class Prioritized:
    """The priorities of the last ``capacity`` of a row of items, which are numbered on and on.

    Pass it as ``p`` to ``RingBuffer.sample``: the buffer tells it which steps there are. By itself, it draws numbers,
    of whatever they stand for: :meth:`advance` says which numbers there are. New items have the greatest priority that
    any item has had, so that each is drawn soon.

    An item is drawn with a probability in proportion to ``(priority + eps) ** alpha``. Source: Schaul et al. 2016,
    Prioritized Experience Replay.

    Args:
        capacity: the most items at a time; of a buffer, its ``capacity * n_envs`` or more.
        alpha: how much priorities count; 0 draws uniformly.
        beta: how much :meth:`weights` make up for it; 1 entirely. Set it as you like, such as rising to 1.
        eps: is added to each priority, so that an item of priority 0 is drawn, too.

    Raises:
        ShapeError: a number is out of range.
        DTypeError: an argument is no number.

    Example:
        >>> from obscodec import Field, RingBuffer
        >>> fields = {"obs": Field((4,), np.float32), "reward": Field((), np.float32)}
        >>> buffer, priorities = RingBuffer(100, fields), Prioritized(100)
        >>> for k in range(10):
        ...     buffer.append(obs=np.full(4, k, np.float32), reward=k)
        >>> batch, indices = buffer.sample(32, 0, p=priorities, return_indices=True)
        >>> priorities.update(indices, abs(batch["reward"]))
        >>> priorities.weights(indices).shape
        (32,)
    """

    capacity: Fixed[int] = Fixed(_MAKE_ANOTHER)
    alpha: Fixed[float] = Fixed(_MAKE_ANOTHER)
    eps: Fixed[float] = Fixed(_MAKE_ANOTHER)

    def __init__(self, capacity: int, alpha: float = 0.6, beta: float = 0.4, eps: float = 1e-6) -> None:
        self.capacity = as_count("capacity", capacity)
        self.alpha, self.beta, self.eps = as_number("alpha", alpha), beta, as_number("eps", eps)
        if self.eps == 0:
            raise ShapeError("eps must be more than 0: an item of priority 0 would never be drawn again")
        with making_room(lambda: self.capacity):
            self._tree = new_tree(self.capacity)
        self._range: tuple[Counts, Counts] = (0, 0)  # of the items; replaced as a whole
        self._lock = PicklableLock()
        self._greatest = 1.0  # weight of an item

    @property
    def beta(self) -> float:
        """How much :meth:`weights` make up for the priorities. Set it as you like: a bad number is refused."""
        return self._beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self._beta = as_number("beta", beta)

    @property
    def indices(self) -> range | Ints:
        """The numbers of the items; ``i64[n]`` if there are several rows of them, see :meth:`advance`."""
        first, end = self._range
        return range(first, end) if isinstance(first, int) and isinstance(end, int) else _numbers(first, end)

    def new_items(self, first: Counts, end: Counts) -> Ints:
        """The numbers ``i64[n]`` of the items that :meth:`advance` would add."""
        return _numbers(greater(first, _in_rows(self._range[1], first)), end)

    def advance(self, first: Counts, end: Counts, exclude: npt.ArrayLike = ()) -> None:
        """Let the items have the numbers ``first`` to ``end - 1``. Items before ``first`` are forgotten.

        Or let there be ``n`` rows of items, each of which goes on by itself, as environments do that do not step
        together: row ``k`` has every ``n``-th number from ``first[k]`` on, below ``end[k]``, and ``first[k] % n`` is
        ``k``. ``RingBuffer.sample`` calls this.

        Args:
            first: the number of the oldest item, or ``i64[n]``.
            end: the number of the next one to come, or ``i64[n]``.
            exclude: new items that are never drawn, ``i64[n]``; others among them are left out.

        Raises:
            ShapeError: there are more than ``capacity``; numbers do not rise from call to call; or ``capacity`` is no
                multiple of the number of rows.
            DTypeError: a number is no integer.
        """
        first, end, excluded = _as_counts("first", first), _as_counts("end", end), as_integers("indices", exclude)
        if not (isinstance(first, int) and isinstance(end, int)):
            _check_rows(first, end, self.capacity)
        with self._lock:
            old_first, old_end = (_in_rows(of, first) for of in self._range)
            if not (no_greater(old_first, first) and no_greater(first, end) and no_greater(old_end, end)):
                raise ShapeError(
                    f"this Prioritized has the items {np.min(old_first)} to {_last(old_end)}, and can't go on "
                    f"with {np.min(first)} to {_last(end)}: make one Prioritized for each buffer"
                )
            if (n := most(end - first)) > self.capacity:
                raise ShapeError(f"there are {n} items, and capacity is {self.capacity}: make it larger")
            # Also what an interrupted call has left: numbers beyond the old end that are gone by now.
            gone = _numbers(greater(old_first, first - self.capacity), first)
            new = _numbers(greater(first, old_end), end)
            weights = np.where(np.isin(new, excluded), 0.0, self._greatest)
            numbers = np.concatenate([gone, new])
            if len(numbers):
                set_leaves(self._tree, numbers % self.capacity, np.concatenate([np.zeros(len(gone)), weights]))
            self._range = first, end

    def sample(self, batch: int, rng: Rng = None) -> Ints:
        """The numbers of random items, ``i64[batch]``, with replacement.

        The priorities are divided into ``batch`` equal parts, and one item is drawn of each, as in the paper.

        Args:
            batch: how many.
            rng: a random generator, of numpy or PyTorch, or a seed; None for one that the system has seeded.

        Raises:
            SlotError: there is none.
            ShapeError: ``batch`` is negative.
            DTypeError: ``batch`` is no number, or ``rng`` no seed.
        """
        batch, rng = as_count("batch", batch, 0), as_generator(rng)
        at, leaves = np.arange(batch) + rng.random(batch), np.empty(batch, np.int64)
        with self._lock:
            first, total = self._range[0], self._tree[1]
            if total == 0:
                raise SlotError("there are no items to draw: advance first, or append a step")
            find_leaves(self._tree, at * (total / max(batch, 1)), leaves)
        first = _of_numbers(first, leaves)
        drawn: Ints = first + (leaves - first) % self.capacity
        return drawn

    @property
    def total(self) -> float:
        """The sum of ``(priority + eps) ** alpha`` of all items; an item is drawn in proportion to its part of it."""
        with self._lock:
            return float(self._tree[1])

    def probabilities(self, indices: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The probability of items, ``f64[batch]``, to be drawn next; 0 for one that is never drawn.

        Args:
            indices: as :meth:`sample` returned them.

        Raises:
            SlotError: an item is not there.
        """
        with self._lock:
            weights, total = self._weights_of(indices), max(self._tree[1], _LEAST_WEIGHT)
        least = np.where(weights > 0, np.finfo(np.float64).tiny, 0)
        with np.errstate(under="ignore"):
            return np.asarray(np.maximum(weights / total, least), np.float64)

    def _weights_of(self, indices: npt.ArrayLike) -> npt.NDArray[np.float64]:
        leaves = self._leaves(as_integers("indices", indices).reshape(-1))
        return np.asarray(self._tree[len(self._tree) // 2 + leaves])

    def weights(self, indices: npt.ArrayLike, beta: float | None = None) -> npt.NDArray[np.float32]:
        """Importance weights of sampled items, ``f32[batch]``, factors of their losses; the largest is 1.

        Args:
            indices: as :meth:`sample` returned them.
            beta: in place of the attribute.

        Raises:
            SlotError: an item is not there, or is never drawn.
        """
        with self._lock:
            weights = self._weights_of(indices)
        return importance(weights, self.beta if beta is None else as_number("beta", beta))

    def update(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Give items new priorities, such as the absolute TD errors of a batch.

        Items that have gone meanwhile are left out; of an item that is named twice, the last priority counts.

        Args:
            indices: ``i64[n]``, their numbers.
            priorities: ``[n]``, of 0 or more.

        Raises:
            ShapeError: a priority is negative, infinite or NaN; or their number is another one.
            SlotError: an item is not there yet.
        """
        numbers, given = as_integers("indices", indices).reshape(-1), as_floats("priorities", priorities).reshape(-1)
        if len(given) != len(numbers):
            raise ShapeError(f"there are {len(numbers)} indices and {len(given)} priorities: pass one for each")
        if len(given) and not (given.min() >= 0 and given.max() < np.inf):
            raise ShapeError(f"priorities must be finite and 0 or more, got {given.min()} to {given.max()}")
        if len(numbers) and numbers.min() < 0:
            raise SlotError(f"items have numbers of 0 or more, got {numbers.min()}")
        with np.errstate(over="ignore", under="ignore"):
            weights = np.maximum((given + self.eps) ** self.alpha, _LEAST_WEIGHT)
        if weights.sum() > _GREATEST_WEIGHT:
            raise ShapeError(f"priorities of up to {given.max()} are too large for alpha={self.alpha}: divide them")
        with self._lock:
            there = numbers >= _of_numbers(self._range[0], numbers)
            leaves, weights = self._leaves(numbers[there]), weights[there]
            drawn = self._tree[len(self._tree) // 2 + leaves] > 0
            self._greatest = max(self._greatest, float(weights.max(initial=0.0)))
            set_leaves(self._tree, leaves[drawn], weights[drawn])

    def exclude(self, indices: npt.ArrayLike) -> None:
        """Never draw items again; later priorities of these are left out.

        Raises:
            SlotError: an item is not there.
        """
        with self._lock:
            leaves = self._leaves(as_integers("indices", indices).reshape(-1))
            set_leaves(self._tree, leaves, np.zeros(len(leaves)))

    def arguments(self) -> State:
        """What the constructor takes for an equal object without items."""
        return {"capacity": self.capacity, "alpha": self.alpha, "beta": self.beta, "eps": self.eps}

    def state(self) -> State:
        """The priorities: see ``obscodec.state``."""
        begin = len(self._tree) // 2
        with self._lock:
            first, end = self._range
            weights = self._tree[begin : begin + self.capacity].copy()
            return {"first": first, "end": end, "greatest": self._greatest, "weights": weights}

    def restore(self, state: State) -> None:
        """Fill this object, which has no items.

        Raises:
            CorruptStream: none with this capacity has such a state.
        """
        is_one = isinstance(state.get("end"), int)
        first, end = (
            number_of(state, name) if is_one else array_of(state, name, np.int64, (None,)) for name in ("first", "end")
        )
        n = np.size(first)
        are_rows = 0 < n == np.size(end) and self.capacity % n == 0
        if not (are_rows and (np.stack([first, end]) % n == np.arange(n)).all()):
            raise CorruptStream("'first' and 'end' of a state are of rows of items")
        check_range("first", np.asarray(first), 0, _MOST)
        check_range("end - first", np.asarray(end - first), 0, self.capacity)
        weights, greatest = array_of(state, "weights", np.float64, (self.capacity,)), part_of(state, "greatest", float)
        if not (weights.min() >= 0 and weights.sum() <= _GREATEST_WEIGHT and 0 < greatest <= _GREATEST_WEIGHT):
            raise CorruptStream("'weights' of a state are 0 or more, and their sum is finite")
        there = _numbers(first, end) % self.capacity
        set_leaves(self._tree, there, weights[there])
        self._range, self._greatest = (first, end), greatest

    def __len__(self) -> int:
        return len(self.indices)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return versioned(super().__reduce_ex__(protocol))

    def __repr__(self) -> str:
        numbers = f"alpha={self.alpha}, beta={self.beta}, eps={self.eps}"
        return f"Prioritized(capacity={self.capacity}, {numbers}, {len(self):,} items)"

    def _leaves(self, numbers: Ints) -> Ints:
        first, end = (_of_numbers(of, numbers) for of in self._range)
        if len(numbers) and not ((numbers >= first).all() and (numbers < end).all()):
            least, most = np.min(self._range[0]), _last(self._range[1])
            raise SlotError(
                f"the items have the indices {least} to {most}, got {numbers.min()} to {numbers.max()}: earlier "
                "ones are overwritten, later ones not appended yet"
            )
        return numbers % self.capacity


def importance(probabilities: npt.NDArray[np.float64], beta: float) -> npt.NDArray[np.float32]:
    """See :meth:`Prioritized.weights`; of items that were drawn in proportion to these numbers, ``f64[batch]``."""
    if not probabilities.all():
        raise SlotError("an item that is never drawn has no weight: pass the indices that sample returned")
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray((probabilities / probabilities.min(initial=np.inf)) ** -beta, np.float32)


def _as_counts(what: str, given: Counts) -> Counts:
    if isinstance(given, int) or np.ndim(given) == 0:
        return as_count(what, given, 0)
    counts = as_integers(what, given)
    if counts.ndim > 1 or not len(counts):
        raise ShapeError(f"{what} is a number, or one for each row of items, got shape {counts.shape}")
    return counts


def _check_rows(first: Counts, end: Counts, capacity: int) -> None:
    rows = np.arange(np.size(first))
    if np.shape(first) != np.shape(end) or np.any(first % len(rows) != rows):
        raise ShapeError(f"first and end are of the same rows, and first[k] % n is k, got {first} and {end}")
    if capacity % len(rows):
        n = -(-capacity // len(rows)) * len(rows)
        raise ShapeError(f"capacity is {capacity}, no multiple of {len(rows)} rows: make a Prioritized({n})")


def _in_rows(count: Counts, like: Counts) -> Counts:
    """A count of items, or the first number from there on of each row that ``like`` has."""
    if not isinstance(count, int) and np.shape(like) != count.shape:
        raise ShapeError(f"this Prioritized has {len(count)} rows of items: pass the first and the end of each")
    if isinstance(like, int) or not isinstance(count, int):
        return count
    rows = np.arange(len(like))
    return count + (rows - count) % len(rows)


def _last(end: Counts) -> int:
    """The last number below ``end``, of all rows."""
    return end - 1 if isinstance(end, int) else int(end.max()) - len(end)


def _of_numbers(counts: Counts, numbers: Ints) -> Counts:
    """The counts of the rows that items are in."""
    return counts if isinstance(counts, int) else counts[numbers % len(counts)]


def _numbers(begin: Counts, end: Counts) -> Ints:
    """``i64[n]``: the numbers from ``begin`` on, below ``end``, of all rows."""
    if isinstance(begin, int) and isinstance(end, int):
        return np.arange(begin, end)
    begin, end = np.asarray(begin), np.asarray(end)
    n = len(begin)
    lengths = np.maximum(-(-(end - begin) // n), 0)
    before = np.repeat(np.cumsum(lengths) - lengths, lengths)
    numbers: Ints = np.repeat(begin, lengths) + n * (np.arange(len(before)) - before)
    return numbers
