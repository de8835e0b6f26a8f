"""Transitions of several environments, compressed and uncompressed."""

import numpy as np
import obscodec
from obscodec import FrameStack, Layout, TensorArray

from gpu_parts.frames import DEPTH, Frames


class Transitions:
    """Observations and next observations of some environments that take their steps together.

    Args:
        frames: ``u8[m, 84, 84]``, which each environment goes through in a circle, each from another one on.
        n: how many transitions; of each environment, ``n // n_envs``.
        n_envs: environments.

    Attributes:
        n_steps: of each environment.
    """

    def __init__(self, frames: Frames, n: int, n_envs: int) -> None:
        self._frames = frames
        self._begins = np.arange(n_envs) * (len(frames) // n_envs)
        self.n_steps, self.n_envs = n // n_envs, n_envs
        self.shape = (DEPTH, *frames.shape[1:])

    def step(self, t: int) -> tuple[Frames, Frames]:
        """Observations ``u8[n_envs, 4, 84, 84]`` before and after step ``t`` of all environments."""
        numbers = (self._begins + t)[:, None] + np.arange(1 - DEPTH, 2)
        frames = self._frames[numbers % len(self._frames)]
        return frames[:, :-1], frames[:, 1:]

    def compressed(self, heap: str) -> list[TensorArray]:
        """Two arrays ``[n_steps, n_envs]`` on the GPU."""
        layout = Layout(self.shape, "uint8")
        store = obscodec.AutoStore(layout, codec="delta-rle", frame_stack=FrameStack(DEPTH), device="cuda", heap=heap)
        arrays = [TensorArray.zeros((self.n_steps, self.n_envs), store) for _ in range(2)]
        for t in range(self.n_steps):
            self.assign(arrays, t)
        store.decide()
        return arrays

    def assign(self, arrays: list[TensorArray], t: int) -> None:
        """Write step ``t`` into arrays, over the oldest one if they are full."""
        for array, x in zip(arrays, self.step(t), strict=True):
            array[t % self.n_steps] = x
