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
from obscodec.state import array_of, number_of, part_of
from torchrl.data import LazyTensorStorage

from obscodec_torchrl.compressed_tensor import as_tensor, stored_array
from obscodec_torchrl.loading import load

_WHERE = "the state dict"


def state_dict_of(storage: LazyTensorStorage) -> dict[str, Any]:
    """The items of a storage, which are neither decoded nor encoded; see ``docs/formats/checkpoint.md``.

    Raises:
        RuntimeError: nothing was ever written to the storage.
        DTypeError: a leaf has a dtype that only torch has.
    """
    tree = flatten({"arguments": storage.arguments(), "state": storage.state()})
    return {
        "version": VERSION,
        "values": json.dumps(tree.values),
        "arrays": {name: as_tensor(np.require(array, requirements="W")) for name, array in tree.arrays.items()},
        "streams": {name: _as_tensors(streams) for name, streams in tree.streams.items()},
    }


def load_dict(storage: LazyTensorStorage, saved: Mapping[str, Any]) -> None:
    """Put the items of a :func:`state_dict_of` into ``storage``, which changes only if all goes well.

    Raises:
        SnapshotError: the dict is damaged, or of a newer version.
        RuntimeError, ShapeError, SpecError, FieldError or DTypeError: see :func:`check_saved`.
    """
    with named(_WHERE):
        if number_of(saved, "version", 1) > VERSION:
            raise SnapshotError(
                f"{_WHERE} has version {saved['version']}, this obscodec reads up to {VERSION}: update it"
            )
        arrays = {name: stored_array(tensor) for name, tensor in part_of(saved, "arrays", dict).items()}
        streams = {name: _streams_of(of) for name, of in part_of(saved, "streams", dict).items()}
        parts = unflatten(Tree(json.loads(part_of(saved, "values", str)), arrays, streams, {}))
        arguments, state = (part_of(parts, name, dict) for name in ("arguments", "state"))
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
