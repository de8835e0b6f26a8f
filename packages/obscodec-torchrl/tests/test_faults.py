"""Rows that are not written stay as they were, whatever ends a write, at any line; what is written is old or new."""

import gc
import os
from typing import Any

import pytest
import torch
from faults import at_every_line
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

STEP = int(os.environ.get("OBSCODEC_FAULT_STEP", "23"))
N, SHAPE = 24, (3, 40, 40)
KEYS = ("pixels", "action", ("next", "pixels"))


def steps(generator: torch.Generator, n: int) -> TensorDict:
    pixels = torch.randint(256, (n + 1, *SHAPE), dtype=torch.uint8, generator=generator)
    pixels[1:, :-1] = pixels[:-1, 1:].clone()  # nearly the stack before
    action = torch.randint(100, (n, 1), generator=generator)
    return TensorDict(
        pixels=pixels[:-1].clone(),
        action=action,
        next=TensorDict(pixels=pixels[1:].clone(), batch_size=n),
        batch_size=n,
    )


@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(("codec", "decide_after"), [("delta-rle", 8), ("zstd:1", 8), ("auto", 100_000)])
def test_an_extend_that_is_interrupted_changes_its_rows_or_none(codec: str, decide_after: int, raised: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    storage = CompressedStorage(N, codec=codec, decide_after=decide_after, block_frames=4)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
    held = steps(generator, N)
    buffer.extend(held)
    given: list[Any] = [None, None]
    n_interrupts = 0

    def prepare() -> Any:
        given[:] = int(torch.randint(N - 5, (1,), generator=generator)), steps(generator, 5)
        return lambda: storage.set(range(given[0], given[0] + 5), given[1])

    for where in at_every_line(prepare, STEP, raised):
        n_interrupts += 1
        begin, new = given
        found, rows = storage[:], slice(begin, begin + 5)
        for key in KEYS:
            if (found[key][rows] == new[key]).all():
                held[key][rows] = new[key]
            assert (found[key] == held[key]).all(), (key, where)
        buffer.sample()
    assert n_interrupts > 300 // STEP
    storage.set(range(N), held)  # it goes on
    assert all((storage[:][key] == held[key]).all() for key in KEYS)
    gc.collect()
    assert storage.stats().fields["pixels"].n_tensors <= 2 * N  # and nothing is kept that nobody asks for
