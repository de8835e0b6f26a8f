"""Rows: placeholders for observations, which RLlib's code passes on, and which are decoded together at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt
import tree
from obscodec.arrays import DeferredRead, Selection
from obscodec.segments import Ints
from obscodec.stores import Guard, Store

_AS_ROWS: ContextVar[bool] = ContextVar("_AS_ROWS", default=False)


class Row:
    """Stands for an observation ``[*shape]``."""

    __slots__ = ("id", "store")

    def __init__(self, store: Store, id_: int) -> None:
        self.store = store
        self.id = id_


class Rows:
    """Stands for observations ``[n, *shape]``; an integer as index gives a :class:`Row`, a slice gives rows."""

    __slots__ = ("ids", "store")

    def __init__(self, store: Store, ids: Ints) -> None:
        self.store = store
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Any) -> Row | Rows:
        if isinstance(index, slice):
            return Rows(self.store, self.ids[index])
        return Row(self.store, int(self.ids[index]))


@contextmanager
def as_rows() -> Iterator[None]:
    """In this context, compressed observations are read as :class:`Row` and :class:`Rows`."""
    token = _AS_ROWS.set(True)
    try:
        yield
    finally:
        _AS_ROWS.reset(token)


def is_as_rows() -> bool:
    """Whether this thread is in the context of :func:`as_rows`."""
    return _AS_ROWS.get()


def decoded(data: Any) -> Any:
    """``data``, nested lists, tuples and dictionaries, with arrays in the places of rows.

    All rows of a store are decoded with one call; their arrays are views of one new array.
    """
    guards: dict[Store, Guard] = {}

    def selection(leaf: Any) -> Any:
        if not isinstance(leaf, (Row, Rows)):
            return leaf
        guard = guards.get(leaf.store) or guards.setdefault(leaf.store, leaf.store.guard())
        return Selection(leaf.store, np.array(leaf.id if isinstance(leaf, Row) else leaf.ids), guard)

    return DeferredRead(tree.map_structure(selection, data)).result()


def decoded_array(rows: npt.NDArray[np.object_]) -> npt.NDArray[np.generic]:
    """The array ``[*rows.shape, *shape]`` of an array of :class:`Row` of one store."""
    flat: list[Row] = rows.reshape(-1).tolist()
    ids = np.array([row.id for row in flat], np.int64).reshape(rows.shape)
    array: npt.NDArray[np.generic] = decoded(Rows(flat[0].store, ids))
    return array
