"""Memory and times of the buffer classes that obscodec-sb3 compresses, in turns with SB3's own."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from gymnasium import spaces
from obscodec_sb3 import compressed
from recorded_steps import STACK, Step, read_steps
from resident_memory import give_back_free_memory
from stable_baselines3.common.buffers import BaseBuffer, DictReplayBuffer, ReplayBuffer, RolloutBuffer

IMAGE = spaces.Box(0, 255, STACK, np.uint8)
VECTOR = spaces.Box(-np.inf, np.inf, (8,), np.float32)
ACTIONS = spaces.Discrete(6)
BATCH = 256
_WARM_UP = 1_024  # transitions; a codec is chosen after 256
_ROUNDS = 200  # batches


@dataclass(frozen=True)
class Kind:
    """A class of buffers.

    Attributes:
        name: what tables call it.
        stock: SB3's class.
        space: of the observations.
    """

    name: str
    stock: type[BaseBuffer]
    space: spaces.Space[Any]

    def build(self, size: int, n_envs: int, *, ours: bool) -> Any:
        """A buffer of ``size`` transitions, over all environments."""
        arguments = (size // n_envs if self.stock is RolloutBuffer else size, self.space, ACTIONS, "cpu")
        if not ours:
            return self.stock(*arguments, n_envs=n_envs)
        return compressed(self.stock)(*arguments, n_envs=n_envs, threads=1)

    def arguments(self, step: Step) -> tuple[Any, ...]:
        """Those of ``add``."""
        obs, next_obs, done = step.obs, step.next_obs, step.terminated | step.truncated
        if self.stock is RolloutBuffer:
            nothing = torch.zeros(len(obs))
            return obs, step.number % 6, step.reward, done, nothing, nothing
        infos = [{"TimeLimit.truncated": bool(truncated)} for truncated in step.truncated]
        if self.stock is DictReplayBuffer:
            vectors = [np.sin(k[:, None] * np.arange(1, 9), dtype="f") for k in (step.number, step.number + len(obs))]
            both = [{"image": i, "vector": v} for i, v in zip((obs, next_obs), vectors, strict=True)]
            return *both, step.number % 6, step.reward, done, infos
        return obs, next_obs, step.number % 6, step.reward, done, infos


KINDS = {
    "replay": Kind("ReplayBuffer", ReplayBuffer, IMAGE),
    "dict": Kind("DictReplayBuffer, image and vector", DictReplayBuffer, spaces.Dict(image=IMAGE, vector=VECTOR)),
    "rollout": Kind("RolloutBuffer", RolloutBuffer, IMAGE),
}


class Times(NamedTuple):
    """Times of one buffer; ``_x`` are ratios to SB3's own.

    Attributes:
        add_mean_us: mean of ``add`` while old steps are overwritten.
        add_mean_x: its ratio.
        add_median_us: the median.
        add_median_x: the median ratio.
        sample256_ms: the median of ``sample(256)``, or of the minibatches of ``get(256)``.
        sample256_x: the median ratio.
    """

    add_mean_us: float
    add_mean_x: float
    add_median_us: float
    add_median_x: float
    sample256_ms: float
    sample256_x: float


def times(kind_name: str, paths: list[Path], size: int) -> list[Times]:
    """Times of SB3's buffer and ours, in turns of random order. Each is filled once before it is timed."""
    torch.set_num_threads(1)
    kind, n_envs = KINDS[kind_name], len(paths)
    for ours in (False, True):
        _warmed_up(kind, paths, ours=ours)
    buffers = [kind.build(size, n_envs, ours=ours) for ours in (False, True)]
    rng = np.random.default_rng(0)
    adds, samples = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
    lap = size // n_envs
    laps = 2 if kind.stock is not RolloutBuffer else 12
    for at, step in enumerate(islice(_looped(paths), laps * lap)):
        arguments = kind.arguments(step)
        for i in rng.permutation(2):
            if kind.stock is RolloutBuffer and buffers[i].full:
                buffers[i].reset()
            elapsed_s = _elapsed_s(buffers[i].add, *arguments)
            if at >= lap:
                adds[i].append(elapsed_s)
        if kind.stock is RolloutBuffer and at % lap == lap - 1:
            _get(buffers, rng, samples)
    if kind.stock is not RolloutBuffer:
        for _ in range(_ROUNDS):
            for i in rng.permutation(2):
                samples[i].append(_elapsed_s(buffers[i].sample, BATCH))
    return [_times(np.array(adds[i]), np.array(adds[0]), np.array(samples[i]), np.array(samples[0])) for i in (0, 1)]


def resident(kind_name: str, paths: list[Path], size: int, *, ours: bool) -> float:
    """Growth of RSS for each transition while a buffer is made and filled twice. Call it in a fresh process."""
    kind, n_envs = KINDS[kind_name], len(paths)
    small = _warmed_up(kind, paths, ours=ours)
    give_back_free_memory()
    steps = islice(_looped(paths), 2 * size // n_envs)
    for _ in islice(steps, 20):  # what reading takes is there before
        pass
    before = psutil.Process().memory_info().rss
    buffer = _filled(kind, size, steps, n_envs, ours=ours)
    grown = psutil.Process().memory_info().rss - before
    del small, buffer  # not before
    return grown / size


def _get(buffers: list[Any], rng: np.random.Generator, samples: dict[int, list[float]]) -> None:
    """Four epochs of minibatches, of both buffers in turns."""
    for buffer in buffers:
        buffer.compute_returns_and_advantage(torch.zeros(buffer.n_envs), np.zeros(buffer.n_envs))
    for _ in range(4):
        minibatches = [buffer.get(BATCH) for buffer in buffers]
        for _ in range(buffers[0].buffer_size * buffers[0].n_envs // BATCH):
            for i in rng.permutation(2):
                samples[i].append(_elapsed_s(next, minibatches[i]))


def _filled(kind: Kind, size: int, steps: Iterator[Step], n_envs: int, *, ours: bool) -> Any:
    """A buffer that was filled with the steps, twice if there are enough."""
    buffer = kind.build(size, n_envs, ours=ours)
    for step in islice(steps, 2 * size // n_envs):
        if kind.stock is RolloutBuffer and buffer.full:
            buffer.reset()
        buffer.add(*kind.arguments(step))
    return buffer


def _warmed_up(kind: Kind, paths: list[Path], *, ours: bool) -> Any:
    """A small buffer that was filled twice and read, so that all code is loaded and compiled."""
    buffer = _filled(kind, _WARM_UP, read_steps(paths), len(paths), ours=ours)
    _ = next(buffer.get(BATCH)) if kind.stock is RolloutBuffer else buffer.sample(BATCH)
    return buffer


def _looped(paths: list[Path]) -> Iterator[Step]:
    """The recorded steps, again and again."""
    while True:
        yield from read_steps(paths)


def _elapsed_s(function: Callable[..., object], *args: object) -> float:
    """Seconds that one call takes; its result is dropped in it."""
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def _times(add: np.ndarray, stock_add: np.ndarray, sample: np.ndarray, stock_sample: np.ndarray) -> Times:
    return Times(
        float(add.mean()) * 1e6,
        float(add.mean() / stock_add.mean()),
        float(np.median(add)) * 1e6,
        float(np.median(add / stock_add)),
        float(np.median(sample)) * 1e3,
        float(np.median(sample / stock_sample)),
    )
