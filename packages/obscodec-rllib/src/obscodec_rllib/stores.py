"""The stores of a buffer, and who owns the ids in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from obscodec import CorruptStream, Layout, SnapshotError, TensorArray
from obscodec.arrays import BorrowedArray
from obscodec.runtime import says_memory_error
from obscodec.segments import Ints, Segments
from obscodec.snapshots import VERSION
from obscodec.state import State, part_of
from obscodec.stores import AutoStore, Store, store_of
from obscodec.trees import Tree, flatten, unflatten

from obscodec_rllib.rows import Rows

Leaf = tuple[str, Layout]  # where an array is in an observation, and what it is


class OwnedIds:
    """Ids ``i64[n]`` of an array of each observation of an episode, with a reference to each, which goes with it."""

    __slots__ = ("__weakref__", "_owned", "store")

    def __init__(self, store: Store, ids: Ints) -> None:
        self.store = store
        self._owned = store.own(self, ids)

    @property
    def ids(self) -> Ints:
        """The ids."""
        return self._owned.ids

    @property
    def rows(self) -> Rows:
        """Placeholders for the tensors."""
        return Rows(self.store, self.ids)

    @property
    def array(self) -> TensorArray:
        """The tensors, as an array that decodes what is read, and encodes what is assigned."""
        return BorrowedArray(self.ids, self.store, self)

    def take_over(self, other: OwnedIds, begin: int) -> None:
        """Move the ids of another owner, from ``begin`` on, behind these."""
        ids, left = np.concatenate([self.ids, other.ids[begin:]]), other.ids[:begin]
        other._owned.ids = left  # first: an interrupt here loses references, and gives none back twice
        self._owned.ids = ids

    def remove(self, index: int) -> None:
        """Take the id at an index out, and give it back."""
        removed, ids = np.array([self.ids[index]]), np.delete(self.ids, index)
        self._owned.ids = ids
        self.store.release(removed)


class Stores:
    """A store for each array of an observation that is worth it, by its place in the observation and its layout.

    Args:
        codec: of all stores, see ``obscodec.Field``.
        min_nbytes: smaller arrays, and those that no codec takes, are not compressed.
    """

    def __init__(self, codec: str, min_nbytes: int) -> None:
        self.codec = codec
        self.min_nbytes = min_nbytes
        self.stores: dict[Leaf, Store] = {}

    @says_memory_error
    def append(self, name: str, tensors: npt.NDArray[Any], sequence: int) -> OwnedIds | npt.NDArray[Any]:
        """Store ``[n, *shape]``, the arrays of this name in the next observations of a sequence.

        Returns a copy if they are not worth a store.
        """
        dtype = tensors.dtype
        if dtype.kind not in "biufc" or dtype != dtype.newbyteorder("<"):
            return tensors.copy()
        layout = Layout(tensors.shape[1:], dtype)
        if layout.nbytes < self.min_nbytes:
            return tensors.copy()
        store = self.stores.get((name, layout))
        if store is None:
            store = self.stores.setdefault((name, layout), AutoStore(layout, codec=self.codec))
        return OwnedIds(store, store.append(tensors, sequence))

    def owned(self, number: int, ids: Ints) -> OwnedIds:
        """Saved ids of the store with this number, whose references the result takes over."""
        return OwnedIds([*self.stores.values()][number], np.array(ids, np.int64))

    def number(self, leaf: OwnedIds | npt.NDArray[Any]) -> int | None:
        """The number of the store of an array; None if it is not compressed."""
        return [*self.stores.values()].index(leaf.store) if isinstance(leaf, OwnedIds) else None

    def decide(self) -> None:
        """Wait until each store has chosen its codec, and all is stored with it."""
        for store in self.stores.values():
            store.decide()

    def state(self) -> list[dict[str, Any]]:
        """Each store in numbers, texts, arrays and bytes only, in the format of a snapshot."""
        return [_saved(name, store) for (name, _), store in self.stores.items()]

    @classmethod
    def restored(cls, codec: str, min_nbytes: int, saved: Iterable[State]) -> Stores:
        """Stores with this :meth:`state`, no id of which has an owner yet.

        Raises:
            SnapshotError: a newer version wrote it.
            CorruptStream: no stores have such a state.
        """
        made = cls(codec, min_nbytes)
        for of in saved:
            name, store = _store_of(of)
            made.stores[name, store.layout] = store
        return made


def _saved(name: str, store: Store) -> dict[str, Any]:
    parts = flatten({"kind": type(store).__name__, "arguments": store.arguments(), "state": store.state()})
    streams = {path: streams.state() for path, streams in parts.streams.items()}
    return {"version": VERSION, "name": name, "values": parts.values, "arrays": parts.arrays, "streams": streams}


def _store_of(saved: State) -> tuple[str, Store]:
    if part_of(saved, "version", int) > VERSION:
        raise SnapshotError(
            f"the state of the buffer has version {saved['version']}, this obscodec reads up to {VERSION}: update it"
        )
    streams = {path: Segments.from_state(of) for path, of in part_of(saved, "streams", dict).items()}
    parts: State = unflatten(Tree(saved["values"], part_of(saved, "arrays", dict), streams, {}))
    store = store_of(part_of(parts, "kind", str), part_of(parts, "arguments", dict))
    if store is None:
        raise CorruptStream(f"the state of the buffer has a store of no known kind: {parts['kind']!r}")
    store.restore(part_of(parts, "state", dict))
    return part_of(saved, "name", str), store
