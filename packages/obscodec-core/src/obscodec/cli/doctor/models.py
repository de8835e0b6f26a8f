"""Models: which algorithm and policy of Stable-Baselines3 suit the fields of a source."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.cli.doctor.played import Played

_LEAST_SIDE = 36  # of an image for the NatureCNN of Stable-Baselines3
Shaped = tuple[tuple[int, ...], npt.DTypeLike]
DQN, SAC, PPO = "DQN", "SAC", "PPO"


def algorithm_of(space: Any) -> str | None:
    """An algorithm that takes actions of a space of Gymnasium, None if there is none."""
    kind = _kind(space)
    if kind == "Discrete":
        return DQN if space.start == 0 else None
    if kind == "Box":  # of floats for SAC
        return None if not space.is_bounded() else SAC if np.issubdtype(space.dtype, np.floating) else PPO
    return PPO if kind in ("MultiDiscrete", "MultiBinary") else None


def algorithm_of_recorded(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """An algorithm that takes actions such as the recorded ones."""
    if dtype.kind == "f":
        return SAC
    return DQN if shape in ((), (1,)) else PPO


def policy_of(played: Played) -> str | None:
    """A policy that takes the observations, None if there is none."""
    space = played.observation_space
    if _kind(space) == "Dict":
        return policy_of_parts([_shaped(of) for of in space.spaces.values()])
    return None if (shaped := _shaped(space)) is None else policy_of_array(shaped)


def policy_of_array(shaped: Shaped) -> str:
    """A policy that takes observations of a shape and a dtype."""
    return "CnnPolicy" if _is_image(*shaped) and _is_large(shaped[0]) else "MlpPolicy"


def policy_of_parts(parts: Sequence[Shaped | None]) -> str | None:
    """A policy that takes dictionaries of observations, None if one part is none that it takes.

    It passes each image to a NatureCNN, which takes no smaller ones; all must have their channels first, or all last.
    """
    shaped = [of for of in parts if of is not None]
    images = [shape for shape, dtype in shaped if _is_image(shape, dtype)]
    orders = {bool(np.argmin(shape)) for shape in images}
    suits = len(shaped) == len(parts) and all(map(_is_large, images)) and len(orders) < 2
    return "MultiInputPolicy" if suits else None


def _kind(space: Any) -> str:
    """The name of the class of Gymnasium that a space is of."""
    return next((of.__name__ for of in type(space).__mro__ if of.__module__.startswith("gymnasium.spaces")), "")


def _shaped(space: Any) -> Shaped | None:
    """The shape and dtype of observations; None if Stable-Baselines3 does not take them."""
    if _kind(space) not in ("Box", "Discrete", "MultiDiscrete", "MultiBinary"):
        return None
    if _kind(space) == "Box" and ((space.low != 0).any() or (space.high != 255).any()):
        return space.shape, np.float32  # no image, whatever its dtype
    return space.shape, space.dtype


def _is_image(shape: tuple[int, ...], dtype: npt.DTypeLike) -> bool:
    return len(shape) == 3 and np.dtype(dtype) == np.uint8


def _is_large(shape: tuple[int, ...]) -> bool:
    """Whether an image has the least sides, beside the shortest axis, which are its channels."""
    return min(shape[1:] if np.argmin(shape) == 0 else shape[:2]) >= _LEAST_SIDE
