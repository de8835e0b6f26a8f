"""Checkpoints of a CompressedStorage; reading also those of TorchRL's storages, and of earlier versions."""

import json
import math
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import torch
from obscodec import CorruptStream
from tensordict import TensorDict
from torch.utils._pytree import tree_map
from torchrl.data import LazyTensorStorage
from torchrl.data.replay_buffers.checkpointers import TensorStorageCheckpointer

from obscodec_torchrl.saving import Contents, contents_of, replace, restore
from obscodec_torchrl.whole_file import UNFINISHED, replaced

_FILE = "checkpoint.zip"  # with the members "packed", "about" and, in "rest/", the files of a tensordict
_STOCK, _META = "storage_metadata.json", "meta.json"  # of TorchRL, and of earlier versions


class CompressedStorageCheckpointer(TensorStorageCheckpointer):  # type: ignore[misc]
    """Writes the items of a storage into one file, compressed and with checksums, and replaces the old file at once.

    So the folder has a whole checkpoint at all times: the old one, or the new one. This class also reads checkpoints of
    its earlier versions, and those that TorchRL's ``TensorStorageCheckpointer`` wrote for a ``LazyTensorStorage`` or a
    ``LazyMemmapStorage``. With save or load hooks it works as TorchRL's.
    """

    def dumps(self, storage: LazyTensorStorage, path: Path | str) -> None:
        """Write all items of ``storage`` into a folder, which may exist.

        Raises:
            RuntimeError: nothing was ever written to the storage.
            OSError: the folder can't be written, or the disk is full; the old checkpoint stays.
        """
        if self._save_hooks:
            super().dumps(storage, path)
            return
        contents, folder = contents_of(storage), Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        with replaced(folder / _FILE) as new:
            _write(new, contents, older=_stamps(folder))
        _remove_others(folder)

    def loads(self, storage: LazyTensorStorage, path: Path | str) -> None:
        """Fill ``storage`` with the checkpoint in a folder; the storage keeps its items if an error is raised.

        Raises:
            FileNotFoundError: there is no checkpoint in the folder.
            RuntimeError: nothing was ever written to the storage, and the saved items are no tensordicts.
            ShapeError, FieldError, DTypeError or HeapFull: the storage can't hold these items; see :func:`restore`.
            CorruptStream: the checkpoint is damaged, or was not finished.
        """
        folder = Path(path)
        if self._load_hooks:
            super().loads(storage, folder)
            return
        if (folder / _FILE).exists():
            contents, older = _read(folder / _FILE)
            if _stamps(folder).items() <= older.items():  # no other checkpoint was written later
                restore(storage, contents, new_tensor=False)
                return
        if (folder / _STOCK).exists():
            self._load_stock(storage, folder)
        elif (folder / _META).exists():
            if not (folder / "packed.memmap").exists():  # the file of earlier versions
                raise CorruptStream(
                    f"the checkpoint in {folder} was not finished: there is no {_STOCK}, which TorchRL writes last"
                )
            restore(storage, Contents.of_tensordict(_load_memmap(folder), None, storage.ndim), new_tensor=False)
        else:
            raise FileNotFoundError(f"there is no checkpoint in {folder}: neither {_FILE} nor {_STOCK}")

    def _load_stock(self, storage: LazyTensorStorage, folder: Path) -> None:
        """Load a checkpoint of TorchRL."""
        about = _parsed(folder / _STOCK)
        if not about["is_pytree"]:
            contents = Contents.of_tensordict(_load_memmap(folder), about["len"], storage.ndim)
            restore(storage, contents, new_tensor=False)
            return
        if not storage.initialized:
            super().loads(storage, folder)  # which refuses it
        for name, leaf in about["metadata"].items():
            _check_whole(folder / f"{name.replace('.', '/')}.memmap", leaf)
        fresh = storage.empty_copy()
        fresh._init(tree_map(lambda leaf: leaf[0], storage._storage))
        super().loads(fresh, folder)
        replace(storage, fresh, about["len"], None)


def _write(file: Path, contents: Contents, older: dict[str, list[int]]) -> None:
    """Write a checkpoint, with the stamps of older ones in the folder, see :func:`_stamps`."""
    contents.rest.memmap(file.parent / "rest")  # has no tensors, so nothing is mapped, and a full disk is an error
    rest = [path for path in (file.parent / "rest").rglob("*") if path.is_file()]
    names = [path.relative_to(file.parent).as_posix() for path in rest]
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("packed", contents.packed)
        archive.writestr("about", json.dumps({"older": older, "rest": names}))
        for name, path in zip(names, rest, strict=True):
            archive.writestr(name, path.read_bytes())


def _read(file: Path) -> tuple[Contents, dict[str, list[int]]]:
    """The contents and stamps in a file of :func:`_write`."""
    with file.open("rb") as stream, tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(stream) as archive:  # which has checksums of its members, but not of their names
                packed, about = archive.read("packed"), json.loads(archive.read("about"))
                archive.extractall(folder, about["rest"])
            return Contents(packed, TensorDict.load_memmap(Path(folder) / "rest")), about["older"]
        except Exception as error:
            raise CorruptStream(f"{file} is damaged: {error}") from error


def _stamps(folder: Path) -> dict[str, list[int]]:
    """Time and size of checkpoints in a folder that have another form: those of TorchRL and of earlier versions."""
    there = {name: (folder / name).stat() for name in (_STOCK, _META) if (folder / name).exists()}
    return {name: [status.st_mtime_ns, status.st_size] for name, status in there.items()}


def _remove_others(folder: Path) -> None:
    """Remove checkpoints of another form, but leave TorchRL's tensors, which a LazyMemmapStorage may be using."""
    if not (folder / _STOCK).exists() and (folder / "packed.memmap").exists():  # of an earlier version
        (folder / "packed.memmap").unlink()
        shutil.rmtree(folder / "rest", ignore_errors=True)
    for name in (_STOCK, _META):
        (folder / name).unlink(missing_ok=True)


def _load_memmap(folder: Path) -> TensorDict:
    """The tensordict in a folder.

    Raises:
        CorruptStream: a file is missing or too short. (tensordict would leave out the leaf, or write zeros into the
            file.)
    """
    for meta in folder.rglob(_META):
        if not meta.relative_to(folder).parts[0].startswith(UNFINISHED):
            files = {unquote(path.stem): path for path in meta.parent.glob("*.memmap")}
            for key, leaf in _parsed(meta).items():
                if isinstance(leaf, dict) and leaf.get("is_nested") is False:
                    _check_whole(files.get(key, meta.parent / f"{key}.memmap"), leaf)
    try:
        return TensorDict.load_memmap(folder)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise CorruptStream(f"the checkpoint in {folder} is damaged: {error}") from error


def _check_whole(file: Path, leaf: dict[str, Any]) -> None:
    """Make sure that a file has all bytes of a tensor."""
    nbytes = math.prod(leaf["shape"]) * getattr(torch, leaf["dtype"].removeprefix("torch.")).itemsize
    found = file.stat().st_size if file.exists() else 0
    if found < nbytes:
        raise CorruptStream(f"the checkpoint is damaged: {file} has {found} of {nbytes} bytes")


def _parsed(file: Path) -> dict[str, Any]:
    """The content of a JSON file; ``CorruptStream`` if it is not JSON."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise CorruptStream(f"the checkpoint is damaged: {file} is no JSON: {error}") from error
