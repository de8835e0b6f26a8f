"""Contents: the items of a saved buffer in the order of time, of whatever class it is."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from obscodec import Layout, SnapshotError
from obscodec.buffers import ArraySet, BufferOptions
from obscodec.segments import Ints
from obscodec.snapshots import named, read_snapshot, takes_memory
from obscodec.state import State, number_of, part_of
from stable_baselines3.common.preprocessing import get_obs_shape

from obscodec_sb3.base import OPTIONS
from obscodec_sb3.spaces import space_of

Items = dict[str, npt.NDArray[np.generic]]
_ON_CPU = {"buffer_device": "cpu", "heap": "device", "max_bytes": None}


def first_items(path: Path, n: int) -> Items:
    """The oldest ``n`` steps of the first environment: see ``obscodec.snapshots.first_items``.

    A class of a user need not be there: arrays are made of what the snapshot says of them.
    """
    kind, arguments, state = read_snapshot(path)
    with named(path):
        numbers, n_rows = part_of(state, "numbers", dict), number_of(state, "n_steps")
        n_dropped = number_of({"dropped": 0, **state}, "dropped", 0, n_rows)
        if n_rows == n_dropped:
            raise SnapshotError(f"{path} has a {kind} without steps")
        rows = (number_of(numbers, "pos") + n_dropped + np.arange(min(n, n_rows - n_dropped))) % n_rows
        return _observations(arguments, state, rows) | _others(arguments, state, rows)


def _observations(arguments: State, state: State, rows: Ints) -> Items:
    """The first array of each observation, and the others, such as next observations, if these share no frames."""
    space, options = space_of(arguments["observation_space"]), {name: arguments[name] for name in OPTIONS}
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    dtypes = part_of(state, "dtypes", dict)  # SB3 2.7 keeps floats in rollouts
    layouts = {
        key: Layout(get_obs_shape(part), dtypes[key])  # type: ignore[arg-type]
        for key, part in parts.items()
    }
    fields = BufferOptions[str](**{**options, **_ON_CPU}).fields_of(layouts)
    arrays, saved = ArraySet(fields, number_of(arguments, "n_envs", 1)), part_of(state, "observations", dict)
    n_rows, made = number_of(state, "n_steps"), {}
    for of in part_of(saved, "arrays", list):
        made[of["name"], of["field"]] = arrays.zeros(of["name"], of["field"], n_rows)
    arrays.restore(saved, np.arange(n_rows))
    first = {key: name for name, key in reversed(made)}
    own = [of for of in made if takes_memory(layouts[of[1]].nbytes, is_next=first[of[1]] != of[0])]
    return {f"{name}.{key}" if key else name: np.asarray(made[name, key][rows, 0]) for name, key in own}


def _others(arguments: State, state: State, rows: Ints) -> Items:
    """Actions, rewards and so on."""
    n_rows, n_envs, items = number_of(state, "n_steps"), number_of(arguments, "n_envs", 1), Items()
    for name, of in part_of(state, "arrays", dict).items():
        kept, values = part_of(of, "items", np.ndarray), of.get("values")
        if kept.shape[:2] == (n_rows, n_envs):
            of_env = kept[rows, 0]
        elif len(kept) == n_rows * n_envs:  # flattened by a rollout buffer, one environment after the other
            of_env = kept[rows]
        else:  # no array of steps
            continue
        items[name] = of_env if values is None else values[of_env]
    return items
