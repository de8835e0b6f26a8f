"""The leaves of the data of a replay buffer: of tensordicts, tensorclasses, pytrees, single tensors."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
from tensordict import LazyStackedTensorDict, is_tensor_collection
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map, tree_map_with_path

Key = tuple[str, ...]
K = TypeVar("K", str, Key)


def leaves(data: Any) -> dict[Key, Any]:
    """The tensors in ``data`` by their paths: the keys of a tensordict, ``()`` for a single tensor."""
    flat = None if is_tensor_collection(data) else tree_flatten_with_path(data)[0]
    items = data.items(include_nested=True, leaves_only=True) if flat is None else ((_tree_key(k), x) for k, x in flat)
    return {as_key(key): leaf for key, leaf in items if isinstance(leaf, torch.Tensor)}


def with_leaves(data: Any, changed: Mapping[Key, torch.Tensor], *, in_place: bool = False) -> Any:
    """A shallow copy of ``data``, stacked if ``data`` is a lazy stack, with the tensors ``changed`` at their paths.

    With ``in_place``, a tensordict itself is changed.
    """
    if not is_tensor_collection(data):
        return tree_map_with_path(lambda keys, leaf: changed.get(_tree_key(keys), leaf), data)
    data = stacked(data)
    copy = data if in_place else data.copy()
    for path, leaf in changed.items():
        copy.set(path, leaf)
    return copy


def selected(data: Any, index: Any) -> Any:
    """``data[index]``: of each tensor, if ``data`` is a pytree."""
    return data[index] if is_tensor_collection(data) else tree_map(lambda x: x[index], data)


def stacked(data: Any) -> Any:
    """``data``, stacked if it is a lazy stack, which would stack a leaf anew each time it is read."""
    return data.contiguous() if isinstance(data, LazyStackedTensorDict) else data


def n_batch_axes(data: Any, path: Key, otherwise: int) -> int:
    """How many batch axes the tensordict of a leaf has, which may be more than ``data`` has.

    ``otherwise`` is the result if ``data`` is no tensordict.
    """
    if not is_tensor_collection(data):
        return otherwise
    return int((data.get(path[:-1]) if path[1:] else data).batch_dims)


def as_key(key: str | Key) -> Key:
    """A key of a tensordict as a path."""
    return (key,) if isinstance(key, str) else key


def timeless(path: Key) -> Key:
    """A path without what says that a leaf is of the next step.

    Example:
        >>> timeless(("next", "pixels")), timeless(("next_pixels",))
        (('pixels',), ('pixels',))
    """
    return tuple(name.removeprefix("next_") for name in path if name != "next")


def in_time(keys: Iterable[K]) -> list[K]:
    """Keys, before those of the next step."""
    return sorted(keys, key=lambda key: timeless(as_key(key)) != as_key(key))


def _tree_key(keys: Any) -> Key:
    """The path of a leaf of a pytree: strings as they are, other keys in brackets."""
    return tuple(key.key if isinstance(getattr(key, "key", 0), str) else keystr((key,)) for key in keys)
