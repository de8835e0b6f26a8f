"""A compressed buffer that is played into, and what it has to hold."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from obscodec_sb3 import CompressedReplayBuffer

N_STEPS, N_ENVS = 8, 2
SPACES = spaces.Box(0, 255, (3, 84, 84), np.uint8), spaces.Discrete(100)
NAMES = ("observations", "next_observations", "actions", "rewards", "dones")


class Play:
    """Steps on their way into a buffer of eight, and the rows that are in it."""

    def __init__(self, **options: Any) -> None:
        self.rng = np.random.default_rng(0)
        self.buffer = CompressedReplayBuffer(N_STEPS * N_ENVS, *SPACES, "cpu", N_ENVS, **options, block_frames=4)
        self.rows: dict[int, dict[str, np.ndarray]] = {}
        self.frames = self.rng.integers(256, size=(N_ENVS, 3, 84, 84), dtype=np.uint8)
        self.given: dict[str, np.ndarray] = {}
        self.at = 0

    def prepare(self) -> Callable[[], None]:
        """The next step, to be added."""
        new = self.frames[:, -1:].copy()
        new[:, 0, self.rng.integers(40), self.rng.integers(40)] += 1
        after = np.concatenate([self.frames[:, 1:], new], axis=1)
        action, reward, done = (self.rng.integers(100, size=N_ENVS) for _ in range(3))
        step = (self.frames, after, action[:, None], reward.astype("f4"), (done > 90).astype("f4"))
        self.given = dict(zip(NAMES, step, strict=True))
        self.frames, self.at, infos = after, self.buffer.pos, [{}] * N_ENVS
        return lambda: self.buffer.add(*step, infos)

    def stored(self) -> None:
        """The step that was prepared is in the buffer."""
        self.rows[self.at] = self.given

    def check(self, what: str) -> None:
        """The step was added or not, and each one before it is as it was."""
        if self.buffer.pos != self.at:
            self.stored()
        for name in NAMES:
            found = getattr(self.buffer, name)[:]
            for at, row in self.rows.items():
                np.testing.assert_array_equal(found[at], row[name], err_msg=f"{name}[{at}]: {what}")
