"""Checkpoints of a CompressedStorage in files, those of TorchRL's storages, and those of earlier versions."""

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
    """Writes all that a storage holds into one file, compressed and with checksums, which is replaced at once.

    So there is a whole checkpoint in the folder at all times: the old one, or the new one. It reads what it wrote, now
    or in an earlier version, and what TorchRL's ``TensorStorageCheckpointer`` wrote of a ``LazyTensorStorage`` or a
    ``LazyMemmapStorage``. With save or load hooks it does what that one does.
    """

    def dumps(self, storage: LazyTensorStorage, path: Path | str) -> None:
        """Write all that ``storage`` holds into a folder, which may exist.

        Raises:
            RuntimeError: nothing was ever written to the storage.
            OSError: the folder can't be written, or has no room; what was saved there before still is.
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
        """Fill ``storage`` with what is in a folder, or leave it as it is.

        Raises:
            FileNotFoundError: there is no checkpoint in the folder.
            RuntimeError: nothing was ever written to the storage, and what is to be loaded are no tensordicts.
            ShapeError, FieldError, DTypeError or HeapFull: the storage can't hold these items; see :func:`restore`.
            CorruptStream: the checkpoint is damaged, or was not finished.
        """
        folder = Path(path)
        if self._load_hooks:
            super().loads(storage, folder)
            return
        if (folder / _FILE).exists():
            contents, older = _read(folder / _FILE)
            if _stamps(folder).items() <= older.items():  # nothing else was written there later
                restore(storage, contents, new_tensor=False)
                return
        if (folder / _STOCK).exists():
            self._load_stock(storage, folder)
        elif (folder / _META).exists():
            if not (folder / "packed.memmap").exists():  # which earlier versions wrote
                raise CorruptStream(
                    f"the checkpoint in {folder} was not finished: there is no {_STOCK}, which TorchRL writes last"
                )
            restore(storage, Contents.of_tensordict(_load_memmap(folder), None, storage.ndim), new_tensor=False)
        else:
            raise FileNotFoundError(f"there is no checkpoint in {folder}: neither {_FILE} nor {_STOCK}")

    def _load_stock(self, storage: LazyTensorStorage, folder: Path) -> None:
        """Load what TorchRL wrote."""
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
    """Write a checkpoint, and which other ones were in the folder before."""
    contents.rest.memmap(file.parent / "rest")  # has no tensors, so nothing is mapped, and a full disk is an error
    rest = [path for path in (file.parent / "rest").rglob("*") if path.is_file()]
    names = [path.relative_to(file.parent).as_posix() for path in rest]
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("packed", contents.packed)
        archive.writestr("about", json.dumps({"older": older, "rest": names}))
        for name, path in zip(names, rest, strict=True):
            archive.writestr(name, path.read_bytes())


def _read(file: Path) -> tuple[Contents, dict[str, list[int]]]:
    """What :func:`_write` was given."""
    with file.open("rb") as stream, tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(stream) as archive:  # which has checksums of its members, but not of their names
                packed, about = archive.read("packed"), json.loads(archive.read("about"))
                archive.extractall(folder, about["rest"])
            return Contents(packed, TensorDict.load_memmap(Path(folder) / "rest")), about["older"]
        except Exception as error:
            raise CorruptStream(f"{file} is damaged: {error}") from error


def _stamps(folder: Path) -> dict[str, list[int]]:
    """When checkpoints of another form in a folder were written, and how large their files are."""
    there = {name: (folder / name).stat() for name in (_STOCK, _META) if (folder / name).exists()}
    return {name: [status.st_mtime_ns, status.st_size] for name, status in there.items()}


def _remove_others(folder: Path) -> None:
    """Remove checkpoints of another form, but no tensors of TorchRL, which a LazyMemmapStorage may be using."""
    if not (folder / _STOCK).exists() and (folder / "packed.memmap").exists():  # of an earlier version
        (folder / "packed.memmap").unlink()
        shutil.rmtree(folder / "rest", ignore_errors=True)
    for name in (_STOCK, _META):
        (folder / name).unlink(missing_ok=True)


def _load_memmap(folder: Path) -> TensorDict:
    """The tensordict in a folder.

    Raises:
        CorruptStream: a file is missing or too short; tensordict would leave the leaf out, or take zeros for what is
            missing and write them into the file.
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
    """Make sure that all of a tensor is in a file."""
    nbytes = math.prod(leaf["shape"]) * getattr(torch, leaf["dtype"].removeprefix("torch.")).itemsize
    found = file.stat().st_size if file.exists() else 0
    if found < nbytes:
        raise CorruptStream(f"the checkpoint is damaged: {file} has {found} of {nbytes} bytes")


def _parsed(file: Path) -> dict[str, Any]:
    """What is in a JSON file.

    Raises:
        CorruptStream: it is none.
    """
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise CorruptStream(f"the checkpoint is damaged: {file} is no JSON: {error}") from error
