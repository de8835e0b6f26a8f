"""A CompressedStorage of which some rows are written again and again, and what it has to hold."""

import gc
from collections.abc import Callable
from typing import Any

import torch
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

N, N_WRITTEN, SHAPE = 24, 5, (3, 40, 40)
KEYS = ("pixels", "action", ("next", "pixels"))


class Rows:
    """Twenty-four rows, of which five are written at a time."""

    def __init__(self, **options: Any) -> None:
        self.generator = torch.Generator().manual_seed(0)
        self.storage = CompressedStorage(N, block_frames=4, **options)
        self.buffer = TensorDictReplayBuffer(storage=self.storage, batch_size=4)
        self.held = self._steps(N)
        self.buffer.extend(self.held)
        self.begin, self.new = 0, self.held

    def prepare(self) -> Callable[[], None]:
        """The next write, which is made when this is called."""
        self.begin = int(torch.randint(N - N_WRITTEN, (1,), generator=self.generator))
        self.new = self._steps(N_WRITTEN)
        return lambda: self.storage.set(range(self.begin, self.begin + N_WRITTEN), self.new)

    def check(self, what: str) -> None:
        """The rows that were prepared were written with all their leaves or none, and all others are as they were."""
        found, rows = self.storage[:], slice(self.begin, self.begin + N_WRITTEN)
        if (found["pixels"][rows] == self.new["pixels"]).all():
            self.held[rows] = self.new
        for key in KEYS:
            assert (found[key] == self.held[key]).all(), (key, what)

    def check_end(self) -> None:
        """It goes on, and keeps nothing that nobody asks for."""
        self.storage.set(range(N), self.held)
        self.check("at the end")
        gc.collect()
        stats: Any = self.storage.stats().fields["pixels"]
        assert stats.n_tensors <= 2 * N

    def _steps(self, n: int) -> TensorDict:
        pixels = torch.randint(256, (n + 1, *SHAPE), dtype=torch.uint8, generator=self.generator)
        pixels[1:, :-1] = pixels[:-1, 1:].clone()  # nearly the stack before
        action = torch.randint(100, (n, 1), generator=self.generator)
        following = TensorDict(pixels=pixels[1:].clone(), batch_size=n)
        return TensorDict(pixels=pixels[:-1].clone(), action=action, next=following, batch_size=n)
