"""Episodes in a storage that end where no item says so."""

from typing import Any

import numpy as np
import torch
from obscodec.segments import Ints
from torchrl.data import LazyTensorStorage, RoundRobinWriter

from obscodec_torchrl.leaves import leaves


def end_episodes(storage: LazyTensorStorage, row: int, columns: Ints) -> None:
    """Mark items as the last ones of truncated episodes, for TorchRL's samplers of slices.

    Args:
        storage: the storage, whose lock is held.
        row: the row of the items.
        columns: ``i64[n]``, their places along the other axes that count items, as if these were one.
    """
    if not len(columns):
        return
    at: Any = row
    if storage.ndim > 1:
        at = row, *map(torch.from_numpy, np.unravel_index(columns, storage._total_shape[1:]))
    for path, leaf in leaves(storage._storage).items():
        if path[:1] == ("next",) and path[-1] in ("done", "truncated") and leaf.dtype == torch.bool:
            leaf[at] = True
    storage._bump_mutation_revision()


def end_loaded_episodes(storage: LazyTensorStorage, cursor: Any) -> None:
    """End the episodes that were running when a storage was saved, before the first write after it was loaded.

    Args:
        storage: the storage, whose lock is held.
        cursor: the rows of the first write. A checkpoint of TorchRL does not tell which row was written last: the row
            before these.
    """
    last, n_rows = storage._last_cursor_index, storage._len_along_dim0
    in_time = all(isinstance(buffer._writer, RoundRobinWriter) for buffer in storage.buffers_at_work())
    if n_rows and in_time:
        if last is None:
            last = (int(torch.as_tensor(cursor).reshape(-1)[0]) - 1) % n_rows
        end_episodes(storage, min(last, n_rows - 1), np.arange(storage.n_columns))
