"""Which leaves of a storage are compressed, and in which stores."""

from collections.abc import Hashable, Mapping
from math import prod
from typing import Any

import torch
from obscodec import Layout
from obscodec.buffers import MIN_COMPRESSED_NBYTES, BufferOptions
from obscodec.stores import Store

from obscodec_torchrl.leaves import Key, leaves, n_batch_axes


def new_stores(
    data: Any, groups: Mapping[Key, Hashable], options: BufferOptions[Key], ndim: int
) -> tuple[dict[Key, Store], dict[Key, torch.Tensor], float]:
    """Stores for the leaves that are compressed.

    Args:
        data: a row of items.
        groups: the leaves that may be compressed, and the group of each. Those of one group share a store if their
            batches and layouts are alike, so that a frame which occurs in several of them is stored once.
        options: of the storage.
        ndim: how many axes of the storage count items.

    Returns:
        The store of each compressed leaf; ids of zeros for a row of it; how many bytes an item takes in ids and in
        leaves that are not compressed.

    Raises:
        SpecError: a spec names no codec.
        DTypeError: a dtype can't be stored.
    """
    given = leaves(data)
    batches = {path: leaf.shape[: n_batch_axes(data, path, ndim - 1)] for path, leaf in given.items()}
    layouts = {
        path: Layout(tuple(leaf.shape[len(batches[path]) :]), str(leaf.dtype).removeprefix("torch."))
        for path, leaf in given.items()
    }
    fields = options.fields_of(layouts, min_nbytes=MIN_COMPRESSED_NBYTES)
    keys = {path: (batches[path], group, fields[path]) for path, group in groups.items()}
    made = {key: key[-1].new_store() for key in keys.values()}
    stores = {path: store for path, key in keys.items() if (store := made[key]) is not None}
    ids = {path: torch.zeros(batches[path], dtype=torch.int32) for path in stores}
    n_items = prod(next(iter(given.values())).shape[: ndim - 1]) if given else 1
    return stores, ids, sum(ids.get(path, leaf).nbytes for path, leaf in given.items()) / n_items
