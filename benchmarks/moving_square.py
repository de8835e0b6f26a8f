"""An environment for TorchRL's collectors, and a worker, in a file that other processes can import."""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from torch.multiprocessing import Queue
from torchrl.data import Composite, OneHot, TensorDictReplayBuffer, Unbounded
from torchrl.envs import CatFrames, EnvBase, TransformedEnv


class MovingSquare(EnvBase):  # type: ignore[misc]
    """A white square that moves to the right, for some steps."""

    def __init__(self, speed: int = 1) -> None:
        super().__init__(batch_size=[])
        self.observation_spec = Composite(pixels=Unbounded((1, 40, 40), dtype=torch.uint8))
        self.action_spec = OneHot(2)
        self.reward_spec = Unbounded((1,))
        self.speed, self.at = speed, 0

    def _frame(self) -> torch.Tensor:
        pixels = torch.zeros(1, 40, 40, dtype=torch.uint8)
        pixels[0, 10:16, self.at : self.at + 6] = 255
        return pixels

    def _reset(self, tensordict: TensorDictBase | None) -> TensorDict:
        self.at = 0
        return TensorDict({"pixels": self._frame(), "done": torch.zeros(1, dtype=torch.bool)})

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        self.at += self.speed
        done = torch.tensor([self.at > 30])
        return TensorDict({"pixels": self._frame(), "reward": torch.ones(1), "done": done, "terminated": done})

    def _set_seed(self, seed: int | None) -> None:
        torch.manual_seed(seed or 0)


def stacked_square(speed: int = 1) -> TransformedEnv:
    """The same with stacks of four frames as observations."""
    return TransformedEnv(MovingSquare(speed), CatFrames(4, dim=-3, in_keys=["pixels"]))


def read_and_write(buffer: TensorDictReplayBuffer, begin: int, results: Queue[object]) -> None:
    """Use a buffer in a worker process: read, write numbered steps, read them, write some that lack a key."""
    results.put(buffer[torch.arange(20)]["pixels"].sum().item())
    numbers = torch.arange(begin, begin + 10)
    pixels = numbers.to(torch.uint8)[:, None, None, None].expand(10, 1, 40, 40)
    rows = buffer.extend(TensorDict({"pixels": pixels, "number": numbers}, [10]))
    results.put(bool((buffer[rows]["number"] == numbers).all() and (buffer[rows]["pixels"] == pixels).all()))
    results.put(buffer.sample().batch_size[0])
    try:
        buffer.storage.set(rows, TensorDict({"pixels": pixels}, [10]))
    except LookupError as error:
        results.put(str(error))
