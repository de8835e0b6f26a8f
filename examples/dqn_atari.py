"""Train SB3's DQN on an Atari game with a compressed replay buffer, then compare that buffer with SB3's own.

uv run examples/dqn_atari.py --game Pong --steps 4000 --codec zstd:1
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, TypedDict, TypeVar

import ale_py
import gymnasium as gym
import numpy as np
import numpy.typing as npt
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
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecFrameStack, VecTransposeImage
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

STACK = (4, 84, 84)
TRANSITION = np.dtype(
    [
        ("obs", np.uint8, STACK),
        ("next_obs", np.uint8, STACK),
        ("action", np.int64),
        ("reward", np.float32),
        ("done", np.bool_),
        ("timeout", np.bool_),
    ]
)
BATCH = 256

T = TypeVar("T")
Transitions = npt.NDArray[np.void]


class Options(TypedDict, total=False):
    """What our buffer is told, beside what SB3's is."""

    codec: str


class Recorder(VecEnvWrapper):
    """Writes each transition to a file as the environment gives it, before any buffer has seen it."""

    def __init__(self, venv: VecEnv, path: Path) -> None:
        super().__init__(venv)
        self._file = path.open("wb")

    def reset(self) -> VecEnvObs:
        """The first observation."""
        obs = self.venv.reset()
        self._obs = np.array(obs)
        return obs

    def step_async(self, actions: npt.NDArray[np.int64]) -> None:
        """Begin a step."""
        self._actions = np.array(actions)
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """End the step, and write it down."""
        obs, rewards, dones, infos = self.venv.step_wait()
        transition = np.zeros(1, TRANSITION)
        transition["obs"] = self._obs
        transition["next_obs"] = infos[0]["terminal_observation"] if dones[0] else obs
        transition["action"] = self._actions
        transition["reward"] = rewards
        transition["done"] = dones
        transition["timeout"] = infos[0].get("TimeLimit.truncated", False)
        transition.tofile(self._file)
        self._obs = np.array(obs)
        return obs, rewards, dones, infos

    def close(self) -> None:
        """Close the file too."""
        self._file.close()
        super().close()


def recorded(path: Path, first: int = 0, batch: int = 1) -> Iterator[Transitions]:
    """The recorded transitions from number ``first`` on, ``batch`` at a time, by ordinary reads."""
    with path.open("rb") as file:
        file.seek(first * TRANSITION.itemsize)
        while len(transitions := np.fromfile(file, TRANSITION, batch)):
            yield transitions


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


def count_different(buffer: ReplayBuffer, path: Path) -> tuple[int, int]:
    """How many transitions ``buffer`` holds, and how many of them are not bit for bit the last that were recorded."""
    n_recorded = path.stat().st_size // TRANSITION.itemsize
    first = n_recorded - buffer.size()
    different = 0
    at = first
    for expected in recorded(path, first, BATCH):
        slots = np.arange(at, at + len(expected)) % buffer.buffer_size
        samples = buffer._get_samples(slots)
        pairs = [
            (samples.observations.numpy(force=True), expected["obs"]),
            (samples.actions.numpy(force=True), expected["action"]),
            (samples.next_observations.numpy(force=True), expected["next_obs"]),
            (samples.rewards.numpy(force=True), expected["reward"]),
            (buffer.dones[slots], expected["done"].astype(np.float32)),
            (buffer.timeouts[slots], expected["timeout"].astype(np.float32)),
        ]
        same = [(bits(stored) == bits(given)).all(axis=1) for stored, given in pairs]
        different += len(expected) - int(np.logical_and.reduce(same).sum())
        at += len(expected)
    return buffer.size(), different


def bits(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """The bytes of each item, ``u8[n, nbytes]``."""
    return np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8)


def new_buffer(size: int, options: Options | None) -> ReplayBuffer:
    """An empty replay buffer: ours with these options, or SB3's own for None."""
    observation_space, action_space = spaces.Box(0, 255, STACK, np.uint8), spaces.Discrete(18)
    if options is None:
        return ReplayBuffer(size, observation_space, action_space, "cpu")
    return CompressedReplayBuffer(size, observation_space, action_space, "cpu", **options)


def add(buffer: ReplayBuffer, t: Transitions) -> None:
    """Put one recorded transition into a buffer."""
    infos = [{"TimeLimit.truncated": bool(t["timeout"][0])}]
    buffer.add(t["obs"], t["next_obs"], t["action"], t["reward"], t["done"], infos)


def resident_bytes(path: Path, size: int, options: Options | None) -> float:
    """Bytes of resident memory for each transition: how much this process grows while a buffer is filled.

    A small buffer is filled before, so that what is loaded and compiled once does not count.
    """
    small = new_buffer(BATCH, options)
    fill(small, path)
    small.sample(BATCH)
    before = psutil.Process().memory_full_info().uss
    buffer = new_buffer(size, options)
    fill(buffer, path)
    return (psutil.Process().memory_full_info().uss - before) / buffer.size()


def fill(buffer: ReplayBuffer, path: Path) -> None:
    """Put the first recorded transitions into a buffer until it is full."""
    for _, transition in zip(range(buffer.buffer_size), recorded(path), strict=False):
        add(buffer, transition)


def medians_us(path: Path, size: int, options: Options) -> dict[str, list[float]]:
    """Median microseconds of ``add`` and ``sample`` of SB3's buffer and of ours, each call next to the other's."""
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
    """What ``function`` returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def report(path: Path, size: int, options: Options) -> Table:
    """Measure both buffers with the recorded transitions."""
    codec = options.get("codec", "default")
    table = Table("", "SB3's own", f"codec {codec}", "difference", title=f"Replay buffers for {size:,} transitions")
    stock, ours = (in_fresh_process(resident_bytes, path, size, which) for which in (None, options))
    table.add_row("resident bytes/transition", f"{stock:,.0f}", f"{ours:,.0f}", difference(stock, ours))
    for name, (stock, ours) in in_fresh_process(medians_us, path, size, options).items():
        table.add_row(f"{name}, median", f"{stock:,.0f} µs", f"{ours:,.0f} µs", difference(stock, ours))
    return table


def difference(stock: float, ours: float) -> str:
    """How many times more or less ours is."""
    return f"{stock / ours:.1f}x less" if ours < stock else f"{ours / stock:.1f}x more"


def main(
    game: Annotated[str, typer.Option(help="an Atari game, such as Pong")] = "MsPacman",
    steps: Annotated[int, typer.Option(min=1, help="steps to train; each takes 56 KB in a temporary file")] = 4_000,
    codec: Annotated[str | None, typer.Option(help="a codec spec, such as zstd:3")] = None,
    buffer_size: Annotated[int | None, typer.Option(min=1, help="transitions to keep, all if not given")] = None,
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
        console.print(f"[red]{different:,} of {stored:,} stored transitions differ from what the environment gave.")
        raise typer.Exit(1)
    console.print(f"All {stored:,} stored transitions equal what the environment gave, bit for bit.")


if __name__ == "__main__":
    typer.run(main)
