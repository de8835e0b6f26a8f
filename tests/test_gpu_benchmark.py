"""``benchmarks/gpu.py`` on the simulated GPU: all of its ways to a batch, without CUDA graphs and clocks."""

import gpu
import gpu_readers
import pytest
import torch
from gpu_readers import Call

N = 700  # an AutoStore decides before


@pytest.fixture(autouse=True)
def simulated(torch_device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(read: Call, draw: Call) -> Call:
        def replay() -> None:
            draw()
            read()

        return replay

    monkeypatch.setattr(gpu_readers, "DEVICE", torch_device)
    monkeypatch.setattr(gpu_readers, "BATCH", 8)
    if torch_device.type == "cpu":
        monkeypatch.setattr(gpu_readers, "recorded", recorded)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def test_all_ways_give_the_same_batch() -> None:
    batches = gpu_readers.Batches(gpu_readers.filled("Pong", N), N)
    for call in batches.calls().values():
        call()
    batches.check()
    reader_outs = next(iter(batches._outs.values()))
    reader_outs[0][3] += 1
    with pytest.raises(AssertionError, match="gave another batch"):
        batches._compare()


def test_frames_on_the_gpu_are_encoded() -> None:
    calls = gpu.encoders(gpu.recorded_frames("Pong", 64))
    assert set(calls) == {"rle", "delta-rle", "FrameStore.append, which downloads, release"}
    for call in calls.values():
        call()
