"""Mixture: batches of several buffers, in given shares."""

from collections.abc import Iterable, Mapping, Sequence
from math import isclose
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_flag, as_number, check_kind, kind_of, says_arguments
from obscodec.buffers.drawing import Prioritized, Rng, as_generator, batches_to
from obscodec.buffers.field import listed
from obscodec.buffers.ring import RingBuffer
from obscodec.buffers.side_by_side import check_alike
from obscodec.errors import DTypeError, FieldError, ShapeError, SlotError, SpecError
from obscodec.fixed import Fixed
from obscodec.layout import Layout
from obscodec.runtime import says_errors
from obscodec.segments import Ints
from obscodec.stores import BatchMemory

Priorities = Mapping[RingBuffer, npt.ArrayLike | Prioritized]
_MEMORY = BatchMemory()  # of joined arrays; their parts have that of all buffers
_INSTEAD = "make another Mixture, which costs nothing"


@says_arguments
class Mixture:
    """Draws each batch from several buffers, such as one of demonstrations and one that a training fills.

    Args:
        shares: which part of a batch comes from each buffer, 0 to 1; all sum to 1. A mapping, or pairs. The buffers
            have the same fields, whatever their codecs, and the same ``stack``, ``pad``, ``episode_end`` and ``mask``.

    Attributes:
        buffers: the buffers, in this order.
        shares: of each its share.

    Raises:
        FieldError: the buffers differ, or there is none.
        ShapeError: a share is out of range, or they don't sum to 1.
        DTypeError: an argument has another type.

    Example:
        >>> from obscodec import Field, RingBuffer
        >>> online, demos = (RingBuffer(100, {"reward": Field((), np.float32)}) for _ in range(2))
        >>> online.extend(reward=np.zeros(50))
        >>> demos.extend(reward=np.ones(20))
        >>> Mixture({online: 0.75, demos: 0.25}).sample(8, 0)["reward"]
        array([0., 0., 0., 0., 0., 0., 1., 1.], dtype=float32)
    """

    buffers: Fixed[tuple[RingBuffer, ...]] = Fixed(_INSTEAD)
    shares: Fixed[tuple[float, ...]] = Fixed(_INSTEAD)

    def __init__(self, shares: Mapping[RingBuffer, float] | Iterable[tuple[RingBuffer, float]]) -> None:
        try:
            pairs = [(buffer, share) for buffer, share in (shares.items() if isinstance(shares, Mapping) else shares)]
        except (TypeError, ValueError):
            raise DTypeError(f"shares are a mapping of buffers to numbers, or pairs, got {kind_of(shares)}") from None
        self.buffers = tuple(buffer for buffer, _ in pairs)
        check_alike(self.buffers, RingBuffer)
        given = [as_number("a share", share, 1) for _, share in pairs]
        if not isclose(sum(given), 1, abs_tol=1e-6):
            raise ShapeError(f"shares sum to 1, got {listed(given)}: divide each by {sum(given):g}, their sum")
        self.shares = tuple(share / sum(given) for share in given)

    @says_errors
    def sample(
        self, batch: int, rng: Rng = None, *, p: Priorities | None = None, return_indices: bool = False, **how: object
    ) -> Any:
        """Random steps of all buffers, those of the first one first.

        Each buffer gives its share of the batch. Where that is no whole number, it is rounded up or down at random,
        such that the share is right on average.

        Args:
            batch: how many steps.
            rng: a random generator, of numpy or PyTorch, or a seed; None for one that the system has seeded.
            p: of some buffers the probability of each step, or the priorities of the steps: ``{buffer: priorities}``.
            return_indices: whether to return where the steps are, too.
            **how: other arguments of ``RingBuffer.sample``.

        Returns:
            What ``RingBuffer.sample`` returns. With ``return_indices`` a pair, of that and of two arrays
            ``i64[batch]``: the positions of the buffers, and the indices of the steps in these.

        Raises:
            SlotError: a buffer is empty, or no step of it can be drawn.
            FieldError: ``p`` has a buffer that is not among these.
            SpecError: ``to`` is ``"encoded"``, for which there is no batch of several buffers.
            Exception: see ``RingBuffer.sample``.
        """
        return self._drawn("sample", batch, rng, p, return_indices, how)

    @says_errors
    def sequences(
        self,
        batch: int,
        length: int,
        rng: Rng = None,
        *,
        p: Priorities | None = None,
        return_indices: bool = False,
        **how: Any,
    ) -> Any:
        """Random sequences of all buffers: see :meth:`sample`, and ``RingBuffer.sequences`` for what ``how`` takes."""
        return self._drawn("sequences", batch, rng, p, return_indices, {**how, "length": length})

    def _drawn(
        self, method: str, batch: int, rng: Rng, p: Priorities | None, return_indices: bool, how: dict[str, Any]
    ) -> Any:
        rng, of_buffers = as_generator(rng), {} if p is None else p
        returns_indices, to = as_flag("return_indices", return_indices), how.pop("to", None)
        if isinstance(to, str) and to == "encoded":
            raise SpecError("a Mixture decodes the parts of a batch: leave out to='encoded', or sample its buffers")
        batches = batches_to(to, how.pop("convert", None))
        check_kind("p", of_buffers, Mapping, "a mapping from buffers to their priorities, such as {buffer: priorities}")
        if not {*of_buffers} <= {*self.buffers}:
            raise FieldError("p has a buffer that is not in this Mixture: make one with this buffer")
        for k, (buffer, share) in enumerate(zip(self.buffers, self.shares, strict=True)):
            if share and not len(buffer):
                raise SlotError(f"the buffer at position {k}, whose share is {share:g}, is empty: append steps to it")
        counts = divided(as_count("batch", batch, 0), self.shares, rng)
        drawn = [
            getattr(buffer, method)(n, rng=rng, p=of_buffers.get(buffer), return_indices=True, **how)
            for buffer, share, n in zip(self.buffers, self.shares, counts.tolist(), strict=True)
            if share
        ]
        parts, indices = zip(*drawn, strict=True)
        joined = batches.batch(in_one_batch(parts))
        where = np.repeat(np.arange(len(counts)), counts), np.concatenate(indices)
        return (joined, where) if returns_indices else joined


def divided(batch: int, shares: Sequence[float], rng: np.random.Generator) -> Ints:
    """``i64[n]``: how many steps each of some buffers gives, all together ``batch``; on average its share."""
    ends = np.round(batch * np.cumsum((0, *shares)), 9)  # 0.1 + 0.2 of 10 steps are 3
    return np.asarray(np.diff(np.floor(ends + rng.random())), np.int64)


def in_one_batch(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Batches of several buffers as one."""
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(arrays: list[Any]) -> Any:
    """Arrays of numpy or of a GPU library, one after the other."""
    first = arrays[0]
    if len(arrays) == 1:
        return first
    if len({array.shape[1:] for array in arrays}) > 1:  # lengths differ
        most = np.max([array.shape[1:] for array in arrays], axis=0)
        arrays = [np.pad(x, [(0, 0), *((0, n) for n in most - x.shape[1:])]) for x in arrays]
        first = arrays[0]
    if not isinstance(first, np.ndarray):
        return np.concatenate(arrays)
    return np.concatenate(arrays, out=_MEMORY.array(sum(map(len, arrays)), Layout(first.shape[1:], first.dtype)))
