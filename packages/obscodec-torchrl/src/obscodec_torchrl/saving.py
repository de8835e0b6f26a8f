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
    if not storage.initialized:
        raise RuntimeError("a storage that nothing was written to can't be saved")
    with storage.lock:
        written, is_tree = storage[:], not is_tensor_collection(storage._storage)
        packed, rest = leaves(written), TensorDict() if is_tree else written.exclude(*leaves(written))
        return contents(rest, len(storage), packed, is_tree=is_tree, last_row=storage._last_cursor_index)


def contents(rest: TensorDict, length: int | None, packed: Mapping[Key, torch.Tensor], **about: Any) -> TensorDict:
    """What a storage holds as a tensordict of plain tensors.

    Args:
        rest: ``[n, ...]``, what is not packed; there may be room for more than ``length`` items.
        length: how many items there are.
        packed: ``[n, ...]`` each, the leaves that are.
        **about: ``is_tree``, whether something else than tensordicts is stored; ``last_row``, the one that was written
            last, where episodes that go on break off.
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
        ShapeError: there are more items than it has room for, or the pytree that is stored has other shapes.
        CorruptStream: packed leaves are damaged.
        HeapFull: there is not enough room below ``max_bytes``.
    """
    saved = saved if set(saved.keys()) == {"packed", "rest"} else contents(saved, n, {})
    packed, rest = saved["packed"].numpy().data, saved["rest"]
    about = obscodec.note_of(packed)
    if about["length"] > storage.max_size:
        raise obscodec.ShapeError(f"the storage has room for {storage.max_size} items, there are {about['length']}")
    is_tree, like = about.get("is_tree"), storage._storage if storage.initialized else torch.empty(0)
    if is_tree and not storage.initialized and not (new_tensor and about["paths"] == [[]]):
        raise RuntimeError("Cannot fill a non-initialized pytree-based TensorStorage: write an item first.")
    fresh = storage.empty_copy()
    begin, n_rows = 0, -(-about["length"] // rest.batch_size[1 : storage.ndim].numel())
    for arrays in obscodec.unpack_together(packed) if about["paths"] else [[]]:
        items = {tuple(path): as_tensor(array) for path, array in zip(about["paths"], arrays, strict=True)}
        end = begin + len(arrays[0]) if arrays else n_rows
        fresh.set(torch.arange(begin, end), with_leaves(like if is_tree else rest[begin:end], items))
        begin = end
    if storage.initialized:
        storage._check(slice(0), fresh[:0])
    storage._empty()
    storage._storage, storage.initialized, storage.max_size = fresh._storage, fresh.initialized, fresh.max_size
    storage._len, storage.device = about["length"], fresh.device
    storage._set_last_cursor(about.get("last_row"))


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
            ShapeError: there are more items than the storage has room for.
            CorruptStream: the checkpoint is damaged.
        """
        folder = Path(path)
        stock = json.loads((folder / _STOCK).read_text(encoding="utf-8")) if (folder / _STOCK).exists() else {}
        if self._load_hooks or stock.get("is_pytree"):
            super().loads(storage, folder)
        else:
            restore(storage, TensorDict.load_memmap(folder), stock.get("len"), new_tensor=False)
