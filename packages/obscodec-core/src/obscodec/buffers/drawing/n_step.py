"""NStep: the return of several steps."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_number
from obscodec.buffers.drawing.draws import Drawable
from obscodec.errors import FieldError
from obscodec.segments import Ints


class NStep(NamedTuple):
    """Sums of the rewards of ``n`` steps, discounted by ``gamma``; fewer where an episode ends, or none are stored."""

    n: int
    gamma: float

    @classmethod
    def of(cls, n_step: object, gamma: object) -> "NStep | None":
        """Of the arguments of a method, which are checked; None for none."""
        if n_step is None and gamma is None:
            return None
        n = None if n_step is None else as_count("n_step", n_step)
        discount = None if gamma is None else as_number("gamma", gamma, 1)
        if n is None or discount is None:
            raise FieldError("n_step and gamma belong together: pass both, such as n_step=3, gamma=0.99")
        return cls(n, discount)

    def last(self, steps: Ints, envs: Ints, n_stored: int, ends: Drawable, drawable: Drawable) -> Ints:
        """The last step of each of the first ones, ``i64[batch]``; ``n_stored`` is one more than the last stored."""
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

        ``rewards`` are ``[batch, m, *shape]`` from the first step on, of which the first ``n_steps``, ``i64[batch]``,
        count.
        """
        step = np.arange(rewards.shape[1])
        weights = self.gamma**step * (step < n_steps[:, None])
        weights = np.reshape(weights, (*weights.shape, *(1 for _ in rewards.shape[2:])))
        with np.errstate(invalid="ignore"):  # an infinite reward that does not count
            summed = np.where(weights == 0, 0, weights * rewards).sum(axis=1)
        return summed.astype(rewards.dtype), (self.gamma**n_steps).astype(rewards.dtype)
