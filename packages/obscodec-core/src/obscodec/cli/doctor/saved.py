"""Saved buffers as a source of data: their items in the order of time, read by the package that wrote them."""

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
from obscodec.runtime import temporary_folder
from obscodec.snapshots import OpenGeneration, load, named

_ENTRY_POINT_GROUP = "obscodec.snapshots"
Items = dict[str, npt.NDArray[np.generic]]


def saved_items(path: Path, n: int) -> Items:
    """The oldest ``n`` items of a snapshot, of the first environment, ``[n, *shape]`` in the order of time, by field.

    The whole snapshot is read, which finds damage. A package with a class of its own names a function like this one, as
    an entry point of ``obscodec.snapshots`` with the name of the package.

    Raises:
        SnapshotError: the snapshot has no items, a file is damaged, or an item can't be decoded.
        MissingPackage: a package has written it that is not installed.
    """
    package = OpenGeneration(path).written_by.partition(" ")[0]
    if package == "obscodec":
        return _of_core(path, n)
    found = [point for point in entry_points(group=_ENTRY_POINT_GROUP) if point.name == package]
    if not found:
        command = f": {install_command(package)}" if package in OURS else ""  # a file may name anything
        raise MissingPackage(f"{path} has a snapshot of {package}, which is not installed{command}")
    return cast("Callable[[Path, int], Items]", found[0].load())(path, n)


def _of_core(path: Path, n: int) -> Items:
    opened = OpenGeneration(path)
    with temporary_folder() as folder:
        spill = folder if opened.arguments().get("spill") else None
        loaded: Any = load(path, spill=spill, continue_episodes=True)
        with named(path):
            if isinstance(loaded, RingBuffer) and len(loaded):
                steps, every = loaded[:n, 0], loaded.fields.items()
                # Large ones that are one step later share frames, and are the observations but for one.
                own = {name: of for name, of in every if of.owner is None or of.layout.nbytes < MIN_COMPRESSED_NBYTES}
                return {name: steps[name].reshape(len(steps[name]), -1, *of.shape)[:, -1] for name, of in own.items()}
            if isinstance(loaded, TensorArray) and loaded.ids.ndim and loaded.ids.size:
                return {"array": np.asarray(loaded[(slice(n), *[0] * (loaded.ids.ndim - 1))])}
    raise SnapshotError(f"{path} has a {opened.kind} without items in the order of time")
