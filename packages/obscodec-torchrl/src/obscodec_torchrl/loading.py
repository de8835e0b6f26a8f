"""Loading a saved state into a CompressedStorage, which may have items and other options."""

from __future__ import annotations

import math
import os

import torch
from obscodec import FieldError, ShapeError
from obscodec.snapshots import named
from obscodec.state import State, number_of, part_of
from torchrl.data import LazyTensorStorage

from obscodec_torchrl.leaves import leaves
from obscodec_torchrl.saving import check_size, replace
from obscodec_torchrl.state import arguments_of, axes_of, check_structure, fill, leaves_of

_N_TOGETHER = 1024  # rows that are encoded anew at a time
_OF_ANY = ("max_size", "max_bytes", "device", "compilable")  # arguments that do not change how items are encoded
ELSEWHERE = {"device": "cpu", "buffer_device": "cpu", "heap": "device", "compilable": False}
ELSEWHERE |= {"max_bytes": None, "spill": None}


def load(storage: LazyTensorStorage, arguments: State, state: State, path: str | os.PathLike[str]) -> None:
    """Put a saved state into ``storage``, which drops its own items when all of the saved ones are in memory.

    Items stay encoded as they are if the options of both storages are equal.

    Args:
        storage: the storage, which changes only if all goes well.
        arguments: those of the saved storage.
        state: that of the saved storage.
        path: where both are from, for errors.

    Raises:
        RuntimeError: nothing was ever written to the storage, and the saved items are no tensordicts.
        ShapeError: the storage has another ``ndim``, or not enough room, or is larger than a full storage that was
            saved; or a leaf has another shape.
        FieldError: the items have other keys than those in the storage.
        DTypeError: a compressed leaf has another dtype.
        SnapshotError: no storage has such a state.
    """
    with named(path):
        axes, paths, is_tree = axes_of(state), leaves_of(state).keys(), part_of(state, "is_tree", bool)
        length, is_full = number_of(state, "length"), part_of(state, "is_full", bool)
    if len(axes) != storage.ndim:
        what = f"the storage has ndim={storage.ndim}, the items in {os.fspath(path)} were saved with ndim={len(axes)}"
        raise ShapeError(f"{what}: make a storage with ndim={len(axes)}")
    check_size(storage, math.prod(axes[1:]), length, is_full=is_full)
    tree = storage._storage if is_tree else None
    check_structure(tree, is_tree=is_tree)
    if tree is not None and leaves(tree).keys() != paths:
        raise FieldError(f"the storage has the keys {[*leaves(tree)]}, the saved items have {[*paths]}")
    own = arguments_of(storage)
    fits = axes[0] <= -(-storage.max_size // math.prod(axes[1:]))
    alike = fits and all(own[name] == arguments.get(name) for name in own if name not in _OF_ANY)
    with named(path):
        elsewhere = {**arguments, **ELSEWHERE, "max_size": math.prod(axes)}
        made = storage.empty_copy() if alike else storage.from_arguments(elsewhere)
        fill(made, state, tree)
    if not alike:
        made = _encoded_anew(made, storage.empty_copy())
    with storage.lock:
        if storage.initialized and made.initialized:
            first = {key: leaf[:1] for key, leaf in leaves(made._storage).items()}
            storage._check(slice(1), first, leaves(storage._storage))
        replace(storage, made, len(made), state["last_row"])


def _encoded_anew(saved: LazyTensorStorage, fresh: LazyTensorStorage) -> LazyTensorStorage:
    """``fresh`` with the items of ``saved``."""
    n_rows = saved._len_along_dim0
    for begin in range(0, n_rows, _N_TOGETHER):
        end = min(begin + _N_TOGETHER, n_rows)
        fresh.set(torch.arange(begin, end), saved[begin:end])
    return fresh
