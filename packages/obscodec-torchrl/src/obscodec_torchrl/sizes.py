"""What the items of a storage take."""

from obscodec.buffers import Memory
from obscodec.state import State
from obscodec.stats import BufferStats
from torchrl.data import LazyTensorStorage

from obscodec_torchrl.compressed_tensor import CompressedTensor
from obscodec_torchrl.leaves import leaves


def stats_of(storage: LazyTensorStorage) -> BufferStats:
    """Statistics of the storage and of each leaf; see ``obscodec.stats.BufferStats``."""
    rows = {".".join(path): leaf[: storage._len_along_dim0] for path, leaf in leaves(storage._storage).items()}
    arrays = {name: leaf.array for name, leaf in rows.items() if isinstance(leaf, CompressedTensor)}
    stored = {store: store.stats() for store in storage.stores()}
    stats = BufferStats(
        {name: stored[arrays[name].store] if name in arrays else leaf.nbytes for name, leaf in rows.items()},
        id_bytes=sum(array.ids.nbytes for array in arrays.values()),
        waiting_bytes=0,
        other_bytes=0,
        raw_bytes=sum(leaf.nbytes for leaf in rows.values()),
    )
    memory: Memory = storage._memory
    return memory.stats(stats, len(storage), storage.memory_bytes())


def manifest_of(storage: LazyTensorStorage) -> State:
    """See ``obscodec.snapshots.Saved``."""
    layouts = {
        ".".join(path): f"{str(leaf.dtype).removeprefix('torch.')}{[*leaf.shape[storage.ndim :]]}"
        for path, leaf in leaves(storage._storage).items()
    }
    return stats_of(storage).manifest(layouts, len(storage), None)


def memory_bytes_of(storage: LazyTensorStorage) -> int:
    """About the memory of all items, known at once."""
    of_rows, n_rows = 0.0, int(storage._len_along_dim0 or 0)
    for leaf in leaves(storage._storage).values():
        array = leaf.array.ids if isinstance(leaf, CompressedTensor) else leaf
        of_rows += array.nbytes / len(array)
    of_stores: int = sum(store.memory_bytes for store in storage.stores())
    return of_stores + int(of_rows * n_rows)
