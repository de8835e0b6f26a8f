"""The contents of a CompressedStorage as bytes, to be saved and restored."""

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
    """All items of a storage.

    Attributes:
        packed: the leaves, see :func:`pack_together`, with a note: ``paths`` of the leaves; ``length``, how many items
            there are; ``is_tree``, whether they are something else than tensordicts; ``is_full``, whether the storage
            was full; ``last_row``, the row that was written last, where an unfinished episode breaks off.
        rest: ``[n, ...]``, the tensordict without the packed leaves, with ``length`` rows or more.
    """

    packed: bytes | memoryview
    rest: TensorDict

    def as_tensordict(self) -> TensorDict:
        """The contents as a tensordict."""
        return TensorDict(rest=self.rest, packed=torch.frombuffer(bytearray(self.packed), dtype=torch.uint8))

    @staticmethod
    def of_tensordict(saved: TensorDict, length: int, ndim: int) -> Contents:
        """The contents of a tensordict from :meth:`as_tensordict`, or of one that a storage of TorchRL saved.

        Args:
            saved: the tensordict.
            length: how many items TorchRL's storage had; its tensordict may have more rows.
            ndim: how many axes of a tensordict of TorchRL count items.
        """
        if saved.keys() == {"packed", "rest"}:
            return Contents(saved["packed"].numpy().data, saved["rest"])
        is_full = saved.batch_size[:ndim].numel() == length
        return Contents(pack_together([], {"paths": [], "length": length, "is_full": is_full}), saved)


def contents_of(storage: LazyTensorStorage) -> Contents:
    """All items of ``storage``, for :func:`restore`.

    Raises:
        RuntimeError: nothing was ever written to the storage.
        DTypeError: a leaf has a dtype that only torch has.
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
    """Put saved items into ``storage``, which drops its own when all of the saved ones are in memory.

    Args:
        storage: the storage, which changes only if all goes well.
        contents: the saved items.
        new_tensor: whether a storage to which nothing was ever written accepts a single tensor. As in TorchRL, it does
            from a state dict, and does not from a checkpoint.

    Raises:
        RuntimeError: nothing was ever written to the storage, and the saved items are no tensordicts.
        ShapeError: the storage has not enough room, or is larger than a full storage that was saved; or a leaf has
            another shape.
        FieldError: the items have other keys than those in the storage.
        DTypeError: a compressed leaf has another dtype.
        CorruptStream: packed leaves are damaged.
    """
    packed, rest, own = contents.packed, contents.rest.to("cpu"), storage._storage
    about, per_row = read_note(packed), rest.batch_size[1 : storage.ndim].numel()
    n_rows = -(-about["length"] // per_row)
    check_size(storage, per_row, about["length"], is_full=about["is_full"])
    if (is_tree := about.get("is_tree")) and own is None and not (new_tensor and about["paths"] == [[]]):
        raise RuntimeError("Cannot fill a non-initialized pytree-based TensorStorage: write an item first.")
    if storage.device is None:  # the tensordicts in the storage have no device
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


def check_size(storage: LazyTensorStorage, per_row: int, length: int, *, is_full: bool) -> None:
    """Refuse saved items that do not fit, ``per_row`` in each row.

    The writer of a full storage goes around its end, so their number is that of the storage.

    Raises:
        ShapeError: there are too many, or too few of a full storage.
    """
    n_rows, room = -(-length // per_row), -(-storage.max_size // per_row)
    if n_rows > room or (is_full and n_rows < room):
        found = f"there are {length}" + " of a full storage, which need one of its size" * is_full
        raise obscodec.ShapeError(f"the storage has room for {room * per_row} items, {found}")


def replace(storage: LazyTensorStorage, fresh: LazyTensorStorage, length: int, last_row: int | None) -> None:
    """Move the items of ``fresh`` into ``storage``, for other threads at once. ``fresh`` is of no use afterwards.

    Args:
        storage: the storage that changes.
        fresh: a storage of the same size, whose items have the keys and shapes of those in ``storage``.
        length: how many items there are.
        last_row: the row that was written last; None if it is not known.
    """
    with storage.lock:
        for leaf in fresh.compressed().values():
            leaf.array.store.changing = storage.lock
        if not storage.initialized:
            storage.max_size = fresh.max_size  # in whole rows
        storage._storage, storage.initialized = fresh._storage, fresh.initialized
        storage._len, storage.device = length, fresh.device
        storage._set_last_cursor(last_row)
        storage.note_loaded()
        storage._bump_mutation_revision()
