"""All that a CompressedStorage holds as plain tensors, to be saved and restored, and copies between storages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import obscodec
import torch
from tensordict import TensorDict, is_tensor_collection
from torchrl.data import LazyTensorStorage
from torchrl.data.replay_buffers.checkpointers import TensorStorageCheckpointer

from obscodec_torchrl.compressed_tensor import as_tensor, stored_array
from obscodec_torchrl.leaves import Key, leaves, with_leaves

_STOCK = "storage_metadata.json"


def contents_of(storage: LazyTensorStorage) -> TensorDict:
    """All that ``storage`` holds, for :func:`restore`.

    Raises:
        RuntimeError: nothing was ever written to it.
        DTypeError: torch alone has the dtype of a leaf.
    """
    with storage.lock:
        written, is_tree = storage[:], not is_tensor_collection(storage._storage)
        packed, rest = leaves(written), TensorDict() if is_tree else written.exclude(*leaves(written))
        return contents(
            rest, len(storage), packed, is_tree=is_tree, is_full=storage._is_full, last_row=storage._last_cursor_index
        )


def contents(rest: TensorDict, length: int | None, packed: Mapping[Key, torch.Tensor], **about: Any) -> TensorDict:
    """What a storage holds as a tensordict of plain tensors.

    Args:
        rest: ``[n, ...]``, what is not packed; there may be room for more than ``length`` items.
        length: how many items there are.
        packed: ``[n, ...]`` each, the leaves that are.
        **about: ``is_tree``, whether something else than tensordicts is stored; ``is_full``, whether there was no more
            room; ``last_row``, the one that was written last, where episodes that go on break off.
    """
    about |= {"length": length, "paths": [*packed]}
    message = bytearray(obscodec.pack_together([*map(stored_array, packed.values())], about))
    return TensorDict(rest=rest, packed=torch.frombuffer(message, dtype=torch.uint8))


def restore(storage: LazyTensorStorage, saved: TensorDict, n: int | None, *, new_tensor: bool) -> None:
    """Put what was saved into ``storage``. What it held is dropped when all of them are in memory.

    Args:
        storage: has room for them.
        saved: :func:`contents`, or the tensordict that a storage of TorchRL held.
        n: how many items that has, which may have room for more.
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
    if set(saved.keys()) != {"packed", "rest"}:
        saved = contents(saved, n, {}, is_full=saved.batch_size[: storage.ndim].numel() == n)
    packed, rest, own = saved["packed"].numpy().data, saved["rest"].to("cpu"), storage._storage
    about, per_row = obscodec.note_of(packed), rest.batch_size[1 : storage.ndim].numel()
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
    for rows, arrays in obscodec.unpack_together(packed) if about["paths"] else [(slice(0, n_rows), [])][:n_rows]:
        items = {tuple(path): as_tensor(array) for path, array in zip(about["paths"], arrays, strict=True)}
        items |= {} if is_tree else leaves(rest[rows])
        fresh.set(torch.arange(rows.start, rows.stop), with_leaves(like if is_tree else like[rows], items))
    with storage.lock:
        if storage.initialized and fresh.initialized:
            storage._check(slice(1), fresh[:1])
        storage._storage, storage.initialized, storage.max_size = fresh._storage, fresh.initialized, fresh.max_size
        storage._len, storage.device = about["length"], fresh.device
        storage._set_last_cursor(about.get("last_row"))
        storage._bump_mutation_revision()


class CompressedStorageCheckpointer(TensorStorageCheckpointer):  # type: ignore[misc]
    """Writes compressed leaves as messages with checksums, and the others as TorchRL does.

    It reads what it wrote, and what TorchRL's ``TensorStorageCheckpointer`` wrote of a ``LazyTensorStorage`` or a
    ``LazyMemmapStorage`` with tensordicts. With save or load hooks it does what that one does.
    """

    def dumps(self, storage: LazyTensorStorage, path: Path | str) -> None:
        """Write all that ``storage`` holds into a folder, which may exist.

        Raises:
            RuntimeError: nothing was ever written to the storage.
        """
        if self._save_hooks:
            super().dumps(storage, path)
            return
        saved, folder = contents_of(storage), Path(path)
        for name in (_STOCK, "meta.json"):  # until the folder is complete
            (folder / name).unlink(missing_ok=True)
        saved.memmap(folder)

    def loads(self, storage: LazyTensorStorage, path: Path | str) -> None:
        """Fill ``storage`` with what is in a folder.

        Raises:
            FileNotFoundError: there is no checkpoint in the folder.
            RuntimeError: nothing was ever written to the storage, and what is to be loaded are no tensordicts.
            ShapeError, FieldError, DTypeError or HeapFull: the storage can't hold these items; see :func:`restore`.
            CorruptStream: the checkpoint is damaged.
        """
        folder = Path(path)
        stock = json.loads((folder / _STOCK).read_text(encoding="utf-8")) if (folder / _STOCK).exists() else {}
        if self._load_hooks or stock.get("is_pytree"):
            super().loads(storage, folder)
        else:
            restore(storage, TensorDict.load_memmap(folder), stock.get("len"), new_tensor=False)
