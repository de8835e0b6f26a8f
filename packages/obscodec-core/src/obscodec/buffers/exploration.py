"""Steps of an environment, to measure how its data compress."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.arguments import kind_of
from obscodec.buffers.field import Array
from obscodec.errors import DTypeError, ShapeError

Policy = Callable[[Any], npt.ArrayLike]
OBSERVATION, NEXT = "observation", "next observation"
OF_MODEL = "pass lambda observations: model.predict(observations)[0]"  # the policy of a model of Stable-Baselines3


def is_space(x: object) -> bool:
    """Whether ``x`` is a space, as Gymnasium has them."""
    return hasattr(x, "sample") and hasattr(x, "contains") and not hasattr(x, "step")


def is_vec_env(x: object) -> bool:
    """Whether ``x`` is a vector of Stable-Baselines3, whose methods have other arguments and results."""
    return hasattr(x, "env_method")


def n_envs_of(env: object) -> int:
    """How many environments step together; 1 for a space. DTypeError if it is neither."""
    wanted = "env must be an environment or a space of Gymnasium, or a vector of environments"
    if isinstance(env, str):
        raise DTypeError(f"{wanted}, got {env!r}: pass gym.make({env!r})")
    if not is_space(env) and not all(hasattr(env, name) for name in ("reset", "step", "action_space")):
        of_spaces = ": pass gymnasium.spaces.Dict(x) if it has spaces" if isinstance(env, Mapping) else ""
        raise DTypeError(f"{wanted}, got {kind_of(env)}{of_spaces}")
    return int(getattr(env, "num_envs", 1))


def play(env: Any, n: int, seed: int | None = 0, policy: Policy | None = None) -> Iterator[dict[str, Array]]:
    """``n`` steps of a policy, or with random actions; of a space alone, ``n`` random observations.

    ``seed`` seeds the environment and the random actions.

    Yields:
        For each step the arrays ``[n_envs, *shape]`` of a transition, by name. A dictionary or a tuple of observations
        becomes several, such as ``"observation.image"``.
    """
    if is_space(env):
        yield from _noise(env, n, seed)
        return
    is_vector, step = hasattr(env, "num_envs"), _vec_env_step if is_vec_env(env) else _step
    env.action_space.seed(seed)
    if is_vec_env(env):
        # With None, it would draw from numpy's global generator.
        env.seed(int(np.random.default_rng().integers(1 << 31)) if seed is None else seed)
        observation = env.reset()
    else:
        observation, _ = env.reset(seed=seed)
    for _ in range(n):
        action = _random_action(env) if policy is None else _action(policy, observation, n_envs_of(env), is_vector)
        before = dict(leaves(OBSERVATION, observation))  # a copy: the environment may write into its arrays
        observation, values = step(env, action)
        arrays = before | {name: array for part, value in values.items() for name, array in leaves(part, value)}
        yield arrays if is_vector else {name: array[None] for name, array in arrays.items()}


def _noise(space: Any, n: int, seed: int | None) -> Iterator[dict[str, Array]]:
    space.seed(seed)
    before = space.sample()
    for _ in range(n):
        after = space.sample()
        yield {name: of[None] for part in ((OBSERVATION, before), (NEXT, after)) for name, of in leaves(*part)}
        before = after


def _step(env: Any, action: Any) -> tuple[Any, dict[str, Any]]:
    """The observation to go on with, and the transition without its first observation."""
    after, reward, terminated, truncated, _ = env.step(action)
    values = {NEXT: after, "action": action, "reward": reward, "terminated": terminated, "truncated": truncated}
    is_over = not hasattr(env, "num_envs") and (terminated or truncated)  # a vector resets itself
    return env.reset()[0] if is_over else after, values


def _vec_env_step(env: Any, action: Any) -> tuple[Any, dict[str, Any]]:
    """The same of a vector of Stable-Baselines3, whose infos have the last observations of episodes."""
    following, reward, done, infos = env.step(action)
    truncated = done & np.array([bool(info.get("TimeLimit.truncated")) for info in infos])
    after = dict(leaves(NEXT, following))
    for k in np.flatnonzero(done):
        for name, last in leaves(NEXT, infos[k]["terminal_observation"]):
            after[name][k] = last
    return following, {
        **after,
        "action": action,
        "reward": reward,
        "terminated": done & ~truncated,
        "truncated": truncated,
    }


def _random_action(env: Any) -> Any:
    sample = env.action_space.sample
    return np.stack([sample() for _ in range(env.num_envs)]) if is_vec_env(env) else sample()


def _action(policy: Policy, observation: Any, n_envs: int, is_vector: bool) -> Any:
    """What a policy does. ShapeError if it returns no batch of actions."""
    actions = policy(observation if is_vector else _batched(observation))
    wanted = f"policy must return an array of actions, [{n_envs}, ...], for a batch of {n_envs} observations"
    if isinstance(actions, tuple):
        raise ShapeError(f"{wanted}, got a tuple: {OF_MODEL}")
    try:
        actions = np.asarray(actions)
    except ValueError as error:
        raise ShapeError(f"{wanted}, got {kind_of(actions)}: {error}") from None
    if actions.shape[:1] != (n_envs,):
        raise ShapeError(f"{wanted}, got shape {actions.shape}")
    return actions if is_vector else actions[0]


def _batched(observation: Any) -> Any:
    if isinstance(observation, tuple):
        return tuple(map(_batched, observation))
    if isinstance(observation, Mapping):
        return {key: _batched(part) for key, part in observation.items()}
    return np.asarray(observation)[None]


def leaves(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    """The arrays in a value, a dictionary or a tuple of values, and the name of each, such as ``"name.key"``."""
    if isinstance(value, tuple):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(f"{name}.{key}", part)
    else:
        yield name, np.array(value)
