"""Stores that several arrays share, and how much is in them."""

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from obscodec import Field, TensorArray
from obscodec.buffers import BufferStats
from obscodec.stores import Store

K = TypeVar("K", bound=Hashable)


def shared_stores(fields: Mapping[K, Field], group: Callable[[K], Hashable]) -> dict[K, Store]:
    """A store for each field that is compressed.

    Args:
        fields: under any names.
        group: gives the group of a name. Equal fields of one group share a store, so that a frame which occurs in
            several of them is stored once.

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
    stores = {name: made[group(name), field] for name, field in fields.items()}
    return {name: store for name, store in stores.items() if store is not None}


def stats_of(arrays: Mapping[str, TensorArray | int]) -> BufferStats:
    """The statistics of a buffer: of each field, its compressed array or its number of bytes.

    Example:
        >>> stats_of({"reward": 4000}).total_bytes
        4000
    """
    compressed = [array for array in arrays.values() if isinstance(array, TensorArray)]
    stored = {store: store.stats() for store in {array.store for array in compressed}}
    plain = sum(array for array in arrays.values() if isinstance(array, int))
    fields = {name: array if isinstance(array, int) else stored[array.store] for name, array in arrays.items()}
    return BufferStats(
        fields,
        id_bytes=sum(array.ids.nbytes for array in compressed),
        waiting_bytes=0,
        other_bytes=0,
        raw_bytes=plain + sum(array.nbytes for array in compressed),
    )
