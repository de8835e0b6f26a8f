# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
#     "obscodec-torchrl",
#     "numba==0.68.1",
#     "numpy==2.4.6",
#     "tensordict==0.14.3",
#     "torch==2.15.0",
#     "torchrl==0.14.1",
#     "typer==0.29.2",
# ]
#
# [tool.uv.sources]  # of this checkout
# obscodec = { path = "../packages/obscodec-core", editable = true }
# obscodec-torchrl = { path = "../packages/obscodec-torchrl", editable = true }
# ///
"""A replay buffer with the interface of ObjectRL's, over TorchRL's buffer with a compressed storage.

It is saved and loaded as a whole. It returns single fields by index without decoding the others, and shuffled epochs
without decoding more than a batch at a time.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import typer
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer


class EpochBuffer:
    """Transitions that can be read at random, by index, in order, or in shuffled epochs.

    Args:
        capacity: the most transitions to keep.
        batch: how many transitions a batch has.
    """

    def __init__(self, capacity: int, batch: int) -> None:
        self.batch = batch
        self.memory = TensorDictReplayBuffer(storage=CompressedStorage(capacity), batch_size=batch)

    def add(self, transitions: TensorDict) -> None:
        """Store a batch of transitions."""
        self.memory.extend(transitions)

    def sample(self) -> TensorDict:
        """A random batch."""
        return self.memory.sample()

    def sample_by_index(
        self, index: torch.Tensor, field: str | tuple[str, ...] | None = None
    ) -> torch.Tensor | TensorDict:
        """The transitions at ``index``, or one field of them; only that field is decoded."""
        return self.memory[index] if field is None else self.memory.storage[:].get(field)[index]

    def sample_all(self) -> Iterator[TensorDict]:
        """All transitions in order, a batch at a time."""
        for index in torch.split(torch.arange(len(self.memory)), self.batch):
            yield self.memory[index]

    def epoch(self) -> Iterator[TensorDict]:
        """All transitions in a new order, a batch at a time."""
        for index in torch.split(torch.randperm(len(self.memory)), self.batch):
            yield self.memory[index]

    def save(self, path: Path) -> None:
        """Write the whole buffer into a folder."""
        self.memory.dumps(path)

    def load(self, path: Path) -> None:
        """Restore the whole buffer from a folder."""
        self.memory.loads(path)


def main(steps: int = 1_000) -> None:
    """Show each method on made-up images."""
    buffer = EpochBuffer(10 * steps, batch=64)
    pixels = torch.arange(steps + 1, dtype=torch.int32).remainder(251).to(torch.uint8)[:, None, None].expand(-1, 84, 84)
    following = TensorDict({"pixels": pixels[1:], "reward": torch.arange(steps).float()}, [steps])
    buffer.add(TensorDict({"pixels": pixels[:-1], "next": following}, [steps]))
    assert (buffer.sample_by_index(torch.tensor([5, 3]), ("next", "pixels"))[:, 0, 0] == torch.tensor([6, 4])).all()
    seen = torch.cat([batch["next", "reward"] for batch in buffer.epoch()])
    assert not torch.equal(seen, torch.arange(steps).float())
    assert torch.equal(seen.sort().values, torch.arange(steps).float())
    with tempfile.TemporaryDirectory() as folder:
        buffer.save(Path(folder) / "buffer")
        restored = EpochBuffer(10 * steps, batch=64)
        restored.load(Path(folder) / "buffer")
    for given, expected in zip(restored.sample_all(), buffer.sample_all(), strict=True):
        assert (given == expected).all()
    print(f"{steps} transitions were restored, and each was in the shuffled epoch exactly once")


if __name__ == "__main__":
    typer.run(main)
