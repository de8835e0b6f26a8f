"""The state dict of a CompressedStorage: the parts of a snapshot, with arrays and streams as tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from obscodec import CorruptStream, SnapshotError
from obscodec.segments import Segments
from obscodec.snapshots import VERSION, Tree, flatten, named, unflatten
from obscodec.state import State, array_of, number_of, part_of
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage

from obscodec_torchrl.compressed_tensor import as_tensor, stored_array
from obscodec_torchrl.loading import load, load_items

_WHERE = "the state dict"


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
            arguments, state = _parts_of(saved)
        load(storage, arguments, state, _WHERE)


def _parts_of(saved: Mapping[str, Any]) -> tuple[State, State]:
    if number_of(saved, "version", 1) > VERSION:
        raise SnapshotError(f"{_WHERE} has version {saved['version']}, this obscodec reads up to {VERSION}: update it")
    arrays = {name: stored_array(tensor) for name, tensor in part_of(saved, "arrays", dict).items()}
    streams = {name: _streams_of(of) for name, of in part_of(saved, "streams", dict).items()}
    parts = unflatten(Tree(json.loads(part_of(saved, "values", str)), arrays, streams, {}))
    return part_of(parts, "arguments", dict), part_of(parts, "state", dict)


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
