"""A state as JSON values, with its arrays and streams beside them: see ``docs/formats/snapshot.md``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream
from obscodec.layout import FrameStack, Layout, dtype_name, is_common, written_dtype
from obscodec.segments import Ints, Segments
from obscodec.state import State, array_of, part_of
from obscodec.stores import Narrow

Arrays = dict[str, npt.NDArray[Any]]

_KIND: Final = "$"  # the key of an object that stands for something else than a dictionary
_CONFIGURED: Final[dict[str, tuple[type, Callable[[Any], object]]]] = {
    "frame-stack": (FrameStack, lambda config: FrameStack(**config)),
    "layout": (Layout, Layout.from_config),
    "narrow": (Narrow, Narrow.from_config),
}


class Tree(NamedTuple):
    """A state in the parts that files have.

    Attributes:
        values: JSON values; an object with the key ``$`` stands for an array, streams or an object of a small class.
        arrays: by name, of dtypes that safetensors knows.
        streams: by name.
        lost: the numbers of the streams that are damaged, and so are not among the others, by name.
    """

    values: Any
    arrays: Arrays
    streams: dict[str, Segments]
    lost: dict[str, Ints]


def flatten(state: State) -> Tree:
    """The parts of a state; TypeError if a value is nothing that a state may have."""
    tree = Tree(None, {}, {}, {})
    return tree._replace(values=_flattened(state, "", tree))


def unflatten(tree: Tree) -> Any:
    """The state whose parts these are; CorruptStream if an array or streams are missing."""
    return _built(tree.values, tree)


def _flattened(value: Any, path: str, tree: Tree) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_flattened(item, f"{path}/{i}", tree) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        items = {key: _flattened(item, f"{path}/{key}", tree) for key, item in value.items()}
        return {_KIND: "dictionary", "items": [*map(list, items.items())]} if _KIND in items else items
    if isinstance(value, np.ndarray):
        return _with_array(value, path, tree)
    if isinstance(value, Segments):
        return {_KIND: "streams", "name": _put(tree.streams, path, value)}
    for kind, (of, _) in _CONFIGURED.items():
        if isinstance(value, of):
            return {_KIND: kind, "config": value.config()}  # type: ignore[attr-defined]
    raise TypeError(f"{path or 'a state'} is a {type(value).__name__}, which a snapshot can't have")


def _with_array(array: npt.NDArray[Any], path: str, tree: Tree) -> dict[str, Any]:
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    if is_common(array.dtype) and array.dtype.kind != "c" and array.itemsize <= 8:
        return {_KIND: "array", "name": _put(tree.arrays, path, little)}
    head = {"dtype": dtype_name(little.dtype), "shape": [*little.shape]}
    return {_KIND: "array", "name": _put(tree.arrays, path, little.reshape(-1).view(np.uint8)), **head}


def _put(parts: dict[str, Any], path: str, part: Any) -> str:
    name = path.strip("/") or "state"
    while name in parts:
        name += "'"
    parts[name] = part
    return name


def _built(value: Any, tree: Tree) -> Any:
    if isinstance(value, list):
        return [_built(item, tree) for item in value]
    if not isinstance(value, dict):
        return value
    if _KIND not in value:
        built = {key: _built(item, tree) for key, item in value.items()}
        return _without_lost(built, value, tree) if "streams" in value else built
    kind = value[_KIND]
    if kind == "dictionary":
        return {key: _built(item, tree) for key, item in value["items"]}
    if kind == "array":
        array = part_of(tree.arrays, part_of(value, "name", str), np.ndarray)
        return array.view(written_dtype(value["dtype"])).reshape(value["shape"]) if "dtype" in value else array
    if kind == "streams":
        return part_of(tree.streams, part_of(value, "name", str), Segments)
    if kind not in _CONFIGURED:
        raise CorruptStream(f"there is a {kind!r}, which this version does not know")
    _, from_config = _CONFIGURED[kind]
    return from_config(value["config"])


def _without_lost(heap: State, value: Any, tree: Tree) -> State:
    """The state of a heap without the slots whose streams are lost; these are listed as ``lost``."""
    if "lost" in heap:
        raise CorruptStream("a heap has lost streams already")
    lost = tree.lost.get(value["streams"]["name"])
    if lost is None:
        return heap
    slots = array_of(heap, "slots", np.int64, (len(part_of(heap, "streams", Segments)) + len(lost),))
    return {**heap, "slots": np.delete(slots, lost), "lost": slots[lost]}
