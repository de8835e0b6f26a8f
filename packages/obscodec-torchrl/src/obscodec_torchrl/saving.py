"""All that a CompressedStorage holds as bytes, to be saved and restored."""

from __future__ import annotations

from typing import NamedTuple

import obscodec
import torch
from tensordict import TensorDict, is_tensor_collection
from torchrl.data import LazyTensorStorage

from obscodec_torchrl.arrays import pack_together, read_note, unpack_together
from obscodec_torchrl.compressed_tensor import as_tensor, stored_array
from obscodec_torchrl.leaves import leaves, with_leaves


class Contents(NamedTuple):
    """All that a storage holds.

    Attributes:
        packed: the leaves, see :func:`pack_together`, with a note of these names: ``paths``, of the leaves; ``length``,
            how many items there are; ``is_tree``, whether something else than tensordicts is stored; ``is_full``,
            whether there was no more room; ``last_row``, the one that was written last, where episodes that go on break
            off.
        rest: ``[n, ...]``, what is in no packed leaf; there may be room for more than ``length`` items.
    """

    packed: bytes | memoryview
    rest: TensorDict

    def as_tensordict(self) -> TensorDict:
        """The same, of tensors only where ``rest`` is."""
        return TensorDict(rest=self.rest, packed=torch.frombuffer(bytearray(self.packed), dtype=torch.uint8))

    @staticmethod
    def of_tensordict(saved: TensorDict, length: int | None, ndim: int) -> Contents:
        """What :meth:`as_tensordict` gave, or the tensordict that a storage of TorchRL held.

        Args:
            saved: one of these.
            length: how many items TorchRL's has, which may have room for more.
            ndim: how many axes of it are counted.
        """
        if saved.keys() == {"packed", "rest"}:
            return Contents(saved["packed"].numpy().data, saved["rest"])
        is_full = saved.batch_size[:ndim].numel() == length
        return Contents(pack_together([], {"paths": [], "length": length, "is_full": is_full}), saved)


def contents_of(storage: LazyTensorStorage) -> Contents:
    """All that ``storage`` holds, for :func:`restore`.

    Raises:
        RuntimeError: nothing was ever written to it.
        DTypeError: torch alone has the dtype of a leaf.
    """
    with storage.lock:
        written, is_tree = storage[:], not is_tensor_collection(storage._storage)
        packed = leaves(written)
        note = {
            "paths": [*packed],
            "length": len(storage),
            "is_tree": is_tree,
            "is_full": storage._is_full,
            "last_row": storage._last_cursor_index,
        }
        message = pack_together([*map(stored_array, packed.values())], note)
        return Contents(message, TensorDict() if is_tree else written.exclude(*packed))


def restore(storage: LazyTensorStorage, contents: Contents, *, new_tensor: bool) -> None:
    """Put what was saved into ``storage``. What it held is dropped when all of them are in memory.

    Args:
        storage: has room for them.
        contents: the items.
        new_tensor: whether a single tensor may be put into a storage that nothing was ever written to. In TorchRL that
            of a state dict may, that of a checkpoint may not.

    Raises:
        RuntimeError: nothing was ever written to it, and what is to be loaded are no tensordicts.
        ShapeError: there are more items than it has room for, or fewer in a full storage, or they have other shapes.
        FieldError: they have other keys than those that it holds.
        DTypeError: a leaf that is compressed has another dtype.
        CorruptStream: packed leaves are damaged.
        HeapFull: there is not enough room below ``max_bytes``.
    """
    packed, rest, own = contents.packed, contents.rest.to("cpu"), storage._storage
    about, per_row = read_note(packed), rest.batch_size[1 : storage.ndim].numel()
    n_rows, room = -(-about["length"] // per_row), -(-storage.max_size // per_row)
    if n_rows > room or (about["is_full"] and n_rows < room):
        found = f"there are {about['length']}" + " of a full storage, which need one of its size" * about["is_full"]
        raise obscodec.ShapeError(f"the storage has room for {room * per_row} items, {found}")
    if (is_tree := about.get("is_tree")) and own is None and not (new_tensor and about["paths"] == [[]]):
        raise RuntimeError("Cannot fill a non-initialized pytree-based TensorStorage: write an item first.")
    if storage.device is None:  # as the tensordicts were that were written here
        rest.clear_device_()
    like = own if is_tree else own.exclude(*leaves(own)) if new_tensor and storage.initialized else rest
    fresh = storage.empty_copy()
    for rows, arrays in unpack_together(packed) if about["paths"] else [(slice(0, n_rows), [])][:n_rows]:
        items = {tuple(path): as_tensor(array) for path, array in zip(about["paths"], arrays, strict=True)}
        items |= {} if is_tree else leaves(rest[rows])
        fresh.set(torch.arange(rows.start, rows.stop), with_leaves(like if is_tree else like[rows], items))
    with storage.lock:
        if storage.initialized and fresh.initialized:
            storage._check(slice(1), leaves(fresh[:1]), leaves(storage._storage))
        replace(storage, fresh, about["length"], about.get("last_row"))


def replace(storage: LazyTensorStorage, fresh: LazyTensorStorage, length: int, last_row: int | None) -> None:
    """Have ``storage`` hold what ``fresh`` holds, which is of no use after that, at once for other threads.

    Args:
        storage: any.
        fresh: of the same size, with items such as those of ``storage``.
        length: how many items there are.
        last_row: the one that was written last, if that is known.
    """
    with storage.lock:
        for leaf in fresh.compressed().values():
            leaf.array.store.changing = storage.lock
        storage._storage, storage.initialized, storage.max_size = fresh._storage, fresh.initialized, fresh.max_size
        storage._len, storage.device = length, fresh.device
        storage._set_last_cursor(last_row)
        storage._bump_mutation_revision()
