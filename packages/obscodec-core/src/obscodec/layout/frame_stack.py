"""FrameStack: how an observation is made of frames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, kind_of
from obscodec.errors import DTypeError, ShapeError
from obscodec.layout.layout import Layout


@dataclass(frozen=True, slots=True)
class FrameStack:
    """How an observation is made of frames.

    Attributes:
        depth: the number of frames.
        axis: 0 or -1, the axis along which they are stacked, oldest first; ``depth`` times a frame's channels long.

    Raises:
        DTypeError: ``depth`` is no number.
        ShapeError: ``depth`` is less than 1, or ``axis`` is neither 0 nor -1.
    """

    depth: int
    axis: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", as_count("depth", self.depth))
        axis = self.axis
        if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool) or axis not in (0, -1):
            raise ShapeError(f"axis must be 0 or -1, got {axis!r}")
        object.__setattr__(self, "axis", int(axis))

    def config(self) -> dict[str, int]:
        """Plain JSON values, the arguments of an equal one."""
        return {"depth": self.depth, "axis": self.axis}

    @classmethod
    def of(cls, frame_stack: FrameStack | int | None) -> FrameStack | None:
        """A FrameStack or None as it is; a number as that many frames along axis 0.

        Raises:
            DTypeError: ``frame_stack`` is something else.
            ShapeError: the number is less than 1.
        """
        if frame_stack is None or isinstance(frame_stack, FrameStack):
            return frame_stack
        try:
            return cls(as_count("frame_stack", frame_stack))
        except DTypeError:
            described = "a FrameStack, such as FrameStack(4, axis=-1), or a whole number"
            raise DTypeError(f"frame_stack must be {described}, got {kind_of(frame_stack)}") from None

    def frame_layout(self, layout: Layout) -> Layout:
        """The layout of one frame, channels first, of observations of ``layout``.

        Raises:
            ShapeError: the axis does not divide into ``depth`` frames.
        """
        if not layout.shape:
            raise ShapeError(f"frames are stacked along axis {self.axis}, an observation of shape () has none")
        length = layout.shape[self.axis]
        if length % self.depth:
            raise ShapeError(f"axis {self.axis} of shape {layout.shape} does not divide into {self.depth} frames")
        rest = layout.shape[1:] if self.axis == 0 else layout.shape[:-1]
        return Layout((length // self.depth, *rest), layout.dtype)

    def split(self, tensors: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """``[n, *shape]`` as frames ``[n * depth, channels, *rest]``; a view if frames are stacked along axis 0."""
        first = tensors if self.axis == 0 else np.moveaxis(tensors, -1, 1)
        return first.reshape(len(tensors) * self.depth, first.shape[1] // self.depth, *first.shape[2:])

    def join(self, frames: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """The inverse of :meth:`split`, always a view."""
        first = frames.reshape(len(frames) // self.depth, self.depth * frames.shape[1], *frames.shape[2:])
        return first if self.axis == 0 else np.moveaxis(first, 1, -1)
