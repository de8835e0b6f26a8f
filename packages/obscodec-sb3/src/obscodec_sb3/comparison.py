"""The arguments of a buffer in a snapshot, which are compared with what is given before anything is built."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from obscodec import DTypeError, SpecError
from obscodec.state import State, number_of, part_of
from stable_baselines3.common.buffers import ReplayBuffer

# What depends on the machine, or on the process: with another value, the same is read.
_REPLACED: Final = frozenset({"device", "env", "buffer_device", "heap", "threads", "prefetch"})
SPACES: Final = ("observation_space", "action_space")
_PARTS: Final[dict[type[spaces.Space[Any]], Callable[[Any], State]]] = {
    spaces.Box: lambda box: {"low": box.low, "high": box.high, "shape": [*box.shape], "dtype": box.dtype.str},
    spaces.Discrete: lambda discrete: {"n": int(discrete.n), "start": int(discrete.start)},
    spaces.MultiDiscrete: lambda several: {"nvec": several.nvec, "start": several.start, "dtype": several.dtype.str},
    spaces.MultiBinary: lambda bits: {"n": bits.n if isinstance(bits.n, int) else [*bits.shape]},
    spaces.Dict: lambda by_key: {"spaces": {key: space_state(space) for key, space in by_key.items()}},
}
_KINDS: Final = {kind.__name__: kind for kind in _PARTS}


def space_state(space: spaces.Space[Any]) -> State:
    """What :func:`space_of` makes an equal space of; DTypeError if Stable-Baselines3 has no such space."""
    for kind, parts in _PARTS.items():
        if isinstance(space, kind):
            return {"kind": kind.__name__, **parts(space)}
    raise DTypeError(f"a {type(space).__name__} can't be saved, only {', '.join(_KINDS)}")


def space_of(state: State) -> spaces.Space[Any]:
    """The space with this :func:`space_state`."""
    parts = dict(state)
    kind: Any = _KINDS[part_of({"kind": parts.pop("kind")}, "kind", str)]
    if kind is spaces.Dict:
        by_key = part_of(parts, "spaces", dict)
        return spaces.Dict(OrderedDict((key, space_of(space)) for key, space in by_key.items()))  # a dict is sorted
    return kind(**parts)  # type: ignore[no-any-return]


def check_arguments(cls: type, saved: State, given: Mapping[str, object], path: str) -> None:
    """Raise SpecError, which names all that differs, if arguments of a constructor are others than the saved ones.

    Those that can be replaced may be any. ``saved`` has states of spaces.
    """
    is_replay, differing = issubclass(cls, ReplayBuffer), []
    for name in [name for name in given if name in saved and name not in _REPLACED]:
        value, there, remedy = plain(given[name]), saved[name], "make another buffer"
        if name in SPACES:
            value, there = _as_saved(value), space_of(there)
        elif name == "n_envs" and is_replay:
            remedy = f"convert the buffer: {cls.__name__}.load({path!r}).with_envs({value})"
        elif name == "buffer_size" and is_replay and isinstance(value, (int, np.integer)):
            n_envs = number_of(saved, "n_envs", 1)
            if max(value // n_envs, 1) * n_envs == there:  # which SB3 makes of it
                continue
        if _differ(value, there):
            differing.append(f"{name}={there!r}, got {value!r}: leave it out, or {remedy}")
    if differing:
        raise SpecError(f"{path} has a {cls.__name__} with " + "; with ".join(differing))


def check_environment(kind: str, saved: State, env: Any, path: str, remedy: str) -> None:
    """Raise SpecError, which names all that differs, if ``env``, as the algorithm wraps it, is none for a saved buffer.

    ``remedy`` says in the text what to do with a buffer of as many environments as the snapshot has.
    """
    differing = []
    there, found = number_of(saved, "n_envs", 1), int(env.num_envs)
    if there != found:
        what = f"of {there} environments (n_envs), and env has {found}"
        differing.append(f"{what}: pass an env of {there}, or {remedy}")
    for name in SPACES:
        before, now = space_of(saved[name]), _as_saved(getattr(env, name))
        if _differ(now, before):
            what = f"whose {name} is {before}, and that of env is {now}"
            differing.append(f"{what}: pass an env with the spaces of the training")
    if differing:
        raise SpecError(f"{path} has a {kind} " + "; and ".join(differing))


def plain(value: Any) -> Any:
    """An argument of SB3 as a snapshot has it."""
    return value.name.lower() if isinstance(value, Enum) else value


def _as_saved(space: Any) -> Any:
    """A space as it comes back from a snapshot; what is none stays."""
    return space_of(space_state(space)) if isinstance(space, spaces.Space) else space


def _differ(one: object, other: object) -> bool:
    try:
        return not bool(np.all(np.asarray(one == other)))
    except ValueError:  # arrays of other shapes
        return True
