"""Checkpoints of a CompressedStorage; reading also those of TorchRL's storages."""

from pathlib import Path

from obscodec import CorruptStream, Snapshot
from obscodec.snapshots import OpenGeneration, named
from torch.utils._pytree import tree_map
from torchrl.data import LazyTensorStorage
from torchrl.data.replay_buffers.checkpointers import TensorStorageCheckpointer

from obscodec_torchrl.loading import load_items, load_snapshot, replace
from obscodec_torchrl.memmaps import META, check_whole, load_memmap, parsed
from obscodec_torchrl.state import SavedStorage

SNAPSHOT = "snapshot"  # a folder
_STOCK = "storage_metadata.json"  # of TorchRL, which writes it last


class CompressedStorageCheckpointer(TensorStorageCheckpointer):  # type: ignore[misc]
    """Writes a storage as a snapshot: its items as they are stored, compressed and with checksums.

    Another checkpoint in the same folder writes only what is new. The folder has a whole checkpoint at all times: the
    old one, or the new one. This class also reads checkpoints that TorchRL's ``TensorStorageCheckpointer`` wrote for a
    ``LazyTensorStorage`` or a ``LazyMemmapStorage``. With save or load hooks it works as TorchRL's.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[Path, Snapshot] | None = None  # which knows what its folder has

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_last": None}

    def dumps(self, storage: LazyTensorStorage, path: Path | str) -> None:
        """Write all items of ``storage`` into a folder, which may exist.

        Raises:
            RuntimeError: nothing was ever written to the storage.
            DTypeError: a leaf has a dtype that only torch has.
            SnapshotError: somebody else writes to the folder.
            OSError: the folder can't be written, or the disk is full; the old checkpoint stays.
        """
        if self._save_hooks:
            super().dumps(storage, path)
            return
        folder = Path(path).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        last, self._last = self._last, None
        snapshot = last[1] if last and last[0] == folder else Snapshot(folder / SNAPSHOT, keep=1)
        snapshot.write(SavedStorage(storage, storage.lock, lambda: {"older": _stamp(folder)}))
        snapshot.wait()
        self._last = folder, snapshot
        for name in (_STOCK, META):  # of TorchRL; its tensors stay, which a LazyMemmapStorage may be using
            (folder / name).unlink(missing_ok=True)

    def loads(self, storage: LazyTensorStorage, path: Path | str) -> None:
        """Fill ``storage`` with the checkpoint in a folder; the storage keeps its items if an error is raised.

        Raises:
            FileNotFoundError: there is no checkpoint in the folder.
            RuntimeError: nothing was ever written to the storage, and the saved items are no tensordicts.
            ShapeError, SpecError, FieldError or DTypeError: the storage can't hold these items.
            SnapshotError: the checkpoint is damaged.
            CorruptStream: a checkpoint of TorchRL is damaged or was not finished.
        """
        folder = Path(path)
        if self._load_hooks:
            super().loads(storage, folder)
            return
        snapshot = folder / SNAPSHOT
        if any(snapshot.glob("generation-*.json")) and not has_newer(snapshot):  # none if its first writer was killed
            load_snapshot(SavedStorage(storage, storage.lock), snapshot)
            return
        if (folder / _STOCK).exists():
            self._load_stock(storage, folder)
        elif (folder / META).exists():
            raise CorruptStream(
                f"the checkpoint in {folder} was not finished: there is no {_STOCK}, which TorchRL writes last"
            )
        else:
            raise FileNotFoundError(f"there is no checkpoint in {folder}: neither {SNAPSHOT} nor {_STOCK}")

    def _load_stock(self, storage: LazyTensorStorage, folder: Path) -> None:
        """Load a checkpoint of TorchRL."""
        about = parsed(folder / _STOCK)
        if not about["is_pytree"]:
            load_items(storage, load_memmap(folder).to("cpu"), about["len"])
            return
        if not storage.initialized:
            super().loads(storage, folder)  # which refuses it
        for name, leaf in about["metadata"].items():
            check_whole(folder / f"{name.replace('.', '/')}.memmap", leaf)
        fresh = storage.empty_copy()
        fresh._init(tree_map(lambda leaf: leaf[0], storage._storage))
        super().loads(fresh, folder)
        replace(storage, fresh, about["len"], None)


def _stamp(folder: Path) -> dict[str, list[int]]:
    """Time and size of the file that completes a checkpoint of TorchRL; empty if the folder has none."""
    try:
        status = (folder / _STOCK).stat()
    except FileNotFoundError:
        return {}
    return {_STOCK: [status.st_mtime_ns, status.st_size]}


def has_newer(snapshot: Path) -> bool:
    """Whether TorchRL wrote a checkpoint into the folder of a snapshot after it; it names the one that it replaced."""
    with named(snapshot):
        values = OpenGeneration(snapshot).values()
        return _stamp(snapshot.parent) not in ({}, values.get("older"))
