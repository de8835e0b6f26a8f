"""Contents: the items of a saved storage in the order of time."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from obscodec import SnapshotError
from obscodec.snapshots import OpenGeneration, named
from obscodec.state import number_of, part_of
from obscodec.torch import stored_array

from obscodec_torchrl.checkpointer import SNAPSHOT, has_newer
from obscodec_torchrl.leaves import Key, leaves
from obscodec_torchrl.state import axes_of, fill, leaves_of
from obscodec_torchrl.storage import CompressedStorage

_ON_CPU = {"device": "cpu", "buffer_device": "cpu", "heap": "device", "max_bytes": None, "spill": None}


def first_items(path: Path, n: int) -> dict[str, npt.NDArray[np.generic]]:
    """The oldest ``n`` items, the first ones along further axes: see ``obscodec.cli.doctor.saved``."""
    if path.name == SNAPSHOT and has_newer(path):
        raise SnapshotError(
            f"{path} is older than the checkpoint of TorchRL in the same folder: load that into a "
            "CompressedStorage, whose dumps writes a new snapshot"
        )
    opened = OpenGeneration(path)
    arguments, state = opened.arguments(), opened.state()
    with named(path):
        state = part_of({"storage": state, **state}, "storage", dict)  # a storage alone, or with more around it
        axes, saved = axes_of(state), leaves_of(state)
        n_rows = -(-number_of(state, "length") // math.prod(axes[1:]))
        if n_rows == 0:
            raise SnapshotError(f"{path} has a {opened.kind} without items")
        storage = CompressedStorage.from_arguments({**arguments, **_ON_CPU, "max_size": math.prod(axes)})
        fill(storage, state, _tree_of(saved) if part_of(state, "is_tree", bool) else None)
        last = state.get("last_row") if part_of(state, "is_full", bool) else None
        rows = (np.arange(min(n, n_rows)) + (0 if last is None else last + 1)) % n_rows
        index = rows, *[0] * (len(axes) - 1)
        every = leaves(storage._storage).items()
        return {".".join(key) or "item": np.asarray(stored_array(leaf)[index]) for key, leaf in every}


def _tree_of(paths: Iterable[Key]) -> Any:
    """A tree with tensors at these paths."""
    tree: Any = {}
    for path in paths:
        if not path:
            return torch.empty(())
        part = tree
        for name in path[:-1]:
            part = part.setdefault(name, {})
        part[path[-1]] = torch.empty(())
    return tree
