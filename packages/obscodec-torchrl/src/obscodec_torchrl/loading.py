"""Loading what was saved into a CompressedStorage, which may have items; and its state dict.

A state dict has the parts of a snapshot, with arrays and streams as tensors.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from obscodec import CorruptStream, DTypeError, FieldError, Layout, ShapeError, SnapshotError, SpecError
from obscodec.segments import Segments
from obscodec.snapshots import VERSION, OpenGeneration, named
from obscodec.state import State, array_of, number_of, part_of
from obscodec.torch import CompressedTensor, as_tensor, stored_array
from obscodec.trees import Tree, flatten, unflatten
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage

from obscodec_torchrl.leaves import leaves
from obscodec_torchrl.state import SavedStorage, arguments_of, axes_of, check_structure, fill, list_of
from obscodec_torchrl.writing import OPTIONAL

_WHERE = "the state dict"
_N_TOGETHER = 1024  # rows that are encoded at a time
# Of arguments, these may differ: where and how much memory is used, and what a state has itself.
_OF_ANY = {"max_size", "max_bytes", "spill", "device", "compilable", "buffer_device", "heap", "decide_after", "budget"}


def check_saved(storage: LazyTensorStorage, arguments: State, state: State, path: str | os.PathLike[str]) -> None:
    """Refuse the arguments and the state of a storage, or its JSON values, that ``storage`` can't hold.

    Before anything is built; ``path``, where both are from, is for errors.

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
    if not storage.initialized:
        return
    leaves_here = leaves(storage._storage)
    different = leaves_here.keys() ^ saved.keys() if is_tree else leaves_here.keys() - saved.keys() - {OPTIONAL}
    if different:
        raise FieldError(f"the storage has the keys {[*leaves_here]}, the saved items have {[*saved]}")
    for key, of in saved.items():
        if of is None or not isinstance(leaves_here.get(key), CompressedTensor):
            continue
        layout = leaves_here[key].array.layout
        if layout.shape != of.shape:
            raise ShapeError(f"key {key}: the items of the storage have shape {layout.shape}, saved ones {of.shape}")
        if layout.dtype != of.dtype:
            raise DTypeError(f"key {key}: the items of the storage are {layout.dtype}, the saved ones {of.dtype}")


def _layout_of(leaf: State) -> Layout | None:
    """The layout of a compressed leaf of a state, or of the JSON values of one."""
    layout = leaf.get("layout")
    if isinstance(layout, dict):
        return Layout.from_config(part_of(layout, "config", dict))
    return None if layout is None else part_of(leaf, "layout", Layout)


def load_snapshot(saved: SavedStorage, path: Path, generation: int | None = None) -> State:
    """:func:`load` a generation of a snapshot, None for the last one, after :func:`check_saved`; its whole state.

    A ``Snapshot`` of this folder may write ``saved`` next. Raises SnapshotError for a missing or damaged generation.
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

    It changes only if all goes well; see :func:`check_saved` for the errors.
    """
    check_saved(storage, arguments, state, path)
    made = storage.empty_copy()
    with named(path):
        fill(made, state, storage._storage)
    replace(storage, made, len(made), made._last_cursor_index)


def load_items(storage: LazyTensorStorage, items: TensorDict, length: int) -> None:
    """Put the items of a storage of TorchRL into ``storage``, which drops its own when all of these are encoded.

    It changes only if all goes well. ``items`` is the tensordict of the other storage, on the CPU, which had ``length``
    items, maybe in more rows. See :func:`check_saved` for the errors.
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
    """Raise ShapeError for more saved items, ``per_row`` in each row, than there is room for.

    Also for fewer of a full storage: its writer goes around its end, so their number is that of the storage.
    """
    n_rows, room = -(-length // per_row), -(-storage.max_size // per_row)
    if n_rows > room or (is_full and n_rows < room):
        found = f"there are {length}" + " of a full storage, which need one of its size" * is_full
        raise ShapeError(f"the storage has room for {room * per_row} items, {found}")


def replace(storage: LazyTensorStorage, fresh: LazyTensorStorage, length: int, last_row: int | None) -> None:
    """Move the items of ``fresh``, a storage of the same size, into ``storage``, for other threads at once.

    ``fresh`` is of no use afterwards. Its last row is None if it is not known. Raises ShapeError, FieldError or
    DTypeError if its items have other leaves than those in ``storage``.
    """
    with storage.lock:
        if storage.initialized and fresh.initialized:
            first = {key: leaf[:1] for key, leaf in leaves(fresh._storage).items()}
            storage._check(slice(1), first, leaves(storage._storage))
        for leaf in fresh.compressed().values():
            leaf.array.store.changing = storage.lock
        if not storage.initialized:
            storage.max_size = fresh.max_size  # in whole rows
        storage._storage, storage.initialized, storage._reader = fresh._storage, fresh.initialized, None
        storage._len, storage.device = length, fresh.device
        storage._set_last_cursor(last_row)
        storage.note_loaded()
        storage._bump_mutation_revision()


def state_dict_of(storage: LazyTensorStorage) -> dict[str, Any]:
    """The items as they are stored, of tensors, numbers and texts only; see ``docs/formats/checkpoint.md``.

    Raises:
        DTypeError: a leaf has a dtype that only torch has.
    """
    saved: dict[str, Any] = {}
    if storage.initialized:
        tree = flatten({"arguments": storage.arguments(), "state": storage.state()})
        saved = {
            "version": VERSION,
            "values": json.dumps(tree.values),
            "arrays": {name: as_tensor(np.require(array, requirements="W")) for name, array in tree.arrays.items()},
            "streams": {name: _as_tensors(streams) for name, streams in tree.streams.items()},
        }
    return {"_storage": saved, "initialized": storage.initialized, "_len": len(storage)}


def load_dict(storage: LazyTensorStorage, state_dict: dict[str, Any]) -> None:
    """Restore the items from a ``state_dict`` of this class, ``LazyTensorStorage`` or ``LazyMemmapStorage``.

    Raises:
        RuntimeError: nothing was ever written to this storage, and the saved items are neither tensordicts nor tensors.
        ShapeError, SpecError, FieldError or DTypeError: the storage can't hold these items, and keeps its own.
        SnapshotError: the state is damaged, or of a newer version.
    """
    saved = state_dict["_storage"]
    if not state_dict["initialized"]:
        storage._empty()
    elif not isinstance(saved, Mapping):
        LazyTensorStorage.load_state_dict(storage, state_dict)
        storage.note_loaded()
    elif not isinstance(saved.get("values"), str):  # where a tensordict has tensors
        load_items(storage, TensorDict().load_state_dict(saved, strict=False).to("cpu"), state_dict["_len"])
    else:
        with named(_WHERE):
            if number_of(saved, "version", 1) > VERSION:
                found = f"{_WHERE} has version {saved['version']}"
                raise SnapshotError(f"{found}, this obscodec reads up to {VERSION}: update it")
            arrays = {name: stored_array(tensor) for name, tensor in part_of(saved, "arrays", dict).items()}
            streams = {name: _streams_of(of) for name, of in part_of(saved, "streams", dict).items()}
            parts = unflatten(Tree(json.loads(part_of(saved, "values", str)), arrays, streams, {}))
            arguments, state = part_of(parts, "arguments", dict), part_of(parts, "state", dict)
        load(storage, arguments, state, _WHERE)


def _as_tensors(streams: Segments) -> dict[str, torch.Tensor]:
    content = np.empty(streams.nbytes, np.uint8)
    streams.pack(content)
    return {"bytes": torch.from_numpy(content), "lengths": torch.from_numpy(streams.lengths.copy())}


def _streams_of(saved: Mapping[str, torch.Tensor]) -> Segments:
    parts = {name: stored_array(tensor) for name, tensor in saved.items()}
    content = array_of(parts, "bytes", np.uint8, (None,))
    lengths = array_of(parts, "lengths", np.int64, (None,))
    if lengths.min(initial=0) < 0 or lengths.max(initial=0) > len(content) or lengths.sum() != len(content):
        raise CorruptStream(f"streams of {lengths.sum()} bytes are in {len(content)} bytes")
    return Segments.packed(content, lengths)
