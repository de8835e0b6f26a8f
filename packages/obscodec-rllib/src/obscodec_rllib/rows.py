"""Rows: placeholders for observations, which RLlib's code passes on, and which are decoded together at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tree
from obscodec.segments import Ints
from obscodec.stores import Store, new_batch

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


class _Place(NamedTuple):
    store: Store
    begin: int
    n: int | None  # None for one observation without an axis of rows


def decoded(data: Any) -> Any:
    """``data``, nested lists, tuples and dictionaries, with arrays in the places of rows.

    All rows of a store are decoded with one call; their arrays are views of one new array.
    """
    flat = tree.flatten(data)
    parts: dict[Store, list[Ints]] = {}
    sizes: dict[Store, int] = {}
    places: list[_Place | None] = []
    for leaf in flat:
        if not isinstance(leaf, (Row, Rows)):
            places.append(None)
            continue
        is_one = isinstance(leaf, Row)
        ids = np.array([leaf.id]) if isinstance(leaf, Row) else leaf.ids
        begin = sizes.get(leaf.store, 0)
        parts.setdefault(leaf.store, []).append(ids)
        sizes[leaf.store] = begin + len(ids)
        places.append(_Place(leaf.store, begin, None if is_one else len(ids)))
    arrays = {store: _read(store, np.concatenate(of, dtype=np.int64)) for store, of in parts.items()}
    return tree.unflatten_as(
        data, [leaf if at is None else _part(arrays[at.store], at) for leaf, at in zip(flat, places, strict=True)]
    )


def decoded_array(rows: npt.NDArray[np.object_]) -> npt.NDArray[np.generic]:
    """The array ``[*rows.shape, *shape]`` of an array of :class:`Row` of one store."""
    flat = rows.reshape(-1)
    store: Store = flat[0].store
    array = _read(store, np.array([row.id for row in flat], np.int64))
    return array.reshape(rows.shape + store.layout.shape)


def _read(store: Store, ids: Ints) -> npt.NDArray[np.generic]:
    array: npt.NDArray[np.generic] = new_batch(store, len(ids))
    store.read_into(ids, array)
    return array


def _part(array: npt.NDArray[np.generic], at: _Place) -> Any:
    return array[at.begin] if at.n is None else array[at.begin : at.begin + at.n]
