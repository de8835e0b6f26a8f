"""Loading what was saved into a CompressedStorage, which may have items."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from obscodec import DTypeError, FieldError, Layout, ShapeError, SpecError
from obscodec.snapshots import OpenGeneration, named
from obscodec.state import State, number_of, part_of
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage

from obscodec_torchrl.compressed_tensor import CompressedTensor
from obscodec_torchrl.leaves import Key, leaves
from obscodec_torchrl.state import SavedStorage, arguments_of, axes_of, check_structure, fill, list_of
from obscodec_torchrl.writing import OPTIONAL

_N_TOGETHER = 1024  # rows that are encoded at a time
# Of arguments, these may differ: where and how much memory is used, and what a state has itself.
_OF_ANY = {"max_size", "max_bytes", "spill", "device", "compilable", "buffer_device", "heap", "decide_after", "budget"}


def check_saved(storage: LazyTensorStorage, arguments: State, state: State, path: str | os.PathLike[str]) -> None:
    """Refuse what was saved if ``storage`` can't hold it, before anything is built.

    Args:
        storage: the storage.
        arguments: those of the saved storage.
        state: that of the saved storage, or its JSON values, without arrays.
        path: where both are from, for errors.

    Raises:
        RuntimeError: nothing was ever written to the storage, and the saved items are no tensordicts.
        ShapeError: the storage has another ``ndim``, or not enough room, or is larger than a full storage that was
            saved; or a compressed leaf has another shape.
        SpecError: options differ by which items are encoded.
        FieldError: the items have other keys than those in the storage.
        DTypeError: a compressed leaf has another dtype.
        SnapshotError: no storage has such a state.
    """
    with named(path):
        axes, is_tree = axes_of(state), part_of(state, "is_tree", bool)
        length, is_full = number_of(state, "length"), part_of(state, "is_full", bool)
        saved = {tuple(list_of(of, "path", str)): _layout_of(of) for of in list_of(state, "leaves", dict)}
    where = os.fspath(path)
    if len(axes) != storage.ndim:
        what = f"the storage has ndim={storage.ndim}, the items in {where} were saved with ndim={len(axes)}"
        raise ShapeError(f"{what}: make a storage with ndim={len(axes)}")
    check_size(storage, math.prod(axes[1:]), max(length, math.prod(axes)), is_full=is_full)
    own = arguments_of(storage)
    differing = [name for name in own if name not in _OF_ANY and own[name] != arguments.get(name)]
    if differing:
        here, there = (", ".join(f"{name}={of.get(name)!r}" for name in differing) for of in (own, arguments))
        raise SpecError(
            f"the storage has {here}, the items in {where} were saved with {there}: load them into a storage with "
            "these, and copy its items, some rows at a time, if you need others"
        )
    check_structure(storage._storage, [*saved], is_tree=is_tree)
    if storage.initialized:
        _check_leaves(leaves(storage._storage), saved, is_tree=is_tree)


def _layout_of(leaf: State) -> Layout | None:
    """The layout of a compressed leaf of a state, or of the JSON values of one."""
    layout = leaf.get("layout")
    if isinstance(layout, dict):
        return Layout.from_config(part_of(layout, "config", dict))
    return None if layout is None else part_of(leaf, "layout", Layout)


def _check_leaves(own: Mapping[Key, Any], saved: Mapping[Key, Layout | None], *, is_tree: bool) -> None:
    different = own.keys() ^ saved.keys() if is_tree else own.keys() - saved.keys() - {OPTIONAL}
    if different:
        raise FieldError(f"the storage has the keys {[*own]}, the saved items have {[*saved]}")
    for path, there in saved.items():
        if there is None or not isinstance(own.get(path), CompressedTensor):
            continue
        here = own[path].array.layout
        if here.shape != there.shape:
            raise ShapeError(f"key {path}: the items of the storage have shape {here.shape}, saved ones {there.shape}")
        if here.dtype != there.dtype:
            raise DTypeError(f"key {path}: the items of the storage are {here.dtype}, the saved ones {there.dtype}")


def load_snapshot(saved: SavedStorage, path: Path, generation: int | None = None) -> State:
    """Put what a snapshot has of a storage into it, which drops its own items when all of these are in memory.

    Args:
        saved: what a ``Snapshot`` of this folder may write next; its storage changes only if all goes well.
        path: the folder.
        generation: its number, None for the last one.

    Returns:
        The whole state that was saved.

    Raises:
        SnapshotError: there is no such generation, or it is damaged.
        RuntimeError, ShapeError, SpecError, FieldError or DTypeError: see :func:`check_saved`, which comes before
            tensors and items are read.
    """
    opened = OpenGeneration(path, generation)
    arguments = opened.arguments()
    with named(path):
        of_storage = part_of(opened.values(), "storage", dict)
    check_saved(saved.storage, arguments, of_storage, path)
    state = opened.state(loaded_into=saved)
    with named(path):
        of_storage = part_of(state, "storage", dict)
    load(saved.storage, arguments, of_storage, path)
    return state


def load(storage: LazyTensorStorage, arguments: State, state: State, path: str | os.PathLike[str]) -> None:
    """Put a saved state into ``storage``, which drops its own items when all of the saved ones are in memory.

    Args:
        storage: the storage, which changes only if all goes well.
        arguments: those of the saved storage.
        state: that of the saved storage.
        path: where both are from, for errors.

    Raises:
        SnapshotError: no storage has such a state.
        RuntimeError, ShapeError, SpecError, FieldError or DTypeError: see :func:`check_saved`.
    """
    check_saved(storage, arguments, state, path)
    made = storage.empty_copy()
    with named(path):
        fill(made, state, storage._storage)
    replace(storage, made, len(made), made._last_cursor_index)


def load_items(storage: LazyTensorStorage, items: TensorDict, length: int) -> None:
    """Put the items of a storage of TorchRL into ``storage``, which drops its own when all of these are encoded.

    Args:
        storage: the storage, which changes only if all goes well.
        items: ``[n, ...]``, the tensordict of the other storage, on the CPU.
        length: how many items it had; there may be more rows.

    Raises:
        ShapeError: the storage has not enough room, or is larger than the full storage that was saved; or a leaf has
            another shape.
        FieldError: the items have other keys than those in the storage.
        DTypeError: a compressed leaf has another dtype.
    """
    per_row = items.batch_size[1 : storage.ndim].numel()
    check_size(storage, per_row, length, is_full=items.batch_size[: storage.ndim].numel() == length)
    if storage.device is None:  # the tensordicts in the storage have no device
        items.clear_device_()
    fresh, n_rows = storage.empty_copy(), -(-length // per_row)
    for begin in range(0, n_rows, _N_TOGETHER):
        rows = slice(begin, min(begin + _N_TOGETHER, n_rows))
        fresh.set(torch.arange(rows.start, rows.stop), items[rows])
    replace(storage, fresh, length, None)


def check_size(storage: LazyTensorStorage, per_row: int, length: int, *, is_full: bool) -> None:
    """Refuse saved items that do not fit, ``per_row`` in each row.

    The writer of a full storage goes around its end, so their number is that of the storage.

    Raises:
        ShapeError: there are too many, or too few of a full storage.
    """
    n_rows, room = -(-length // per_row), -(-storage.max_size // per_row)
    if n_rows > room or (is_full and n_rows < room):
        found = f"there are {length}" + " of a full storage, which need one of its size" * is_full
        raise ShapeError(f"the storage has room for {room * per_row} items, {found}")


def replace(storage: LazyTensorStorage, fresh: LazyTensorStorage, length: int, last_row: int | None) -> None:
    """Move the items of ``fresh`` into ``storage``, for other threads at once. ``fresh`` is of no use afterwards.

    Args:
        storage: the storage that changes.
        fresh: a storage of the same size.
        length: how many items there are.
        last_row: the row that was written last; None if it is not known.

    Raises:
        ShapeError, FieldError or DTypeError: its items have other leaves than those in ``storage``.
    """
    with storage.lock:
        if storage.initialized and fresh.initialized:
            first = {key: leaf[:1] for key, leaf in leaves(fresh._storage).items()}
            storage._check(slice(1), first, leaves(storage._storage))
        for leaf in fresh.compressed().values():
            leaf.array.store.changing = storage.lock
        if not storage.initialized:
            storage.max_size = fresh.max_size  # in whole rows
        storage._storage, storage.initialized = fresh._storage, fresh.initialized
        storage._len, storage.device = length, fresh.device
        storage._set_last_cursor(last_row)
        storage.note_loaded()
        storage._bump_mutation_revision()
