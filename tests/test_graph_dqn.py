"""The example of a DQN in a CUDA graph learns from what was written, on a simulated GPU without its graph."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from cuda_on_cpu.device import SimulatedDevice
from obscodec_cupy.device import opened

SHAPE = 4, 28, 28
N_STEPS, N_ENVS, BATCH = 40, 2, 16


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, on a simulated GPU for which tensors of torch on the CPU are its own."""
    simulated = SimulatedDevice(eager=True)
    monkeypatch.setattr(opened, "device", lambda name: simulated)
    for name in ("ale_py", "typer"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["ale_py"], "AtariVectorEnv", None, raising=False)
    import graph_dqn

    return graph_dqn


def test_an_update_reads_what_was_written_and_learns(example: ModuleType) -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    steps = rng.integers(0, 256, (N_STEPS + 9, N_ENVS, *SHAPE), np.uint8)
    kinds = [example.Compressed(N_STEPS, N_ENVS, SHAPE), example.Plain(N_STEPS, N_ENVS, "cpu", SHAPE)]
    learners = [example.Learner(images, N_STEPS * N_ENVS, 3, BATCH, "cpu", SHAPE) for images in kinds]
    learners[1].network.load_state_dict(learners[0].network.state_dict())
    learners[1].target.load_state_dict(learners[0].target.state_dict())
    for step in range(N_STEPS + 8):  # over the oldest steps
        given = rng.integers(0, 3, N_ENVS), rng.random(N_ENVS, np.float32), rng.random(N_ENVS) < 0.1
        for learner in learners:
            learner.write(step % N_STEPS, steps[step], steps[step + 1], *given)
    for learner in learners:
        learner.images.sync(learner.places)
        torch.manual_seed(1)
        losses = []
        for _ in range(20):
            learner.update()
            losses.append(learner.loss.item())
        assert np.mean(losses[-5:]) < np.mean(losses[:5])
    assert torch.equal(learners[0].places, learners[1].places)
    for found, expected in zip(learners[0].batch, learners[1].batch, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)
    torch.testing.assert_close(learners[0].loss, learners[1].loss)
