# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
#     "obscodec-sb3",
#     "ale-py==0.12.1",
#     "gymnasium==1.4.0",
#     "numba==0.68.1",
#     "numpy==2.4.6",
#     "opencv-python-headless==5.0.0.93",
#     "psutil==7.2.2",
#     "rich==15.0.0",
#     "stable-baselines3==2.9.2",
#     "torch==2.15.0",
#     "tqdm==4.70.1",
#     "typer==0.29.2",
# ]
#
# [tool.uv.sources]  # of this checkout
# obscodec = { path = "../packages/obscodec-core", editable = true }
# obscodec-sb3 = { path = "../packages/obscodec-sb3", editable = true }
# ///
"""Train SB3's DQN on an Atari game with a compressed replay buffer, then compare that buffer with SB3's own.

uv run examples/dqn_atari.py --game Pong --steps 4000 --codec zstd:1
"""

import ctypes
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, NamedTuple, TypedDict, TypeVar

import ale_py
import gymnasium as gym
import numpy as np
import obscodec
import psutil
import typer
from gymnasium import spaces
from obscodec_sb3 import CompressedReplayBuffer
from rich.console import Console
from rich.table import Table
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack, VecTransposeImage
from transitions import STACK, Recorder, add, count_different, fill, recorded

BATCH, MILLION = 256, 1_000_000

T = TypeVar("T")


class Options(TypedDict, total=False):
    """The options of our buffer that SB3's does not have."""

    codec: str


def train(game: str, steps: int, options: Options, buffer_size: int, seed: int, path: Path) -> ReplayBuffer:
    """Train DQN for ``steps`` steps, recording what the environment gives, and return its replay buffer."""
    env = VecTransposeImage(VecFrameStack(make_atari_env(game, seed=seed), n_stack=4))
    recorder = Recorder(env, path)
    model = DQN(
        "CnnPolicy",
        recorder,
        buffer_size=buffer_size,
        learning_starts=min(1_000, steps // 2),
        replay_buffer_class=CompressedReplayBuffer,
        replay_buffer_kwargs={**options},
        seed=seed,
    )
    model.learn(steps, progress_bar=True)
    recorder.close()
    assert model.replay_buffer is not None
    return model.replay_buffer


def new_buffer(size: int, options: Options | None) -> ReplayBuffer:
    """An empty replay buffer: ours with these options, or SB3's own for None."""
    observation_space, action_space = spaces.Box(0, 255, STACK, np.uint8), spaces.Discrete(18)
    if options is None:
        return ReplayBuffer(size, observation_space, action_space, "cpu")
    return CompressedReplayBuffer(size, observation_space, action_space, "cpu", **options)


class Memory(NamedTuple):
    """What a buffer takes: ``fixed`` bytes, and ``of_each`` for each transition."""

    fixed: float
    of_each: float


def resident(path: Path, size: int, options: Options | None) -> Memory:
    """The growth of this process while two buffers are filled, a small one first, and what of it will grow on."""
    start = resident_now()
    small = new_buffer(BATCH, options)
    fill(small, path)
    small.sample(BATCH)
    before = resident_now()
    buffer = new_buffer(size, options)
    fill(buffer, path)
    end = resident_now()
    if options is None:
        of_each = (end - before) / buffer.size()
    else:
        large = CompressedReplayBuffer(MILLION, buffer.observation_space, buffer.action_space, "cpu", **options)
        fill(large, path)  # nothing is allocated ahead
        large.decide()
        of_each = (large.stats().projected_bytes or 0) / MILLION
    return Memory(max(0.0, end - start - of_each * (small.size() + buffer.size())), of_each)


def resident_now() -> int:
    """Bytes of memory that only this process has, as the operating system counts them.

    Garbage is collected first, and the C library returns freed memory: a few megabytes that come and go would hide a
    buffer of some thousand transitions.
    """
    gc.collect()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)
    return int(psutil.Process().memory_full_info().uss)


def medians_us(path: Path, size: int, options: Options) -> dict[str, list[float]]:
    """Median microseconds of ``add`` and ``sample``, of SB3's buffer and of ours in turns."""
    buffers = [new_buffer(size, None), new_buffer(size, options)]
    adds = [[elapsed_us(add, buffer, transition) for buffer in buffers] for transition in recorded(path)]
    samples = [[elapsed_us(buffer.sample, BATCH) for buffer in buffers] for _ in range(200)]
    return {"add": np.median(adds, axis=0).tolist(), f"sample({BATCH})": np.median(samples, axis=0).tolist()}


def elapsed_us(function: Callable[..., object], *args: object) -> float:
    """The microseconds that one call takes."""
    start = time.perf_counter()
    function(*args)
    return (time.perf_counter() - start) * 1e6


def in_fresh_process(function: Callable[..., T], *args: object) -> T:
    """The result of ``function`` in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def report(path: Path, size: int, options: Options) -> Table:
    """Measure both buffers with the recorded transitions."""
    codec = options.get("codec", "default")
    table = Table("", "SB3's own", f"codec {codec}", "difference", title=f"Replay buffers for {size:,} transitions")
    stock, ours = (in_fresh_process(resident, path, size, which) for which in (None, options))
    add_row(table, "resident memory, MB", stock.fixed + size * stock.of_each, ours.fixed + size * ours.of_each, 1e6)
    add_row(table, "of which fixed, MB", stock.fixed, ours.fixed, 1e6)
    add_row(table, "of each transition, bytes", stock.of_each, ours.of_each)
    of_million = (memory.fixed + MILLION * memory.of_each for memory in (stock, ours))
    add_row(table, "a million transitions, MB", next(of_million), next(of_million), 1e6)
    for name, medians in in_fresh_process(medians_us, path, size, options).items():
        add_row(table, f"{name}, median, µs", *medians)
    return table


def add_row(table: Table, name: str, stock: float, ours: float, unit: float = 1) -> None:
    """A row with both figures in a unit of so many."""
    texts = [f"{x / unit:,.0f}" if x >= 10 * unit else f"{x / unit:,.1f}" for x in (stock, ours)]
    table.add_row(name, *texts, difference(stock, ours))


def difference(stock: float, ours: float) -> str:
    """By which factor ours is more or less."""
    if min(stock, ours) <= 0:
        return ""
    return f"{stock / ours:.1f}x less" if ours < stock else f"{ours / stock:.1f}x more"


def main(
    game: Annotated[str, typer.Option(help="an Atari game, such as Pong")] = "MsPacman",
    steps: Annotated[int, typer.Option(min=1, help="steps to train; each takes 56 KB in a temporary file")] = 2_500,
    codec: Annotated[str | None, typer.Option(help="a codec spec, such as zstd:3")] = None,
    buffer_size: Annotated[int | None, typer.Option(min=1, help="transitions to keep; all if not given")] = None,
    seed: Annotated[int, typer.Option(help="seed of the environment and of the agent")] = 0,
) -> None:
    """Train DQN with a compressed replay buffer, check every transition in it, and compare it with SB3's own."""
    gym.register_envs(ale_py)
    env_id = f"{game}NoFrameskip-v4"
    size = buffer_size or steps
    options: Options = {"codec": codec} if codec else {}
    try:
        gym.spec(env_id)
        new_buffer(1, options)
    except (gym.error.Error, obscodec.ObscodecError) as error:
        raise typer.BadParameter(str(error)) from error
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "transitions")
        buffer = train(env_id, steps, options, size, seed, path)
        stored, different = count_different(buffer, path)
        with console.status("measuring"):
            console.print(report(path, size, options))
    if different:
        console.print(f"[red]{different:,} of {stored:,} stored transitions differ from those of the environment.")
        raise typer.Exit(1)
    console.print(f"All {stored:,} stored transitions equal those of the environment, bit for bit.")


if __name__ == "__main__":
    typer.run(main)
