"""Summary: what a generation of a snapshot has, as its user knows it: fields, steps, environments, codecs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from obscodec.layout import Layout
from obscodec.segments import Segments
from obscodec.snapshots.tree import Tree, unflatten
from obscodec.state import State, number_of, part_of


class SavedField(NamedTuple):
    """A part of each step.

    Attributes:
        name: its name.
        item: dtype and shape of one item, such as ``"uint8[84, 84]"``; "" if only another package knows.
        codec: how it is compressed, "" if it is not.
        nbytes: bytes of its arrays and streams. A store that several fields share counts for the first one.
    """

    name: str
    item: str
    codec: str
    nbytes: int


class Summary(NamedTuple):
    """What a generation has.

    Attributes:
        n_steps: how many steps or items there are, of each environment; None if it has none.
        n_envs: how many environments there are, None if it does not say.
        fields: the parts of each step.
        other_nbytes: bytes of all else.
    """

    n_steps: int | None
    n_envs: int | None
    fields: tuple[SavedField, ...]
    other_nbytes: int


def summary_of(tree: Tree) -> Summary:
    """The summary of a generation, of the forms that ``docs/formats/snapshot.md`` lists.

    Raises:
        Exception: it has another form; see ``named``.
    """
    saved = unflatten(tree)
    arguments, state = part_of(saved, "arguments", dict), part_of(saved, "state", dict)
    state = state.get("storage", state)  # a hook saves more than the storage
    n_steps: int | None = None
    n_envs = number_of(arguments, "n_envs", 1) if "n_envs" in arguments else None
    if "n_appended" in state:
        fields = [*_of_ring(arguments, state)]
        n_steps = min(number_of(state, "n_appended") - number_of(state, "first"), number_of(arguments, "capacity"))
    elif "observations" in state:
        fields = [*_of_sb3(arguments, state)]
        n_steps = number_of(state, "n_steps") - state.get("dropped", 0)
    elif "leaves" in state:
        fields, n_steps = [*_of_leaves(state)], number_of(state, "length")
    else:
        fields = [*_of_store(arguments, state)]
        n_steps = len(state["ids"]) if "ids" in state else None
    return Summary(n_steps, n_envs, tuple(fields), _nbytes(saved) - sum(field.nbytes for field in fields))


def _of_ring(arguments: State, state: State) -> Iterator[SavedField]:
    configs = part_of(arguments, "fields", dict)
    owners = {name: of.get("shares") or of.get("next_of") or name for name, of in configs.items()}
    layouts = {name: part_of(of, "layout", Layout) for name, of in configs.items()}
    for name, of, codec, nbytes in _of_arrays(part_of(state, "arrays", dict), owners):
        yield SavedField(name, str(layouts[of]), codec, nbytes)


def _of_sb3(arguments: State, state: State) -> Iterator[SavedField]:
    space, dtypes = part_of(arguments, "observation_space", dict), part_of(state, "dtypes", dict)
    spaces = space.get("spaces", {"": space})
    for name, key, codec, nbytes in _of_arrays(part_of(state, "observations", dict), {}):
        of = spaces[key]
        known = "shape" in of and "dtype" in of
        item = str(Layout(tuple(of["shape"]), dtypes[key])) if known else ""
        yield SavedField(name, item, codec, nbytes)
    steps = number_of(state, "n_steps"), number_of(arguments, "n_envs", 1)
    for name, of in part_of(state, "arrays", dict).items():
        items = part_of(of, "items", np.ndarray)
        values = items if of.get("values") is None else of["values"]  # the items are numbers of values
        n_axes = 2 if items.shape[:2] == steps else 1  # a rollout that was read is flat
        yield SavedField(name, str(Layout(items.shape[n_axes:], values.dtype)), "", _nbytes(of))


def _of_arrays(state: State, owners: dict[str, str]) -> Iterator[tuple[str, str, str, int]]:
    """The name, the field, the codec and the bytes of each array of an ``ArraySet``; no codec without a store."""
    stores, first = part_of(state, "stores", dict), dict[str, str]()
    for of in part_of(state, "arrays", list):
        owner = owners.get(of["field"], of["field"])
        name = of["name"] if of["field"] in ("", of["name"]) else f"{of['name']}.{of['field']}"
        codec, nbytes = "", _nbytes(of["items"])
        if owner in stores and owner in first:
            codec = f"shares {first[owner]}"
        elif owner in stores:
            codec, nbytes = _codec(stores[owner]), nbytes + _nbytes(stores[owner])
            first[owner] = name
        yield str(name), of["field"], codec, nbytes


def _of_leaves(state: State) -> Iterator[SavedField]:
    stores, first = part_of(state, "stores", list), dict[int, str]()
    n_axes = len(part_of(state, "axes", list))
    for leaf in part_of(state, "leaves", list):
        name = ".".join(leaf["path"]) or "item"
        if "items" in leaf:
            items = part_of(leaf, "items", np.ndarray)
            yield SavedField(name, str(Layout(items.shape[n_axes:], items.dtype)), "", _nbytes(leaf))
        elif leaf["store"] in first:
            yield SavedField(name, str(leaf["layout"]), f"shares {first[leaf['store']]}", _nbytes(leaf))
        else:
            first[leaf["store"]], store = name, stores[leaf["store"]]
            yield SavedField(name, str(leaf["layout"]), _codec(store), _nbytes(leaf) + _nbytes(store))


def _of_store(arguments: State, state: State) -> Iterator[SavedField]:
    """Of an array, or a store; there is nothing if it is something else, such as priorities."""
    while isinstance(arguments.get("store"), dict):
        arguments = part_of(arguments["store"], "arguments", dict)
    if isinstance(layout := arguments.get("layout"), Layout):
        codec = _codec(state, arguments.get("codec"))
        yield SavedField("array" if "ids" in state else "tensors", str(layout), codec, _nbytes(state))


def _codec(state: State, given: object = None) -> str:
    """The codec of a store: what was given to it, or what it has chosen."""
    while "plan" not in state and isinstance(state.get("store"), dict):
        state = state["store"]  # of an array or a guard
    if "plan" not in state:
        return str(given or "")
    plan = state["plan"]
    if plan is None:
        return "not chosen yet"
    return f"{plan['spec']}, stacks of {plan['frame_stack'].depth}" if plan["frame_stack"] else str(plan["spec"])


def _nbytes(value: Any) -> int:
    """Bytes of the arrays and streams in a state."""
    if isinstance(value, (np.ndarray, Segments)):
        return value.nbytes
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_nbytes, parts))
