"""Steps of an environment, to measure how its data compress."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.arguments import kind_of
from obscodec.errors import DTypeError

Array = npt.NDArray[np.generic]
OBSERVATION, NEXT = "observation", "next observation"


def is_space(x: object) -> bool:
    """Whether ``x`` is a space, as Gymnasium has them."""
    return hasattr(x, "sample") and hasattr(x, "contains") and not hasattr(x, "step")


def n_envs_of(env: object) -> int:
    """How many environments step together; 1 for a space. DTypeError if it is neither."""
    if isinstance(env, str):
        raise DTypeError(f"env must be an environment or a space of Gymnasium, got {env!r}: pass gym.make({env!r})")
    if not is_space(env) and not all(hasattr(env, name) for name in ("reset", "step", "action_space")):
        of_spaces = ": pass gymnasium.spaces.Dict(x) if it has spaces" if isinstance(env, Mapping) else ""
        raise DTypeError(f"env must be an environment or a space of Gymnasium, got {kind_of(env)}{of_spaces}")
    if hasattr(env, "env_method"):  # its methods have other arguments and results
        raise DTypeError(
            f"env must be an environment of Gymnasium, got {kind_of(env)} of Stable-Baselines3: pass one environment "
            "with the wrappers of the training"
        )
    return int(getattr(env, "num_envs", 1))


def random_steps(env: Any, n: int, seed: int | None = 0) -> Iterator[dict[str, Array]]:
    """``n`` steps with random actions; of a space alone, ``n`` random observations. ``seed`` seeds both.

    Yields:
        For each step the arrays ``[n_envs, *shape]`` of a transition, by name. A dictionary or a tuple of observations
        becomes several, such as ``"observation.image"``.
    """
    if is_space(env):
        env.seed(seed)
        before = env.sample()
        for _ in range(n):
            after = env.sample()
            yield _transition({OBSERVATION: before, NEXT: after}, is_vector=False)
            before = after
        return
    is_vector = hasattr(env, "num_envs")
    env.action_space.seed(seed)
    before, _ = env.reset(seed=seed)
    for _ in range(n):
        action = env.action_space.sample()
        after, reward, terminated, truncated, _ = env.step(action)
        values = {"action": action, "reward": reward, "terminated": terminated, "truncated": truncated}
        yield _transition({OBSERVATION: before, NEXT: after, **values}, is_vector=is_vector)
        before = env.reset()[0] if not is_vector and (terminated or truncated) else after  # a vector resets itself


def _transition(values: Mapping[str, Any], *, is_vector: bool) -> dict[str, Array]:
    arrays = dict(leaf for part, value in values.items() for leaf in leaves(part, value))
    return arrays if is_vector else {name: array[None] for name, array in arrays.items()}


def leaves(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    """The arrays in a value, a dictionary or a tuple of values, and the name of each, such as ``"name.key"``."""
    if isinstance(value, tuple):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(f"{name}.{key}", part)
    else:
        yield name, np.array(value)
