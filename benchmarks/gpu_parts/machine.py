"""The GPU that the parts use, or the simulated one of the tests in its place."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_parts import ROOT

Array = npt.NDArray[Any]
Call = Callable[[], object]
_FILL_NBYTES = 256 << 20  # more than the caches of any card
_FILLS = 4, 512  # at first and at most; while they run, the CPU queues what is timed behind them


class Sizes(NamedTuple):
    """How much is measured.

    Attributes:
        n: transitions in a buffer.
        n_envs: environments that fill it, a step of all of them at a time.
        batch: transitions in a batch.
        in_graph: reads in a graph.
        rounds: of all calls that are compared.
        encoded: frames to encode.
        tiny: leave out all but the smallest layouts.
    """

    n: int = 50_000
    n_envs: int = 8
    batch: int = 256
    in_graph: int = 20
    rounds: int = 100
    encoded: int = 4096
    tiny: bool = False


TINY = Sizes(n=600, n_envs=2, batch=8, in_graph=2, rounds=2, encoded=32, tiny=True)


class Machine(ABC):
    """A device that obscodec calls ``"cuda"``.

    Attributes:
        sizes: how much to measure there.
        has_graphs: whether :meth:`recorded` can be called.
        torch_device: where the tensors of torch are.
    """

    torch_device: str

    def __init__(self, sizes: Sizes, *, has_graphs: bool) -> None:
        self.sizes = sizes
        self.has_graphs = has_graphs and find_spec("torch") is not None

    @abstractmethod
    def upload(self, x: Array) -> Any:
        """An array of the device with the content of ``x``."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """An array of the device with unknown content."""

    @abstractmethod
    def download(self, x: Any) -> Array:
        """The content of an array of the device."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all work of the device."""

    @abstractmethod
    def free_nbytes(self) -> int:
        """Free memory of the device, as its driver reports it."""

    @abstractmethod
    def recorded(self, call: Call) -> Call:
        """A CUDA graph of a call that works with tensors of torch. It must have run before."""

    @abstractmethod
    def timed(self, calls: dict[str, Call]) -> dict[str, dict[str, float]]:
        """What each call takes on the device, in µs on its own clock; see :func:`summary_us`.

        The calls take turns in random order, ``sizes.rounds`` times each. Before a call, a large memory is filled, so
        that the call finds nothing in the caches. The device fills it while the CPU queues the call behind it, so the
        time has nothing of the CPU. A round in which the fill was over too early does not count (``n_late``); from
        then on, the memory is filled twice as often before this call.
        """


class Gpu(Machine):
    """An NVIDIA GPU, through CuPy and torch."""

    torch_device = "cuda"

    def __init__(self, sizes: Sizes, *, pool: bool) -> None:
        super().__init__(sizes, has_graphs=pool)  # nothing can be allocated in a graph without a pool
        import cupy

        self._cupy = cupy
        if not pool:
            cupy.cuda.set_allocator(None)

    def upload(self, x: Array) -> Any:
        """See ``Machine.upload``."""
        return self._cupy.asarray(x)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """See ``Machine.empty``."""
        return self._cupy.empty(shape, dtype)

    def download(self, x: Any) -> Array:
        """See ``Machine.download``."""
        return np.asarray(self._cupy.asnumpy(x))

    def synchronize(self) -> None:
        """See ``Machine.synchronize``."""
        self._cupy.cuda.runtime.deviceSynchronize()

    def free_nbytes(self) -> int:
        """See ``Machine.free_nbytes``."""
        self.synchronize()
        return int(self._cupy.cuda.runtime.memGetInfo()[0])

    def recorded(self, call: Call) -> Call:
        """See ``Machine.recorded``."""
        import torch

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay

    def timed(self, calls: dict[str, Call]) -> dict[str, dict[str, float]]:
        """See ``Machine.timed``."""
        import torch

        rng = np.random.default_rng(0)
        elapsed_us: dict[str, list[float]] = {name: [] for name in calls}
        n_late, n_fills = dict.fromkeys(calls, 0), dict.fromkeys(calls, _FILLS[0])
        filled = torch.empty(_FILL_NBYTES, dtype=torch.uint8, device="cuda")
        for turn in range(-8, self.sizes.rounds):  # the first ones do not count: the clock of the card goes up
            for name in rng.permutation(list(calls)).tolist():
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
                torch.cuda.synchronize()
                for _ in range(n_fills[name]):
                    filled.fill_(turn % 256)
                begin.record()
                calls[name]()
                end.record()
                is_late = begin.query()  # type: ignore[no-untyped-call]
                torch.cuda.synchronize()
                if is_late:
                    n_late[name] += turn >= 0
                    n_fills[name] = min(2 * n_fills[name], _FILLS[1])
                elif turn >= 0:
                    elapsed_us[name].append(begin.elapsed_time(end) * 1e3)
        return {name: summary_us(measured) | {"n_late": n_late[name]} for name, measured in elapsed_us.items()}


class SimulatedGpu(Machine):
    """The simulated GPU of the tests of obscodec-cupy. It has no clock, so launches are counted instead of time."""

    torch_device = "cpu"

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes, has_graphs=True)
        sys.path.append(str(ROOT / "packages" / "obscodec-cupy" / "tests"))
        from cuda_on_cpu.device import SimulatedDevice  # type: ignore[import-not-found]
        from obscodec_cupy.device import opened as devices

        self._device = SimulatedDevice(eager=True)
        devices.device = lambda name: self._device

    def upload(self, x: Array) -> Any:
        """See ``Machine.upload``."""
        return self._device.upload(x)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """See ``Machine.empty``."""
        return self._device.empty(shape, dtype)

    def download(self, x: Any) -> Array:
        """See ``Machine.download``."""
        return np.asarray(self._device.download(x))

    def synchronize(self) -> None:
        """See ``Machine.synchronize``."""
        self._device.synchronize()

    def free_nbytes(self) -> int:
        """See ``Machine.free_nbytes``."""
        return int(self._device.free)

    def recorded(self, call: Call) -> Call:
        """See ``Machine.recorded``."""
        return call

    def timed(self, calls: dict[str, Call]) -> dict[str, dict[str, float]]:
        """See ``Machine.timed``."""
        counted = {}
        for name, call in calls.items():
            before = self._device.n_launches
            call()
            counted[name] = {"n_launches": float(self._device.n_launches - before)}
        return counted


def opened(*, simulated: bool, tiny: bool, pool: bool) -> Machine:
    """The machine of this process."""
    if simulated:
        return SimulatedGpu(TINY)
    return Gpu(TINY if tiny else Sizes(), pool=pool)


def summary_us(measured: list[float]) -> dict[str, float]:
    """Median, mean, 90th percentile and least of times in µs; nothing of no times."""
    if not measured:
        return {}
    return {
        "median_us": round(median(measured), 2),
        "mean_us": round(float(np.mean(measured)), 2),
        "p90_us": round(float(np.percentile(measured, 90)), 2),
        "least_us": round(min(measured), 2),
    }


def nothing() -> None:
    """What prepares a call that needs nothing."""


def host_us(machine: Machine, prepare: Call, call: Call, rounds: int) -> dict[str, float]:
    """µs of the CPU's clock, from when the GPU is idle until the call returns; ``prepare`` is not timed."""
    elapsed_us = []
    for turn in range(-3, rounds):
        prepare()
        machine.synchronize()
        begin = time.perf_counter()
        call()
        if turn >= 0:
            elapsed_us.append((time.perf_counter() - begin) * 1e6)
    return summary_us(elapsed_us)
