"""A storage knows what it will take when it is full, and warns once if that is more than the machine has."""

import pytest
import torch
from obscodec.runtime import free_memory
from obscodec_torchrl import CompressedStorage
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

N_PIXELS = 84 * 84


def extend(storage: CompressedStorage, n: int, at_once: int) -> None:
    """Write items of half noise, in each of which the next frame is that of the item after it."""
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
    torch.manual_seed(0)
    frames = torch.zeros(n + 1, 1, 84, 84, dtype=torch.uint8)
    frames[:, :, :42] = torch.randint(256, (n + 1, 1, 42, 84), dtype=torch.uint8)
    for i in range(0, n, at_once):
        pixels, then = frames[i : i + at_once], frames[i + 1 : i + at_once + 1]
        buffer.extend(TensorDict(pixels=pixels, next=TensorDict(pixels=then, batch_size=at_once), batch_size=at_once))


def test_the_projection_is_what_the_full_storage_takes():
    part, full = CompressedStorage(8000), CompressedStorage(8000)
    extend(part, 800, 50)
    extend(full, 8000, 50)
    assert part.stats().projected_bytes == pytest.approx(full.stats().total_bytes, rel=0.15)
    assert full.stats().projected_bytes == full.stats().total_bytes


@pytest.mark.parametrize("at_once", [1, 50])
def test_a_storage_that_the_machine_has_no_memory_for_warns_once(at_once):
    storage = CompressedStorage(6 * free_memory() // N_PIXELS)
    with pytest.warns(
        UserWarning, match=rf"{storage.max_size} steps will take about .* judging by \d+ steps"
    ) as caught:
        extend(storage, 600, at_once)
    assert len(caught) == 1


def test_a_storage_with_a_limit_does_not_warn(tmp_path):
    storage = CompressedStorage(6 * free_memory() // N_PIXELS, max_bytes=free_memory() // 2, spill=tmp_path)
    extend(storage, 300, 10)  # a warning is an error
