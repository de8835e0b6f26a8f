"""Extends a storage until the memory is full, in a process that has refused nothing before."""

import sys

import torch
from limited_memory import limited_memory
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict


def items(begin, n):
    """``n`` items from a number on."""
    seeded = [torch.Generator().manual_seed(t) for t in range(begin, begin + n)]
    pixels = torch.stack([torch.randint(256, (84, 84), dtype=torch.uint8, generator=seed) for seed in seeded])
    return TensorDict({"pixels": pixels, "n": torch.arange(begin, begin + n)}, batch_size=n)


def main(codec):
    """Write items, and look at all that were not refused."""
    storage = CompressedStorage(20_000, codec=codec)
    for begin in range(0, 600, 8):
        storage.set(range(begin, begin + 8), items(begin, 8))
    n_refused, end = 0, 600
    more = [items(begin, 8) for begin in range(end, 6000, 8)]  # here, since memory for them may be refused, too
    with limited_memory(0):
        while n_refused < 20 and more:
            try:
                storage.set(range(end, end + 8), more[0])
            except (MemoryError, RuntimeError):  # of torch
                n_refused += 1
            else:
                end += 8
                del more[0]
    storage.set(range(end, end + 8), items(end, 8))
    assert n_refused == 20
    for begin in range(0, end + 8, 40):
        assert (storage.get(slice(begin, begin + 8)) == items(begin, 8)).all()


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.write("all is there\n")
