"""Stack: of which steps a stack is made, and what stands before the start of an episode."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from obscodec.errors import FieldError, SpecError
from obscodec.segments import Ints

Pad = Literal["edge", "zeros"]


class Stack(NamedTuple):
    """How a field is read as a stack of ``n`` steps; ``pad`` is what stands before the start of an episode.

    If it is the ``next_of`` a field, one step later, all of the stack but its last part is of that field.
    """

    n: int
    pad: Pad
    next_of: str | None

    @classmethod
    def of(cls, stack: Mapping[str, int], next_of: Mapping[str, str | None], pad: Pad | None) -> dict[str, Self]:
        """The stacks of the fields that have one: those named in ``stack``, and those that are one step later."""
        _check_pad(pad, stack)
        made: dict[str, Self] = {}
        for name, before in next_of.items():
            n = stack.get(name if before is None else before)
            if before is not None and stack.get(name, n) != n:
                raise FieldError(f"{name!r} is the next of {before!r}, and stacked as that is: leave it out of stack")
            if n is not None and pad is not None:
                made[name] = cls(n, pad, before)
        return made

    def pick(self, items: Callable[[str, Ints], Any], name: str, steps: Ints, n_inside: Ints) -> Any:
        """A stack of each step ``i64[...]``, ``[..., n, *shape]``, the oldest first.

        ``items`` returns what the array of a field has at steps; ``n_inside``, ``i64[...]``, tells how many of the last
        steps, up to each step, belong to its episode.
        """
        back = np.arange(self.n - 1, -1, -1)
        kept = np.minimum(back, n_inside[..., None] - 1)
        if self.next_of is None:
            picked = items(name, steps[..., None] - kept)
        else:  # the stack of the field before, one step on
            before = items(self.next_of, steps[..., None] - kept[..., 1:])
            picked = np.concatenate([before, items(name, steps[..., None])], axis=steps.ndim)
        if self.pad == "zeros" and n_inside.min(initial=self.n) < self.n:
            picked[back >= (n_inside + (self.next_of is not None))[..., None]] = 0
        return picked


def _check_pad(pad: object, stack: Mapping[str, int]) -> None:
    """Refuse a ``pad`` that is none, or that no stack reads: SpecError."""
    choices = "'edge' repeats the first one, as Gymnasium's FrameStackObservation; 'zeros' is as SB3's VecFrameStack"
    if stack and pad is None:
        raise SpecError(f"stacks need pad, what stands before the first step of an episode: {choices}")
    if pad is not None and pad not in ("edge", "zeros"):
        raise SpecError(f"pad must be 'edge' or 'zeros', got {pad!r}: {choices}")
    if pad is not None and not stack:
        raise SpecError("pad is for stacks: pass stack, too, or leave pad out")
