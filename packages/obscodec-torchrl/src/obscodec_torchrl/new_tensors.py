"""NewTensors: tensors for several arrays of one store; frames that the arrays have in common are stored once."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from obscodec import TensorArray
from obscodec.arrays import Index, PartArray, places_together
from obscodec.layout import same_values
from obscodec.runtime import assign

K = TypeVar("K", bound=Hashable)
Array = npt.NDArray[np.generic]
_MAX_ENVS = 64
_N_CHECKS = 7  # steps that are compared for each number of environments; an episode may end at some of them
_TOGETHER_NBYTES = 1 << 21  # of a call of the store: 32 transitions of Atari, which stay in the processor's cache


def append_together(
    given: Mapping[K, Array | TensorArray | PartArray], arrays: Mapping[K, TensorArray], index: Index
) -> list[NewTensors]:
    """Store tensors for arrays of the same names: a :class:`NewTensors` for each store; nothing if that raises."""
    names: dict[object, list[K]] = {}
    for name in given:
        names.setdefault(arrays[name].store, []).append(name)
    new: list[NewTensors] = []
    try:
        for of in names.values():
            new.append(NewTensors([arrays[name] for name in of], [given[name] for name in of], index))
        return new
    except BaseException:
        for tensors in new:
            tensors.close()
        raise


def interleaved_envs(observations: Array | TensorArray, following: Array | TensorArray, n_each: int = 1) -> int:
    """After how many steps the first environment comes again, if environments take turns; 1 if steps show no turns.

    If ``n`` environments take turns, ``observations[i + n]`` equals ``following[i]``, the next observation of a step,
    except where an episode ends. The result is the smallest ``n`` for which this holds at most of the steps that are
    compared. Of ``n_each`` rows that a step has, only the first one is.

    Example:
        >>> game = np.arange(40).reshape(20, 2)  # two environments, step by step
        >>> interleaved_envs(game.reshape(-1), game.reshape(-1) + 2)
        2
    """
    n_steps = len(observations) // n_each
    for n_envs in range(1, min(n_steps // 2, _MAX_ENVS) + 1):
        n_different = 0
        for i in np.linspace(0, n_steps - n_envs - 1, _N_CHECKS).astype(int).tolist():
            n_different += not same_values(observations[(i + n_envs) * n_each], following[i * n_each])
            if 2 * n_different > _N_CHECKS:
                break
        else:
            return n_envs
    return 1


class NewTensors:
    """Tensors for several arrays of one store. They are dropped with this object unless they are put into the arrays.

    They are stored in the order of time: the first tensor of each array, then the second of each. So the next
    observation of a step comes right before the observation of the following step, which is equal to it.

    The tensors that they replace are dropped with this object: a thread that has read old ids can still decode them
    until then.

    Args:
        arrays: of one store, which nobody else may change until then.
        given: ``[*batch, *shape]``, one for each of the arrays, all of one shape; nobody changes them meanwhile. The
            first axis of ``batch`` is time, along which environments may take turns; see :func:`interleaved_envs`. Each
            place of the other axes, such as an environment or one of its agents, is a sequence of its own. Compressed
            arrays are decoded in parts.
        index: which places of each array they will take, of the axes before the items; as many as there are tensors.
            If it names a place several times, the last tensor stays.

    Raises:
        ShapeError, DTypeError, IndexError or HeapFull: an array or the index does not fit, or there is no room.
    """

    def __init__(
        self, arrays: Sequence[TensorArray], given: Sequence[Array | TensorArray | PartArray], index: Index
    ) -> None:
        self._store = arrays[0].store
        batch = given[0].shape[: len(given[0].shape) - len(self._store.layout.shape)]
        self._places, stay = places_together(arrays, index)
        self._old = [np.array(ids[at]).reshape(-1) for ids, at in self._places]
        self._replaced = np.zeros((len(arrays), len(self._old[0])), np.int64)
        self._ids = np.zeros((len(given), *batch), np.int64)
        self._guard = self._store.guard(self._ids.reshape(-1))
        try:
            self._encode(given)
            if stay is not None:
                flat = self._ids.reshape(-1)
                flat[:] = flat[np.argsort(~np.tile(stay, len(arrays)), kind="stable")]  # first the ids that stay
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop what this object keeps, as its end does: after an exception, whose traceback may keep the object."""
        self._guard.close()

    def put(self) -> None:
        """Put the tensors into their places."""
        self._store.put_ids(self._places, self._ids.reshape(-1)[: self._replaced.size], self._replaced.reshape(-1))

    def undo(self) -> None:
        """After :meth:`put`, or while it was interrupted: put the tensors back that were replaced."""
        with self._store.changing:
            self._store.settle()
            for place, old, replaced in zip(self._places, self._old, self._replaced, strict=True):
                if not same_values(np.reshape(place.ids[place.index], -1), old):
                    self._store.put_ids([place], replaced)

    def _encode(self, given: Sequence[Array | TensorArray | PartArray]) -> None:
        batch, n = self._ids.shape[1:], math.prod(self._ids.shape[1:])
        arrays = [array[...] if isinstance(array, PartArray) else array for array in given]
        rows = [array.reshape(n, *array.shape[len(batch) :]) for array in arrays]
        n_each = max(1, math.prod(batch[1:]))  # tensors of each step
        n_envs = interleaved_envs(rows[0], rows[-1], n_each) if len(rows) > 1 else 1
        sequences, ids = np.resize(np.arange(n_envs * n_each), n), self._ids.reshape(len(rows), n)
        n_together = max(1, _TOGETHER_NBYTES // (len(rows) * self._store.layout.nbytes))
        for begin, end in pairwise([*range(0, n, n_together), n]):
            taken = np.zeros((end - begin) * len(rows), np.int64)
            tensors = rows[0][begin:end] if len(rows) == 1 else _side_by_side(rows, slice(begin, end))
            try:
                each, of_each = np.arange(len(taken)), sequences[begin:end].repeat(len(rows))
                self._store.take_in(tensors, each, of_each, taken)
                dealt = taken.reshape(-1, len(rows)).T
                assign((ids, (slice(None), slice(begin, end)), dealt), (taken, ..., np.zeros_like(taken)))
            except BaseException:
                with self._store.changing:
                    self._store.settle(taken)
                raise


def _side_by_side(arrays: Sequence[Array | TensorArray], rows: slice) -> Array:
    """``[n * n_arrays, *shape]``: some rows of all arrays in turn, decoded in one call if the arrays share a store."""
    together = [x for x in arrays if isinstance(x, TensorArray) and x.store is getattr(arrays[0], "store", None)]
    if len(together) < len(arrays):
        return np.stack([array[rows] for array in arrays], axis=1).reshape(-1, *arrays[0].shape[1:])
    with together[0].store.guard():
        return together[0].store.read(np.stack([array.ids[rows] for array in together], axis=1).reshape(-1))
