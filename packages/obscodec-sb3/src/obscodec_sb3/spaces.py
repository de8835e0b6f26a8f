"""Spaces of observations and actions as states, of which snapshots consist."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from gymnasium import spaces
from obscodec import DTypeError
from obscodec.state import State, part_of

_PARTS: Final[dict[type[spaces.Space[Any]], Callable[[Any], State]]] = {
    spaces.Box: lambda box: {"low": box.low, "high": box.high, "shape": [*box.shape], "dtype": box.dtype.str},
    spaces.Discrete: lambda discrete: {"n": int(discrete.n), "start": int(discrete.start)},
    spaces.MultiDiscrete: lambda several: {"nvec": several.nvec, "start": several.start, "dtype": several.dtype.str},
    spaces.MultiBinary: lambda bits: {"n": bits.n if isinstance(bits.n, int) else [*bits.shape]},
    spaces.Dict: lambda by_key: {"spaces": {key: space_state(space) for key, space in by_key.items()}},
}
_KINDS: Final = {kind.__name__: kind for kind in _PARTS}


def space_state(space: spaces.Space[Any]) -> State:
    """What :func:`space_of` makes an equal space of.

    Raises:
        DTypeError: Stable-Baselines3 has no such observations or actions.
    """
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
