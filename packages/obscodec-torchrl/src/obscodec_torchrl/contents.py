"""Contents: the items of a saved storage in the order of time."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from obscodec import Layout, SnapshotError
from obscodec.buffers import Array, StoredSteps
from obscodec.segments import Bools, Ints
from obscodec.snapshots import OpenGeneration, named
from obscodec.state import number_of, part_of
from obscodec.torch import stored_array

from obscodec_torchrl.checkpointer import SNAPSHOT, has_newer
from obscodec_torchrl.leaves import Key, leaves
from obscodec_torchrl.state import axes_of, fill, leaves_of
from obscodec_torchrl.storage import CompressedStorage

_ON_CPU = {"device": "cpu", "buffer_device": "cpu", "heap": "device", "max_bytes": None, "spill": None}
_FLAGS = "done", "terminated", "truncated"


@contextmanager
def opened_steps(path: Path, generation: int | None = None, salvage: bool = False) -> Iterator[StoredSteps]:
    """The items of a saved storage: see ``obscodec.snapshots.opened_steps``.

    Rows are steps, and the items along further axes are environments.
    """
    if path.name == SNAPSHOT and has_newer(path):
        raise SnapshotError(
            f"{path} is older than the checkpoint of TorchRL in the same folder: load that into a "
            "CompressedStorage, whose dumps writes a new snapshot"
        )
    opened, damage = OpenGeneration(path, generation), list[str]()
    arguments, state = opened.arguments(), opened.state(damage=damage if salvage else None)
    with named(path):
        state = part_of({"storage": state, **state}, "storage", dict)  # a storage alone, or with more around it
        axes, saved = axes_of(state), leaves_of(state)
        n_rows = -(-number_of(state, "length") // math.prod(axes[1:]))
        if n_rows == 0:
            raise SnapshotError(f"{path} has a {opened.kind} without items")
        storage = CompressedStorage.from_arguments({**arguments, **_ON_CPU, "max_size": math.prod(axes)})
        fill(storage, state, _tree_of(saved) if part_of(state, "is_tree", bool) else None)
        last = state.get("last_row") if part_of(state, "is_full", bool) else None
        oldest = 0 if last is None else last + 1
        steps = _steps_of(storage, n_rows, oldest, axes[1:])
        if damage:
            lost = [leaf.array.forget_damaged() for leaf in storage.compressed().values()]
            rows, *others = np.concatenate(lost).T
            envs = np.ravel_multi_index(tuple(others), axes[1:]) if others else np.zeros_like(rows)
            steps = steps._replace(lost=np.unique(np.stack([(rows - oldest) % n_rows, envs], axis=1), axis=0))
    yield steps


def _steps_of(storage: Any, n_rows: int, oldest: int, others: list[int]) -> StoredSteps:
    arrays = {".".join(key) or "item": stored_array(leaf) for key, leaf in leaves(storage._storage).items()}
    n_envs, n_axes = math.prod(others), 1 + len(others)
    layouts = {name: Layout(tuple(array.shape[n_axes:]), array.dtype) for name, array in arrays.items()}
    prefix = "next." if any(f"next.{flag}" in arrays for flag in _FLAGS) else ""
    flags = tuple(x for flag in _FLAGS if (x := prefix + flag) in arrays and math.prod(layouts[x].shape) == 1)

    def read(name: str, steps: Ints, envs: Ints) -> Array:
        index = (steps + oldest) % n_rows, *(np.unravel_index(envs, others) if others else ())
        return np.asarray(arrays[name][index])

    def scan(steps: Ints) -> tuple[Bools, Bools]:
        inside = np.ones((len(steps), n_envs), np.bool_)
        ends, at = ~inside, np.broadcast_arrays(steps[:, None], np.arange(n_envs))
        for name in flags:
            ends |= read(name, *at).reshape(ends.shape) != 0
        return ends, inside

    return StoredSteps(n_rows, n_envs, layouts, read, scan, flags)


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
