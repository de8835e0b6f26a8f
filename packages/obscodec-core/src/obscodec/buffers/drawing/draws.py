"""Draws: random steps, by generators of numpy and of PyTorch."""

import os
import reprlib
import sys
from collections.abc import Callable
from functools import cache
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from obscodec.errors import DTypeError, ShapeError, SlotError
from obscodec.segments import Ints

Drawable = Callable[[Ints, Ints], npt.NDArray[np.bool_]]  # whether steps ``i64[...]`` of ``i64[...]`` may be drawn
_MOST_DRAWS = 8  # before all steps are looked at, for those that can be drawn


class TorchGenerator(Protocol):
    """A ``torch.Generator``."""

    def initial_seed(self) -> int:
        """The seed it was made with."""


Rng: TypeAlias = np.random.Generator | TorchGenerator | int | None


def as_generator(rng: Rng) -> np.random.Generator:
    """``rng`` as a generator of numpy; one of PyTorch gives the seed of a new one, None is that of this process."""
    if rng is None:
        return _generator()
    if isinstance(rng, np.random.Generator):
        return rng
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(rng, torch.Generator):
        seed = torch.randint(1 << 62, (1,), generator=rng, device=rng.device)
        return np.random.default_rng(int(seed))
    try:
        return np.random.default_rng(rng)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        found = reprlib.repr(rng)
        raise DTypeError(
            f"rng must be a numpy.random.Generator, a torch.Generator, a seed of 0 or more, or None, got {found}"
        ) from None


@cache
def _generator() -> np.random.Generator:
    """A generator that the system has seeded; to make one takes longer than to draw a batch."""
    return np.random.default_rng()


if hasattr(os, "register_at_fork"):  # a child draws by itself
    os.register_at_fork(after_in_child=_generator.cache_clear)


def as_floats(what: str, value: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """``value``, an array of any library or numbers, as floats; DTypeError for others, or with a gradient."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError, RuntimeError):
        hint = "detach it" if getattr(value, "requires_grad", False) else "pass an array of them"
        raise DTypeError(f"{what} must be real numbers, got {reprlib.repr(value)}: {hint}") from None


def draw(
    rng: Rng,
    batch: int,
    shape: tuple[int, int],
    drawable: Drawable | None,
    replace: bool,
    p: npt.ArrayLike | None,
) -> tuple[Ints, Ints]:
    """Random steps and their environments, ``i64[batch]`` each, of those that are ``drawable``; None for all.

    ``shape`` is how many steps and environments there are, ``p`` the probability of each step, ``[n_steps, n_envs]`` or
    flat; None for equal ones.

    Raises:
        ShapeError: there are fewer steps to draw without replacement; or ``p`` has another shape, or is no probability.
        SlotError: no step may be drawn.
    """
    rng, (n_steps, n_envs) = as_generator(rng), shape
    if replace and p is None:
        steps = rng.integers(n_steps, size=batch)
        envs = rng.integers(n_envs, size=batch) if n_envs > 1 else np.zeros(batch, np.int64)  # which takes no bits
        if drawable is not None:
            _draw_again(rng, steps, envs, shape, drawable)
        return steps, envs
    among = n_steps * n_envs if drawable is None else drawable_steps(shape, drawable)
    probabilities = None if p is None else _probabilities(p, shape, among)
    if probabilities is not None:
        n_among = int(np.count_nonzero(probabilities))
    else:
        n_among = among if isinstance(among, int) else len(among)
    if not replace and batch > n_among:
        raise ShapeError(f"{n_among} steps can be drawn without replacement, got batch={batch}: ask for fewer")
    chosen = rng.choice(among, batch, replace, probabilities)
    return chosen // n_envs, chosen % n_envs


def drawable_steps(shape: tuple[int, int], drawable: Drawable) -> Ints:
    """The flat indices ``i64[n]`` of all steps that may be drawn; SlotError if there is none."""
    steps, envs = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
    found: Ints = np.flatnonzero(drawable(steps, envs))
    if not len(found):
        raise SlotError("the mask is False in all steps, or they were taken out: append one that can be drawn")
    return found


def _draw_again(rng: np.random.Generator, steps: Ints, envs: Ints, shape: tuple[int, int], drawable: Drawable) -> None:
    """Draw steps that may not be drawn anew, until none is left."""
    again = np.flatnonzero(~drawable(steps, envs))
    for _ in range(_MOST_DRAWS):
        if not len(again):
            return
        steps[again], envs[again] = rng.integers(shape[0], size=len(again)), rng.integers(shape[1], size=len(again))
        again = again[~drawable(steps[again], envs[again])]
    if len(again):
        steps[again], envs[again] = np.divmod(rng.choice(drawable_steps(shape, drawable), len(again)), shape[1])


def _probabilities(p: npt.ArrayLike, shape: tuple[int, int], among: int | Ints) -> npt.NDArray[np.float64]:
    given = as_floats("p", p)
    if given.shape not in (shape, (shape[0] * shape[1],)):
        raise ShapeError(f"p has a probability for each step and environment, {shape}, got shape {given.shape}")
    flat = given.reshape(-1) if isinstance(among, int) else given.reshape(-1)[among]
    if not (flat.min() >= 0 and 0 < flat.max() < np.inf):
        raise ShapeError("p must be numbers of 0 or more, of which one is not 0")
    flat = flat / flat.max()  # the sum stays finite
    return np.asarray(flat / flat.sum())
