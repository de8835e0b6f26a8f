"""CompressedObservations: the observations of an episode in a buffer, as ids."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import tree
from obscodec import ShapeError
from obscodec.state import State
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.utils.spaces.space_utils import batch

from obscodec_rllib.rows import Row, is_as_rows
from obscodec_rllib.stores import OwnedIds, Stores


class CompressedObservations(InfiniteLookbackBuffer):
    """Takes the place of the ``observations`` of an episode: arrays of them are compressed, and decoded where read.

    Copied or pickled, it becomes an ``InfiniteLookbackBuffer`` of arrays.

    Args:
        stores: of the buffer.
        leaves: the arrays ``[n, *shape]``, or their ids, nested as the observations are.
        lookback: how many of them are from before the episode begins.
        space: the space of an observation, or None.
        sequence: which observations these are the next ones of; see ``Store.append``.

    Attributes:
        is_new: whether this is on its way into the buffer. Then ``get()`` and a copy are this object itself, which
            RLlib's ``add`` passes on.
    """

    def __init__(self, stores: Stores, leaves: Any, lookback: int, space: Any, sequence: int) -> None:
        self.lookback, self.finalized, self.space = lookback, True, space
        self.is_new = False
        self._stores = stores
        self._leaves = leaves
        self._sequence = sequence

    @classmethod
    def encoded(cls, stores: Stores, observations: InfiniteLookbackBuffer, sequence: int) -> Self:
        """The same observations, compressed; they must be one at least."""
        if isinstance(observations, CompressedObservations):
            observations = observations.plain()
        data = observations.data if observations.finalized else batch([*observations.data])
        leaves = _appended(stores, data, sequence)
        return cls(stores, leaves, observations.lookback, observations.space, sequence)

    @classmethod
    def restored(cls, stores: Stores, saved: State, space: Any) -> Self:
        """Those of a :meth:`get_state` of the whole buffer."""
        numbers = saved["stores"]
        leaves = [
            np.array(leaf) if number is None else stores.owned(number, leaf)
            for leaf, number in zip(tree.flatten(saved["ids"]), numbers, strict=True)
        ]
        return cls(stores, tree.unflatten_as(saved["ids"], leaves), saved["lookback"], space, 0)

    @property
    def data(self) -> Any:  # type: ignore[override]
        """The arrays ``[n, *shape]``, which decode what is read, or placeholders for them; nested."""
        name = "rows" if is_as_rows() else "array"
        return _mapped(lambda leaf: getattr(leaf, name) if isinstance(leaf, OwnedIds) else leaf, self._leaves)

    @property
    def owned(self) -> dict[str, OwnedIds]:
        """The ids of compressed arrays, by name."""
        return {name: leaf for name, leaf in _named(self._leaves) if isinstance(leaf, OwnedIds)}

    @property
    def plain_nbytes(self) -> int:
        """Bytes of arrays that are not compressed."""
        return sum(leaf.nbytes for _, leaf in _named(self._leaves) if isinstance(leaf, np.ndarray))

    def get(self, indices: Any = None, **options: Any) -> Any:
        """What RLlib's class returns: an integer gives an observation, others a new array ``[n, *shape]``."""
        if indices is None and self.is_new:
            return self
        leaves = self._leaves
        if type(indices) is int and type(leaves) is OwnedIds and is_as_rows() and not any(options.values()):
            return Row(leaves.store, int(leaves.ids[self.lookback + indices if indices >= 0 else indices]))
        return super().get(indices, **options)

    def append(self, item: Any) -> None:
        """Add an observation."""
        self.extend(tree.map_structure(lambda leaf: np.asarray(leaf)[np.newaxis], item))

    def extend(self, items: Any) -> None:
        """Add observations: arrays, a list of observations, or new ones, whose ids move here."""
        if not isinstance(items, CompressedObservations):
            arrays = batch(items) if isinstance(items, list) else items
            items = CompressedObservations(
                self._stores, _appended(self._stores, arrays, self._sequence), 0, self.space, self._sequence
            )
        self.check_alike(items)
        begin = items.lookback
        joined: list[Any] = []
        for mine, new in zip(tree.flatten(self._leaves), tree.flatten(items._leaves), strict=True):
            if isinstance(mine, OwnedIds):
                mine.take_over(new, begin)
                joined.append(mine)
            else:
                joined.append(np.concatenate([mine, new[begin:]], axis=0))
        self._leaves = tree.unflatten_as(self._leaves, joined)

    def check_alike(self, other: CompressedObservations) -> None:
        """ShapeError unless the observations of both have arrays of the same names, shapes and dtypes."""
        mine, others = (
            {
                name: (leaf.array.shape[1:], leaf.array.dtype)
                if isinstance(leaf, OwnedIds)
                else (leaf.shape[1:], leaf.dtype)
                for name, leaf in _named(of._leaves)
            }
            for of in (self, other)
        )
        if mine != others:
            raise ShapeError(f"an episode has observations {mine}, and those of its next chunk are {others}")

    def pop(self, index: int = -1) -> None:
        """Remove an observation."""
        for leaf in self.owned.values():
            leaf.remove(index)
        self._leaves = _mapped(
            lambda leaf: leaf if isinstance(leaf, OwnedIds) else np.delete(leaf, index, axis=0), self._leaves
        )

    def placeholder(self) -> Any:
        """A plain array with as many items as these are."""
        return np.zeros(self.lookback + len(self))

    def plain(self) -> InfiniteLookbackBuffer:
        """A copy of RLlib's class, decoded."""
        return InfiniteLookbackBuffer(self._arrays(), self.lookback, self.space)

    def get_state(self) -> dict[str, Any]:
        """That of RLlib's class, decoded; among the state of a whole buffer, ids and the numbers of their stores."""
        if not is_as_rows():
            state: dict[str, Any] = self.plain().get_state()
            return state
        state = InfiniteLookbackBuffer([], self.lookback, self.space).get_state()
        del state["data"]  # so that RLlib's classes refuse this state
        ids = _mapped(lambda leaf: np.array(leaf.ids if isinstance(leaf, OwnedIds) else leaf), self._leaves)
        numbers = [self._stores.number(leaf) for leaf in tree.flatten(self._leaves)]
        return {**state, "finalized": True, "lookback": self.lookback, "ids": ids, "stores": numbers}

    def _arrays(self) -> Any:
        return _mapped(lambda leaf: leaf.array[:] if isinstance(leaf, OwnedIds) else leaf.copy(), self._leaves)

    def __eq__(self, other: object) -> bool:
        other = other.plain() if isinstance(other, CompressedObservations) else other
        return bool(self.plain() == other)

    __hash__ = None  # type: ignore[assignment]  # as RLlib's class

    def __deepcopy__(self, memo: dict[int, Any]) -> InfiniteLookbackBuffer:
        return self if self.is_new else self.plain()

    def __reduce__(self) -> tuple[Any, ...]:
        return InfiniteLookbackBuffer, (self._arrays(), self.lookback, self.space)


def _appended(stores: Stores, arrays: Any, sequence: int) -> Any:
    leaves = [stores.append(name, np.asarray(leaf), sequence) for name, leaf in _named(arrays)]
    return tree.unflatten_as(arrays, leaves)


def _named(nested: Any) -> list[tuple[str, Any]]:
    """The leaves, by names such as ``"observations.camera.0"``."""
    if isinstance(nested, (np.ndarray, OwnedIds)):  # most are
        return [("observations", nested)]
    return [(".".join(["observations", *map(str, path)]), leaf) for path, leaf in tree.flatten_with_path(nested)]


def _mapped(function: Any, nested: Any) -> Any:
    return function(nested) if isinstance(nested, OwnedIds) else tree.map_structure(function, nested)
