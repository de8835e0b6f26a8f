"""The leaves of what a replay buffer stores: tensordicts, tensorclasses, pytrees, single tensors."""

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, is_tensor_collection
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map_with_path

Key = tuple[str, ...]


def leaves(data: Any) -> dict[Key, Any]:
    """The tensors in ``data`` by their paths, which are the keys of a tensordict and ``()`` for a single tensor."""
    flat = None if is_tensor_collection(data) else tree_flatten_with_path(data)[0]
    items = data.items(include_nested=True, leaves_only=True) if flat is None else ((_tree_key(k), x) for k, x in flat)
    return {as_key(key): leaf for key, leaf in items if isinstance(leaf, torch.Tensor)}


def with_leaves(data: Any, changed: Mapping[Key, torch.Tensor], *, in_place: bool = False) -> Any:
    """``data`` with other tensors at some paths; what is stacked lazily, is stacked.

    Args:
        data: see :func:`leaves`.
        changed: the tensors.
        in_place: whether a tensordict is changed itself, not a shallow copy of it.
    """
    if not is_tensor_collection(data):
        return tree_map_with_path(lambda keys, leaf: changed.get(_tree_key(keys), leaf), data)
    data = stacked(data)
    copy = data if in_place else data.copy()
    for path, leaf in changed.items():
        copy.set(path, leaf)
    return copy


def stacked(data: Any) -> Any:
    """``data``, stacked if it is so lazily, which takes long for each of its leaves when they are asked for."""
    return data.contiguous() if isinstance(data, LazyStackedTensorDict) else data


def n_batch_axes(data: Any, path: Key, otherwise: int) -> int:
    """How many axes of a leaf are those of the tensordict that it is in, which may have more than ``data`` has.

    Args:
        data: see :func:`leaves`.
        path: of the leaf.
        otherwise: what to give if ``data`` is no tensordict.
    """
    if not is_tensor_collection(data):
        return otherwise
    return int((data.get(path[:-1]) if path[1:] else data).batch_dims)


def as_key(key: str | Key) -> Key:
    """A key of a tensordict as the path that it stands for."""
    return (key,) if isinstance(key, str) else key


def _tree_key(keys: Any) -> Key:
    """Strings as they are, others in brackets."""
    return tuple(key.key if isinstance(getattr(key, "key", 0), str) else keystr((key,)) for key in keys)
