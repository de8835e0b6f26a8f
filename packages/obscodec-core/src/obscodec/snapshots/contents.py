"""Contents: the items of a snapshot in the order of time, whichever package has written it."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from obscodec.arrays import TensorArray
from obscodec.buffers import MIN_COMPRESSED_NBYTES, RingBuffer
from obscodec.errors import MissingPackage, SnapshotError
from obscodec.installing import OURS, install_command
from obscodec.snapshots.folder import Folder
from obscodec.snapshots.snapshot import named, new_saved, read_snapshot, restored

ENTRY_POINT_GROUP = "obscodec.snapshots"
Items = dict[str, npt.NDArray[np.generic]]
_MOST_LEVELS = 3  # of folders that training frameworks put around a snapshot


class NoSnapshot(SnapshotError):
    """There is no snapshot in a folder, nor in the folders in it."""


def find_snapshot(path: str | os.PathLike[str]) -> Path:
    """The folder of the snapshot that a folder is, or that lies in it, as in a checkpoint of TorchRL.

    Raises:
        NoSnapshot: there is none.
        SnapshotError: there are several.
    """
    folder = Path(path)
    for level in range(_MOST_LEVELS + 1):
        found = sorted({file.parent for file in folder.glob("*/" * level + "generation-*.json")})
        if len(found) == 1:
            return found[0]
        if found:
            raise SnapshotError(f"{folder} has several snapshots, name one: {', '.join(map(str, found))}")
    raise NoSnapshot(f"{folder} has no snapshot")


def first_items(path: str | os.PathLike[str], n: int) -> Items:
    """The oldest ``n`` items of a snapshot, of the first environment, ``[n, *shape]`` in the order of time, by field.

    Next observations are left out, since they share frames: all but the last one are observations, too. Those of less
    than ``MIN_COMPRESSED_NBYTES`` bytes are there: plain arrays take memory of their own. The whole snapshot is read,
    which finds damage; other items stay encoded. A package with a class of its own names a function like this one, as
    an entry point of ``obscodec.snapshots`` with the name of the package.

    Args:
        path: the folder of the snapshot.
        n: how many items; there are fewer if the snapshot has fewer.

    Raises:
        SnapshotError: the folder has no snapshot, or one without items; or a file is damaged; or an item can't be
            decoded.
        MissingPackage: a package has written it that is not installed.
    """
    package = _package_of(Folder(path))
    if package == "obscodec":
        return _of_core(Path(path), n)
    found = [point for point in entry_points(group=ENTRY_POINT_GROUP) if point.name == package]
    if not found:
        command = f": {install_command(package)}" if package in OURS else ""  # a file may name anything
        raise MissingPackage(f"{path} has a snapshot of {package}, which is not installed{command}")
    return cast("Callable[[Path, int], Items]", found[0].load())(Path(path), n)


def takes_memory(nbytes: int, *, is_next: bool) -> bool:
    """Whether items take memory of their own, so that :func:`first_items` has them.

    Args:
        nbytes: of an item.
        is_next: whether other items are the same, one step earlier, such as observations of next observations.
    """
    return not is_next or nbytes < MIN_COMPRESSED_NBYTES


def _package_of(folder: Folder) -> str:
    """The package that has written the last generation."""
    generations = folder.generations()
    if not generations:
        raise SnapshotError(f"{folder.path} has no snapshot")
    manifest = folder.read_manifest(generations[max(generations)])
    return str(manifest.get("written_by", "")).partition(" ")[0]


def _of_core(path: Path, n: int) -> Items:
    kind, arguments, state = read_snapshot(path)
    if "spill" in arguments:
        arguments |= {"max_bytes": None, "spill": None}  # nothing is added
    loaded: Any = restored(new_saved(kind, arguments, os.fspath(path)), state, path)
    with named(path):
        if isinstance(loaded, RingBuffer) and len(loaded):
            steps = loaded[:n, 0]
            every = loaded.fields.items()
            fields = {name: of for name, of in every if takes_memory(of.layout.nbytes, is_next=of.owner is not None)}
            return {name: steps[name].reshape(len(steps[name]), -1, *of.shape)[:, -1] for name, of in fields.items()}
        if isinstance(loaded, TensorArray) and loaded.ids.ndim and loaded.ids.size:
            return {"array": np.asarray(loaded[(slice(n), *[0] * (loaded.ids.ndim - 1))])}
    raise SnapshotError(f"{path} has a {kind} without items in the order of time")
