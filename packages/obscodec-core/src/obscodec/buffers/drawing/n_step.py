"""NStep: what several steps together return."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count
from obscodec.buffers.drawing.draws import Drawable
from obscodec.errors import DTypeError, FieldError, ShapeError
from obscodec.segments import Ints


class NStep(NamedTuple):
    """Sums of the discounted rewards of ``n`` steps, fewer where an episode ends or no more are stored.

    Attributes:
        n: how many steps.
        gamma: the discount of a step.
        reward: the field of the rewards.
    """

    n: int
    gamma: float
    reward: str

    @classmethod
    def of(cls, n_step: object, gamma: object, reward: str) -> "NStep | None":
        """Of the arguments of a method; None for none.

        Raises:
            FieldError: one of ``n_step`` and ``gamma`` is missing.
            ShapeError: ``n_step`` is less than 1, or ``gamma`` not in 0..1.
            DTypeError: an argument has another type.
        """
        if n_step is None and gamma is None:
            return None
        if n_step is None or gamma is None:
            raise FieldError("n_step and gamma belong together: pass both, such as n_step=3, gamma=0.99")
        if not isinstance(gamma, (int, float, np.integer, np.floating)) or isinstance(gamma, bool):
            raise DTypeError(f"gamma must be a number of 0 to 1, got {gamma!r}")
        if not 0 <= gamma <= 1:
            raise ShapeError(f"gamma must be 0 to 1, got {gamma}")
        return cls(as_count("n_step", n_step), float(gamma), reward)

    def check(self, dtype: np.dtype[np.generic]) -> None:
        """Refuse rewards that are no floats."""
        if dtype.kind != "f":
            raise DTypeError(f"n_step adds rewards of float16, float32 or float64, field {self.reward!r} is {dtype}")

    def last(self, steps: Ints, envs: Ints, n_stored: int, ends: Drawable, drawable: Drawable) -> Ints:
        """The last step of each, ``i64[batch]``.

        Args:
            steps: ``i64[batch]``, the first steps.
            envs: ``i64[batch]``, their environments.
            n_stored: the number of the step after the last one that is stored.
            ends: whether the episode of a step ends with it.
            drawable: whether a step belongs to an episode.
        """
        last, goes_on = steps.copy(), np.ones(len(steps), np.bool_)
        for _ in range(1, self.n):
            following = np.minimum(last + 1, n_stored - 1)
            goes_on &= (following > last) & ~ends(last, envs) & drawable(following, envs)
            if not goes_on.any():
                break
            last += goes_on
        return last

    def returns(
        self, rewards: npt.NDArray[np.floating], n_steps: Ints
    ) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
        """The discounted rewards, ``[batch, *shape]``, and the discounts of what follows, ``[batch]``.

        Args:
            rewards: ``[batch, m, *shape]``, from the first step on; ``m`` is up to ``n``.
            n_steps: ``i64[batch]``, how many of them count.
        """
        step = np.arange(rewards.shape[1])
        weights = self.gamma**step * (step < n_steps[:, None])
        weights = np.reshape(weights, (*weights.shape, *(1 for _ in rewards.shape[2:])))
        with np.errstate(invalid="ignore"):  # an infinite reward that does not count
            summed = np.where(weights == 0, 0, weights * rewards).sum(axis=1)
        return summed.astype(rewards.dtype), (self.gamma**n_steps).astype(rewards.dtype)
