"""The state of a CompressedStorage: what a snapshot has of it, see ``docs/formats/snapshot.md``."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from obscodec import CorruptStream, Layout
from obscodec.runtime import says_memory_error
from obscodec.state import State, array_of, number_of, part_of
from obscodec.torch import CompressedTensor, as_tensor, stored_array
from tensordict import TensorDict, is_tensor_collection
from torchrl.data import LazyTensorStorage

from obscodec_torchrl.leaves import Key, leaves, with_leaves
from obscodec_torchrl.memmaps import files_of, folder_of, load_memmap

WRITTEN_BY = f"obscodec-torchrl {version('obscodec-torchrl')}"  # see ``obscodec.snapshots.Saved``
V = TypeVar("V")


@dataclass(eq=False)
class SavedStorage:
    """What a snapshot has of a CompressedStorage, and of what is around it: see ``obscodec.snapshots.Saved``."""

    storage: Any
    changing: AbstractContextManager[Any]  # the lock that changes take
    around: Callable[[], State] = dict  # gives the rest of the state, by names other than ``storage``
    written_by = WRITTEN_BY

    def __post_init__(self) -> None:
        self.arguments, self.manifest = self.storage.arguments, self.storage.manifest

    def state(self) -> State:
        """The state of the storage, and the rest."""
        with self.changing:
            return {"storage": state_of(self.storage), **self.around()}

    def restore(self, state: State) -> None:
        """Fill the storage, which is empty."""
        self.storage.restore(part_of(state, "storage", dict))


def arguments_of(storage: LazyTensorStorage) -> State:
    """The arguments of a storage, as :func:`as_arguments` takes them."""
    options = {
        name: [[[*key], value] for key, value in option.items()] if isinstance(option, Mapping) else option
        for name, option in vars(storage.options).items()
    }
    device = "auto" if storage.device is None else str(storage.device)
    of_torchrl = {"max_size": storage.max_size, "ndim": storage.ndim, "compilable": storage._compilable}
    options["max_bytes"] = storage._memory.max_bytes
    return {**of_torchrl, "device": device, **options, "spill": storage._memory.folder is not None}


def as_arguments(saved: State) -> dict[str, Any]:
    """The arguments that make an equal, empty storage."""
    options = {name: {tuple(k): x for k, x in of} if isinstance(of, list) else of for name, of in saved.items()}
    return options | {"spill": saved.get("spill") or None}


def state_of(storage: LazyTensorStorage) -> State:
    """What a storage holds; RuntimeError if nothing was ever written, DTypeError for a dtype that only torch has."""
    with storage.lock:
        if not storage.initialized:
            raise RuntimeError("Cannot get elements out of a non-initialized storage.")
        own, is_tree = leaves(storage._storage), not is_tensor_collection(storage._storage)
        stores = list(dict.fromkeys(x.array.store for x in own.values() if isinstance(x, CompressedTensor)))
        of_stores = [store.state() for store in stores]
        n_rows = _n_rows(storage, own)
        return {
            "axes": [n_rows, *storage._total_shape[1:]],
            "length": len(storage),
            "is_full": storage._is_full,
            "last_row": storage._last_cursor_index,
            "is_tree": is_tree,
            "has_device": storage.device is not None,
            "rest": {} if is_tree else files_of(storage._storage[:n_rows].exclude(*own).memmap),
            "stores": of_stores,
            "leaves": [{"path": [*path], **_state_of_leaf(leaf, n_rows, stores)} for path, leaf in own.items()],
        }


@says_memory_error
def fill(storage: LazyTensorStorage, state: State, tree: Any = None) -> None:
    """Fill a storage to which nothing was written with the :func:`state_of` one with equal options.

    ``tree`` are data with the structure of the saved items, if they are no tensordicts.

    Raises RuntimeError if the items are neither tensordicts nor single tensors, and there is no ``tree``, CorruptStream
    if no storage has such a state.
    """
    axes, saved = axes_of(state), leaves_of(state)
    is_tree = part_of(state, "is_tree", bool)
    check_structure(tree, [*saved], is_tree=is_tree)
    tree = torch.empty(()) if tree is None else tree
    rest = None if is_tree else _rest_of(storage, state)
    first = with_leaves(tree if rest is None else rest[0], {path: _new_item(of) for path, of in saved.items()})
    storage.allocate(first, {path: number_of(of, "store") for path, of in saved.items() if "ids" in of})
    room, *others = storage._total_shape
    if leaves(storage._storage).keys() != saved.keys() or room < axes[0] or others != axes[1:]:
        raise CorruptStream(f"{axes} items of {[*saved]} do not fit into {[room, *others]} items of {[*leaves(first)]}")
    for path, leaf in leaves(storage._storage).items():
        if isinstance(leaf, CompressedTensor):
            ids = leaf.array.ids
            ids[: axes[0]] = array_of(saved[path], "ids", ids.dtype, (axes[0], *ids.shape[1:]))
        else:
            leaf[: axes[0]] = as_tensor(part_of(saved[path], "items", np.ndarray).copy())
    _fill_stores({path: leaf.array.store for path, leaf in storage.compressed().items()}, saved, state)
    if rest is not None:
        storage._storage[: axes[0]] = rest
    storage._len = number_of(state, "length", 0, math.prod(axes))
    if part_of(state, "is_full", bool) and not storage._is_full:
        raise CorruptStream(f"a full storage has {storage.max_size} items, got {len(storage)}")
    storage._set_last_cursor(None if state.get("last_row") is None else number_of(state, "last_row", 0, room - 1))
    storage.note_loaded()


def check_structure(tree: Any, paths: list[Key], *, is_tree: bool) -> None:
    """Refuse a pytree of which nobody knows the structure, as TorchRL does; the paths tell that of a single tensor."""
    if is_tree and tree is None and paths != [()]:
        raise RuntimeError("Cannot fill a non-initialized pytree-based TensorStorage: write an item first.")


def axes_of(state: State) -> list[int]:
    """How many rows there are, and how many items along each other axis that counts items; CorruptStream if none."""
    axes = list_of(state, "axes", int)
    if not axes or min(axes) < 1:
        raise CorruptStream(f"the axes of items are the rows, and maybe others, got {axes}")
    return axes


def leaves_of(state: State) -> dict[Key, State]:
    """The states of the leaves by their paths; CorruptStream if no storage has such leaves."""
    axes = tuple(axes_of(state))
    saved = {tuple(list_of(of, "path", str)): of for of in list_of(state, "leaves", dict)}
    for path, of in saved.items():
        if (found := _array_of_leaf(of).shape[: len(axes)]) != axes:
            raise CorruptStream(f"leaf {path} has {found} items, expected {axes}")
    return saved


def _n_rows(storage: LazyTensorStorage, own: Mapping[Key, Any]) -> int:
    """How many rows to save: at least one, which shows the structure; more than are counted if somebody set others."""
    last = storage._last_cursor_index
    n_rows: int = max(1, storage._len_along_dim0, 0 if last is None else last + 1)
    for leaf in own.values():
        if isinstance(leaf, CompressedTensor):
            ids = leaf.array.ids
            n_rows = max(n_rows, 1 + int(np.flatnonzero(ids.reshape(len(ids), -1).any(axis=1)).max(initial=-1)))
    return n_rows


def _state_of_leaf(leaf: Any, n_rows: int, stores: list[Any]) -> State:
    if isinstance(leaf, CompressedTensor):
        array = leaf.array
        return {"store": stores.index(array.store), "layout": array.layout, "ids": array.ids[:n_rows].copy()}
    return {"items": stored_array(leaf[:n_rows]).copy()}


def _array_of_leaf(of: State) -> npt.NDArray[Any]:
    return part_of(of, "ids" if "ids" in of else "items", np.ndarray)


def _rest_of(storage: LazyTensorStorage, state: State) -> TensorDict:
    """The tensordict without its tensors."""
    with folder_of(part_of(state, "rest", dict)) as folder:
        rest, axes = load_memmap(folder).to("cpu"), axes_of(state)
    if leaves(rest) or [*rest.batch_size[: len(axes)]] != axes:
        raise CorruptStream(f"beside the tensors, a state has {axes} items without tensors, got {rest}")
    has_device = part_of(state, "has_device", bool)
    return rest.clear_device_() if storage.device is None or (storage.device == "auto" and not has_device) else rest


def _new_item(of: State) -> torch.Tensor:
    """A tensor with the shape and dtype of a row."""
    array = _array_of_leaf(of)
    layout = part_of(of, "layout", Layout) if "ids" in of else Layout((), array.dtype)
    return torch.empty((*array.shape[1:], *layout.shape), dtype=getattr(torch, layout.dtype.name))


def _fill_stores(own: Mapping[Key, Any], saved: Mapping[Key, State], state: State) -> None:
    """Fill the stores of compressed leaves, which share them as in the storage that was saved."""
    stores = list_of(state, "stores", dict)
    numbers: dict[Hashable, int] = {own[path]: number_of(saved[path], "store", 0, len(stores) - 1) for path in own}
    if {*numbers.values()} != {*range(len(stores))} or len(numbers) != len(stores):
        raise CorruptStream(f"{len(stores)} stores do not fit the leaves {[*own]}")
    for store, number in numbers.items():
        store.restore(stores[number])  # type: ignore[attr-defined]


def list_of(state: State, name: str, kind: type[V]) -> list[V]:
    """A list of a state whose items are of one type."""
    values = part_of(state, name, list)
    if any(type(value) is not kind for value in values):
        raise CorruptStream(f"{name!r} of a state is a list of {kind.__name__}, got {values}")
    return values
