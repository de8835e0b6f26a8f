"""The replay buffers to compare, each with the few calls that a user of its library makes.

A library is imported when a buffer of it is built. Buffers that can't be built are part of the comparison, too:
:func:`missing` says why.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from recorded_steps import STACK, Step, read_steps

Array = npt.NDArray[np.generic]
Prepared = TypeVar("Prepared")

OBSERVATIONS = spaces.Box(0, 255, STACK, np.uint8)
WARM_UP = 400  # transitions; obscodec chooses its codec after 256
ACTIONS = spaces.Discrete(1 << 40)  # an action is the number of its transition


class MeasuredBuffer(Protocol, Generic[Prepared]):
    """The calls of a replay buffer that are measured."""

    def prepare(self, step: Step) -> Prepared:
        """The step in the form that the library requires; not timed."""
        ...

    def add(self, prepared: Prepared) -> None:
        """Store a step of each environment."""
        ...

    def sample(self, n: int) -> object:
        """Some transitions, in the library's own form."""
        ...

    def read(self, sampled: object) -> tuple[Array, Array, Array]:
        """The numbers of sampled transitions, ``[n]``, their observations and next ones, ``[n, 4, 84, 84]``."""
        ...


class Sb3Buffer:
    """A buffer with the interface of Stable-Baselines3's."""

    def __init__(self, buffer_class: Any, size: int, n_envs: int, options: dict[str, Any]) -> None:
        self.buffer = buffer_class(size, OBSERVATIONS, ACTIONS, "cpu", n_envs, **options)

    def prepare(self, step: Step) -> tuple[Any, ...]:
        """The arguments of ``add``."""
        infos = [{"TimeLimit.truncated": bool(truncated)} for truncated in step.truncated]
        return step.obs, step.next_obs, step.number, step.reward, step.terminated | step.truncated, infos

    def add(self, prepared: tuple[Any, ...]) -> None:
        """Store a step."""
        self.buffer.add(*prepared)

    def sample(self, n: int) -> object:
        """Tensors."""
        return self.buffer.sample(n)

    def read(self, sampled: Any) -> tuple[Array, Array, Array]:
        """What was sampled."""
        number, obs, next_obs = sampled.actions, sampled.observations, sampled.next_observations
        return number.numpy()[:, 0], obs.numpy(), next_obs.numpy()


class CpprbBuffer:
    """cpprb's: frames along the last axis, and a buffer for each environment, since it links consecutive rows."""

    def __init__(self, size: int, n_envs: int) -> None:
        cpprb = import_module("cpprb")
        obs = {"shape": (*STACK[1:], STACK[0]), "dtype": np.uint8}
        fields = {"obs": obs, "act": {"dtype": np.int64}, "rew": {}, "done": {}}
        self.buffers = [
            cpprb.ReplayBuffer(size // n_envs, fields, next_of="obs", stack_compress="obs") for _ in range(n_envs)
        ]

    def prepare(self, step: Step) -> list[dict[str, Any]]:
        """The arguments of ``add`` for each environment."""
        obs, next_obs = (np.ascontiguousarray(np.moveaxis(x, 1, -1)) for x in (step.obs, step.next_obs))
        done = step.terminated | step.truncated
        return [
            {"obs": obs[i], "next_obs": next_obs[i], "act": step.number[i], "rew": step.reward[i], "done": done[i]}
            for i in range(len(self.buffers))
        ]

    def add(self, prepared: list[dict[str, Any]]) -> None:
        """Store a step."""
        for buffer, row in zip(self.buffers, prepared, strict=True):
            buffer.add(**row)
            if row["done"]:
                buffer.on_episode_end()

    def sample(self, n: int) -> dict[str, Array]:
        """Arrays."""
        parts = [buffer.sample(n // len(self.buffers)) for buffer in self.buffers]
        return parts[0] if len(parts) == 1 else {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}

    def read(self, sampled: Any) -> tuple[Array, Array, Array]:
        """What was sampled."""
        return sampled["act"][:, 0], np.moveaxis(sampled["obs"], -1, 1), np.moveaxis(sampled["next_obs"], -1, 1)


class TianshouBuffer:
    """tianshou's."""

    def __init__(self, size: int, n_envs: int, options: dict[str, Any]) -> None:
        tianshou = import_module("tianshou.data")
        self.batch = tianshou.Batch
        self.buffer = tianshou.VectorReplayBuffer(size, n_envs, **options)

    def prepare(self, step: Step) -> object:
        """A ``Batch``, as tianshou's collector makes it."""
        return self.batch(
            obs=step.obs,
            obs_next=step.next_obs,
            act=step.number,
            rew=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
        )

    def add(self, prepared: object) -> None:
        """Store a step."""
        self.buffer.add(prepared)

    def sample(self, n: int) -> object:
        """A batch of arrays, and their indices."""
        return self.buffer.sample(n)

    def read(self, sampled: Any) -> tuple[Array, Array, Array]:
        """What was sampled."""
        batch, _ = sampled
        return batch.act, batch.obs, batch.obs_next


Build = Callable[[int, int, int | None], MeasuredBuffer[Any]]


@dataclass(frozen=True)
class Kind:
    """A replay buffer to compare.

    Attributes:
        name: what tables call it.
        module: where its class is.
        build: makes one for so many transitions of so many environments, that decodes with so many threads, or as many
            as it likes if None.
        sb3: the options of an SB3-compatible one, None for others.
        class_name: the class of an SB3-compatible one.
    """

    name: str
    module: str
    build: Build
    sb3: dict[str, Any] | None = None
    class_name: str = ""

    @property
    def sb3_class(self) -> Any:
        """The class of an SB3-compatible one."""
        logging.getLogger("sb3_extra_buffers").setLevel(logging.WARNING)  # it writes to stdout when it is imported
        return getattr(import_module(self.module), self.class_name)


def _sb3(name: str, module: str, class_name: str, **options: Any) -> Kind:
    def build(size: int, n_envs: int, threads: int | None) -> Sb3Buffer:
        more = {"threads": threads} if module == "obscodec_sb3" else {}  # others have no threads
        return Sb3Buffer(kind.sb3_class, size, n_envs, options | more)

    kind = Kind(name, module, build, options, class_name)
    return kind


def _extra(method: str) -> Kind:
    module = "sb3_extra_buffers.compressed"
    return _sb3(f"sb3-extra-buffers {method}", module, "CompressedReplayBuffer", compression_method=method)


def _tianshou(name: str, **options: Any) -> Kind:
    return Kind(name, "tianshou.data", lambda size, n_envs, _: TianshouBuffer(size, n_envs, options))


def _ours(codec: str) -> Kind:
    return _sb3(f"obscodec {codec}", "obscodec_sb3", "CompressedReplayBuffer", codec=codec)


BASELINE = _sb3("SB3", "stable_baselines3.common.buffers", "ReplayBuffer")
_KINDS = (
    BASELINE,
    _sb3(
        "SB3 optimize_memory_usage",
        BASELINE.module,
        BASELINE.class_name,
        optimize_memory_usage=True,
        handle_timeout_termination=False,
    ),
    *(_extra(method) for method in ("rle-jit", "igzip1", "zstd-3", "lz4-block/1")),
    Kind("cpprb next_of, stack_compress", "cpprb", lambda size, n_envs, _: CpprbBuffer(size, n_envs)),
    _tianshou("tianshou"),
    _tianshou("tianshou ignore_obs_next", ignore_obs_next=True),
    _tianshou("tianshou save_only_last_obs", ignore_obs_next=True, save_only_last_obs=True, stack_num=STACK[0]),
    *(_ours(codec) for codec in ("raw", "zstd:1", "auto")),
    *(_ours(codec) for codec in ("delta-rle", "delta-rle|lz4:4", "delta-rle|lz4:9", "delta-rle|zstd:3")),
)
KINDS = {kind.name: kind for kind in _KINDS}


def filled(name: str, n_envs: int, size: int, steps: Iterable[Step], threads: int | None = None) -> MeasuredBuffer[Any]:
    """A buffer of ``size`` transitions that was given ``steps``."""
    buffer = KINDS[name].build(size, n_envs, threads)
    for step in steps:
        buffer.add(buffer.prepare(step))
    return buffer


def warmed_up(name: str, paths: list[Path], threads: int | None = None) -> MeasuredBuffer[Any]:
    """A small buffer that was overwritten once and sampled, so that all code is loaded and compiled."""
    n_envs = len(paths)
    steps = islice(read_steps(paths), 2 * WARM_UP // n_envs)
    buffer = filled(name, n_envs, WARM_UP, islice(steps, 3 * WARM_UP // 2 // n_envs), threads)
    if isinstance(buffer, Sb3Buffer) and hasattr(buffer.buffer, "decide"):
        buffer.buffer.decide()  # else the background would go on while others are measured
    for step in steps:  # what compresses them is loaded, too
        buffer.add(buffer.prepare(step))
    for _ in range(2):
        buffer.sample(256)
    return buffer


def missing(module: str) -> str:
    """Why the buffers of a module can't be used here; empty if they can."""
    try:
        next(kind for kind in KINDS.values() if kind.module == module).build(8, 1, 1)
    except Exception as error:  # whatever goes wrong there is what the table shows
        return f"{type(error).__name__}: {error}"
    return ""
