"""Arrays that share stores: made, written, read and counted together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from obscodec.arrays import NewArray, PartArray, TensorArray
from obscodec.buffers.field import Field
from obscodec.buffers.stats import BufferStats
from obscodec.runtime import says_memory_error
from obscodec.segments import Ints
from obscodec.stores import PinnedStore, Store, new_batch, pinned

K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=Store)
Array = npt.NDArray[np.generic]


def shared_stores(fields: Mapping[K, Field], group: Callable[[K], Hashable]) -> dict[K, PinnedStore]:
    """New stores for those of some fields that are compressed.

    Args:
        fields: under any names.
        group: called with a name. Equal fields whose names are of one group share a store, in which a frame that they
            have in common is stored once.

    Raises:
        SpecError: a spec names no codec.
        DTypeError: a dtype can't be stored.

    Example:
        >>> image = Field((84, 84), "uint8")
        >>> names = {"obs": image, "next_obs": image, "reward": Field((), "float32")}
        >>> stores = shared_stores(names, group=lambda name: name.removeprefix("next_"))
        >>> list(stores), stores["obs"] is stores["next_obs"]
        (['obs', 'next_obs'], True)
    """
    made = {(group(name), field): field.new_store() for name, field in fields.items()}
    stores = {key: PinnedStore(store) for key, store in made.items() if store is not None}
    return {name: stores[group(name), field] for name, field in fields.items() if (group(name), field) in stores}


def by_store(stores: Mapping[K, S]) -> dict[S, list[K]]:
    """The names that each store has."""
    names: dict[S, list[K]] = {}
    for name, store in stores.items():
        names.setdefault(store, []).append(name)
    return names


def append_together(arrays: Mapping[K, Array | TensorArray], stores: Mapping[K, Store]) -> dict[K, NewArray]:
    """Store arrays ``[*batch, *shape]``, those for one store in the order of time; see ``Store.append_together``.

    Args:
        arrays: under any names. Compressed ones that share a store of their own are taken over; see ``Store.adopt``.
            For a store on a GPU they may be arrays of another library there; see ``Store.has_on_device``.
        stores: where each is stored.

    Returns:
        For each array the same tensors in its store, dropped with this unless they are moved to where they are kept.

    Raises:
        ShapeError: an array has another shape than its store takes.
        DTypeError: an array has another dtype.
        HeapFull: there is not enough room; nothing was stored.
    """
    stored: dict[K, NewArray] = {}
    for store, names in by_store({name: stores[name] for name in arrays}).items():
        given = [arrays[name] for name in names]
        ids = np.zeros((len(names), *given[0].shape[: given[0].ndim - len(store.layout.shape)]), np.int64)
        stored |= {name: NewArray(ids[k, ...], store) for k, name in enumerate(names)}
        _store_together(given, store, ids)  # in arrays that own them: an exception leaves no tensor to nobody
    return stored


def _store_together(arrays: Sequence[Array | TensorArray], store: Store, ids: Ints) -> None:
    compressed = [array for array in arrays if isinstance(array, TensorArray)]
    if len({(array.store, array.shape) for array in compressed}) == 1 and len(compressed) == len(arrays):
        other = compressed[0].store
        with pinned(other):
            store.adopt(other, np.stack([array.ids for array in compressed]), ids)
    else:
        store.append_together([array[...] for array in arrays], ids)


@says_memory_error
def read_together(
    arrays: Mapping[K, TensorArray | PartArray], new_array: Callable[[Store, int], Any] = new_batch
) -> dict[K, Any]:
    """Decode whole arrays, those of one store in one call, so that frames that they share are decoded once.

    Args:
        arrays: under any names; parts that are decoded already are copied.
        new_array: called with a store and a number of its tensors, gives an array ``[n, *shape]`` to decode into; see
            :class:`DeferredRead`.

    Returns:
        For each array ``[*batch, *shape]``, a view of what ``new_array`` gave.
    """
    decoded: dict[K, Any] = {name: array[...] for name, array in arrays.items() if isinstance(array, PartArray)}
    stores = {name: array.store for name, array in arrays.items() if isinstance(array, TensorArray)}
    for store, names in by_store(stores).items():
        ids = np.concatenate([arrays[name].ids for name in names], axis=None, dtype=np.int64)
        tensors = new_array(store, len(ids))
        store.read_into(ids, tensors)
        end = 0
        for name in names:
            begin, end = end, end + arrays[name].ids.size
            decoded[name] = tensors[begin:end].reshape(arrays[name].shape)
    return decoded


def stats_of(arrays: Mapping[str, TensorArray | int]) -> BufferStats:
    """What compressed arrays hold, and others of which the bytes are given.

    Example:
        >>> stats_of({"reward": 4000}).total_bytes
        4000
    """
    compressed = [array for array in arrays.values() if isinstance(array, TensorArray)]
    stored = {store: store.stats() for store in {array.store for array in compressed}}
    plain = sum(array for array in arrays.values() if isinstance(array, int))
    fields = {name: array if isinstance(array, int) else stored[array.store] for name, array in arrays.items()}
    ids = sum(array.ids.nbytes for array in compressed)
    total = plain + ids + sum(stats.total_bytes for stats in stored.values())
    return BufferStats(fields, plain + sum(array.nbytes for array in compressed), total)
