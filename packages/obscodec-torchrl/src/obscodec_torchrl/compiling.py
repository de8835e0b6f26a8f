"""What torch.compile leaves as it is."""

from collections.abc import Callable
from typing import TypeVar, cast

import torch

_F = TypeVar("_F", bound=Callable[..., object])


def not_compiled(function: _F) -> _F:
    """A function that compiled code calls with a graph break."""
    reason = "a CompressedStorage is called from compiled code, but not compiled: leave fullgraph=True out"
    return cast("_F", torch.compiler.disable(function, reason=reason))  # type: ignore[no-untyped-call]
