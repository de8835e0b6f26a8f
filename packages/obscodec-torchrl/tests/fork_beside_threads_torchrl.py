"""Forks while a thread of TorchRL prefetches, or another thread extends: ``... FORKS [prefetch] [extend]``."""

import sys

import torch
from forks import fork_beside
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

SIZE = 120


def items(begin, end):
    """Items of these numbers."""
    n = torch.arange(begin, end)
    pixels = (n % 251).to(torch.uint8)[:, None, None].expand(-1, 32, 32).contiguous()
    return TensorDict({"pixels": pixels, "n": n}, batch_size=len(n))


def goes_on(storage):
    """Whether the storage has whole items, and takes others."""
    for begin in (0, 1000, 2000):
        if begin:
            storage.set(range(SIZE), items(begin, begin + SIZE))
        found = storage.get(slice(None))
        if not (found["pixels"] == items(0, 1)["pixels"] + (found["n"] % 251)[:, None, None]).all():
            return False
    return True


def main(kind, n_forks):
    """Fork so many times."""
    torch.set_num_threads(1)  # its other threads do not exist in a child
    storage = CompressedStorage(SIZE, codec="delta-rle")
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=16, prefetch=3)
    buffer.extend(items(0, 400))
    numbers = iter(range(400, 1 << 20, 5))

    def extend():
        begin = next(numbers)
        buffer.extend(items(begin, begin + 5))

    fork_beside([buffer.sample if kind == "prefetch" else extend], lambda: goes_on(storage), n_forks)
    assert goes_on(storage)


if __name__ == "__main__":
    for kind in sys.argv[2:]:  # in one process, which takes seconds to load torch
        main(kind, int(sys.argv[1]))
    sys.stdout.write(f"all children of {', '.join(sys.argv[2:])} ended\n")
