"""How long buffers of SB3 and TorchRL take until a batch is on the GPU, next to the stock ones."""

import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from gpu_parts import ROOT
from gpu_parts.buffers import Transitions
from gpu_parts.frames import played
from gpu_parts.machine import Machine, SimulatedGpu, host_us, nothing
from gpu_parts.record import Record

_BATCHES = 32, 256
_N_ITEMS = 256  # of a call of ``extend``


def run(machine: Machine, record: Record) -> None:
    """Rows with µs of the CPU's clock: until a sample is on the GPU, and until a call returns that stores steps."""
    if isinstance(machine, SimulatedGpu):
        _simulate_tensors()
    name, frames = played(machine.sizes.n // 5, tiny=machine.sizes.tiny)
    transitions = Transitions(frames, machine.sizes.n, machine.sizes.n_envs)
    for library, adapter, of_library in (
        ("stable_baselines3", "obscodec_sb3", _Sb3),
        ("torchrl", "obscodec_torchrl", _TorchRL),
    ):
        missing = [package for package in ("torch", library, adapter) if find_spec(package) is None]
        if missing:
            record.left_out(f"buffers of {library}", f"{', '.join(missing)} not installed")
            continue
        timed = of_library(transitions)
        for way in timed.ways:
            with record.check(f"{library}, {way}"):
                _time(machine, record, {"data": name, "library": library, "way": way}, timed, way)


def _time(machine: Machine, record: Record, about: dict[str, str], timed: "_Sb3 | _TorchRL", way: str) -> None:
    timed.fill(way)
    for n in _BATCHES:
        timed.check(n)

        def sample(n: int = n) -> None:
            timed.sample(n)
            machine.synchronize()

        measured = host_us(machine, nothing, sample, machine.sizes.rounds)
        record.row(table="adapters", **about, what=f"sample({n})", until="the batch is on the GPU", **measured)
    measured = host_us(machine, timed.prepare, timed.store, machine.sizes.rounds)
    record.row(table="adapters", **about, what=timed.stores, until="the call returns", **measured)


class _Sb3:
    """Replay buffers of Stable-Baselines3."""

    ways = "stock, on the CPU", "obscodec, on the CPU", "obscodec, on the GPU"
    stores = "add"

    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions
        self.buffer: Any = None
        self._t, self._next = 0, tuple[Any, ...]()

    def fill(self, way: str) -> None:
        """Make a buffer that is full."""
        from gymnasium import spaces
        from obscodec_sb3 import CompressedReplayBuffer
        from stable_baselines3.common.buffers import ReplayBuffer

        of = self._transitions
        options = {"buffer_device": "cuda" if way.endswith("GPU") else "cpu", "codec": "delta-rle"}
        kind: Any = CompressedReplayBuffer if way.startswith("obscodec") else ReplayBuffer
        space, actions = spaces.Box(0, 255, of.shape, np.uint8), spaces.Discrete(2)
        given = options if kind is CompressedReplayBuffer else {}
        self.buffer, self._t = kind(of.n_steps * of.n_envs, space, actions, "cuda", n_envs=of.n_envs, **given), 0
        for _ in range(of.n_steps):
            self.prepare()
            self.store()
        if given:
            self.buffer.decide()
            self.prepare()
            self.store()

    def prepare(self) -> None:
        """Make the next step of all environments."""
        n_envs = self._transitions.n_envs
        numbers = np.full(n_envs, float(self._t))
        action, done = np.zeros((n_envs, 1), np.int64), np.zeros(n_envs)
        self._next = *self._transitions.step(self._t), action, numbers, done, [{}] * n_envs
        self._t += 1

    def store(self) -> None:
        """Add it."""
        self.buffer.add(*self._next)

    def sample(self, n: int) -> Any:
        """A batch on the GPU."""
        return self.buffer.sample(n)

    def check(self, n: int) -> None:
        """Make sure that a batch has what was added; AssertionError if not."""
        np.random.seed(0)
        batch = self.sample(n)
        assert batch.observations.is_cuda
        known = {step.tobytes() for step in self._steps(batch.rewards)}
        assert {x.tobytes() for x in batch.observations.cpu().numpy()} <= known

    def _steps(self, rewards: Any) -> list[Any]:
        return [x for t in {*rewards.cpu().numpy().ravel().astype(int).tolist()} for x in self._transitions.step(t)[0]]


class _TorchRL:
    """Storages of TorchRL."""

    ways = "stock, on the CPU", "stock, on the GPU", "obscodec, on the GPU"
    stores = f"extend with {_N_ITEMS} items"

    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions
        self.buffer: Any = None
        self._begin = 0
        self._next: Any = None

    def fill(self, way: str) -> None:
        """Make a buffer that is full."""
        from obscodec_torchrl import CompressedStorage
        from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

        n = self._transitions.n_steps * self._transitions.n_envs // _N_ITEMS * _N_ITEMS or _N_ITEMS
        device = "cpu" if way.endswith("CPU") else "cuda"
        is_ours = way.startswith("obscodec")
        kind: Any = CompressedStorage if is_ours else LazyTensorStorage
        storage = kind(n, device=device, **({"codec": "delta-rle"} if is_ours else {}))
        self.buffer, self._begin = TensorDictReplayBuffer(storage=storage), 0
        for _ in range(n // _N_ITEMS):
            self.prepare()
            self.store()
        if is_ours:
            storage.decide()

    def prepare(self) -> None:
        """Make the next items, of the first environment."""
        import torch
        from tensordict import TensorDict

        numbers = np.arange(self._begin, self._begin + _N_ITEMS)
        self._begin += _N_ITEMS
        obs, after = (np.stack([self._transitions.step(int(t))[k][0] for t in numbers]) for k in range(2))
        number = torch.from_numpy(numbers)
        later = TensorDict({"pixels": torch.from_numpy(after), "done": torch.zeros(_N_ITEMS, 1, dtype=torch.bool)})
        items = {"pixels": torch.from_numpy(obs), "number": number, "next": later}
        self._next = TensorDict(items, batch_size=[_N_ITEMS])

    def store(self) -> None:
        """Extend by them."""
        self.buffer.extend(self._next)

    def sample(self, n: int) -> Any:
        """A batch on the GPU."""
        return self.buffer.sample(n).to("cuda")

    def check(self, n: int) -> None:
        """Make sure that a batch has what was written; AssertionError if not."""
        batch = self.sample(n)
        assert batch["pixels"].is_cuda
        for number, *found in zip(batch["number"].tolist(), batch["pixels"], batch["next", "pixels"], strict=True):
            for x, expected in zip(found, self._transitions.step(number), strict=True):
                np.testing.assert_array_equal(x.cpu().numpy(), expected[0])


def _simulate_tensors() -> None:
    """Have tensors of torch on the simulated GPU, too."""
    import pytest

    sys.path += [str(ROOT / "tests")]
    with suppress(ImportError):  # before torch's functions are others
        import_module("torchrl.data")
    from obscodec_cupy.device import opened
    from simulated_tensors import DeviceOfTensors, simulate_tensors  # type: ignore[import-not-found]

    device = DeviceOfTensors(eager=True)
    opened.device = lambda name: device
    simulate_tensors(pytest.MonkeyPatch())
