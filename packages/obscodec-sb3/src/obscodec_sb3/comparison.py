"""Comparing what a snapshot has with what is given: before anything is built."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from obscodec import SpecError
from obscodec.state import State, number_of
from stable_baselines3.common.buffers import ReplayBuffer

from obscodec_sb3.spaces import space_of, space_state

# What depends on the machine, or on the process: with another value, the same is read.
_REPLACED: Final = frozenset({"device", "env", "buffer_device", "heap", "threads", "prefetch"})
SPACES: Final = ("observation_space", "action_space")


def check_arguments(cls: type, saved: State, given: Mapping[str, object], path: str) -> None:
    """Refuse arguments of a constructor that are others than those of the buffer in a snapshot.

    Args:
        cls: the class of the buffer.
        saved: its arguments in the snapshot, with states of spaces.
        given: arguments by name; of those that can be replaced, any.
        path: of the snapshot.

    Raises:
        SpecError: some differ; the text names all of them.
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
    """Refuse an environment that is none for the buffer in a snapshot.

    Args:
        kind: the class of the buffer.
        saved: its arguments in the snapshot.
        env: a vectorized environment, with the wrappers of the algorithm.
        path: of the snapshot.
        remedy: what to do with a buffer of as many environments as the snapshot has, in an error text.

    Raises:
        SpecError: it has another number of environments, or other spaces; the text names all that differs.
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
