"""A replay buffer as it grows: resident memory, ``add`` and ``sample``, with many environments or large frames.

uv run --group benchmarks benchmarks/scale.py
uv run --group benchmarks benchmarks/scale.py --envs 64 --transitions 100000 --peer 20000
uv run --group benchmarks benchmarks/scale.py --frames 210x160x3 --envs 8 --transitions 4000 --peer 2000

The steps come as fast as memory delivers them, as EnvPool's do: each is a new array of stacks, made of frames that were
recorded before. The recording is repeated; in each lap, some pixels of its frames differ from those of all other laps,
so that no frame is known from an earlier one.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, cast

import ale_py
import gymnasium
import numpy as np
import psutil
import torch
import typer
from atari_frames import frames as preprocessed
from gymnasium import spaces
from obscodec_sb3 import CompressedReplayBuffer
from recorded_steps import folder
from resident_memory import give_back_free_memory
from result_tables import Row, as_csv, as_markdown, circumstances
from rich.console import Console
from stable_baselines3.common.buffers import ReplayBuffer

_DEPTH = 4
_RECORDED_NBYTES = 1 << 28  # of all environments
_LAP_NBYTES = 8
_N_ACTIONS = 18
_WARM_UP = 300  # steps, after which obscodec has chosen its codec, and compiled everything
_MOST_OVERWRITTEN = 100_000
_RESULTS = Path(__file__).with_name("results") / "scale"
_ROUNDS = {32: 100, 256: 40}
_OURS, _PEER = "obscodec", "SB3"
console = Console(stderr=True)

Frames = np.ndarray[Any, np.dtype[np.uint8]]


def recorded(game: str, seed: int, n: int, shape: tuple[int, ...]) -> Frames:
    """Frames ``u8[n, channels, height, width]`` of a game under a random policy: grey of 84x84, or as ALE has them."""
    if shape == (84, 84):
        return preprocessed(game, n, seed)[:, None]
    path = folder() / f"{game}-raw-{seed}-{n}.npy"
    if not path.exists():
        gymnasium.register_envs(ale_py)
        env = gymnasium.make(f"ALE/{game}-v5", frameskip=4)
        if env.observation_space.shape != shape:
            raise typer.BadParameter(f"--frames is 84x84, or {'x'.join(map(str, env.observation_space.shape or ()))}")
        rng, played = np.random.default_rng(seed), list[Frames]()
        n_actions = cast("spaces.Discrete", env.action_space).n
        frame, _ = env.reset(seed=seed)
        while len(played) < n:
            played.append(frame)
            frame, _, terminated, truncated, _ = env.step(rng.integers(n_actions))
            if terminated or truncated:
                frame, _ = env.reset()
        np.save(path, np.moveaxis(np.array(played), -1, 1))
    played_before: Frames = np.load(path)
    return played_before


def steps(of_envs: Frames) -> Iterator[Frames]:
    """Observations ``u8[n_envs, depth * channels, height, width]``, each a new array, for ever.

    Args:
        of_envs: ``u8[n, n_envs, channels, height, width]``.
    """
    n_channels, lap = of_envs.shape[2], 0
    stack = np.zeros((of_envs.shape[1], _DEPTH * n_channels, *of_envs.shape[3:]), np.uint8)
    while True:
        mark = np.frombuffer(np.random.default_rng(lap).bytes(_LAP_NBYTES), np.uint8)
        for frames in of_envs:
            before, stack = stack, np.empty_like(stack)
            stack[:, :-n_channels], stack[:, -n_channels:] = before[:, n_channels:], frames
            stack[:, -1, 0, :_LAP_NBYTES] = mark
            yield stack
        lap += 1


def checkpoints(n: int) -> list[int]:
    """After how many transitions to measure: 1, 2, 5 times a power of ten, and at the end."""
    wanted = [digit * 10**power for power in range(3, 12) for digit in (1, 2, 5)]
    return [*(at for at in wanted if at < n), n]


def measured(source: Iterator[Frames], n_envs: int, size: int, peer: int) -> Iterator[Row]:
    """Figures of a buffer, and of SB3's with ``peer`` transitions, which overwrites its oldest."""
    first = next(source)
    space, actions = spaces.Box(0, 255, first.shape[1:], np.uint8), spaces.Discrete(_N_ACTIONS)
    rng = np.random.default_rng(0)
    small = CompressedReplayBuffer(_WARM_UP * n_envs, space, actions, "cpu", n_envs, threads=1)
    for _ in range(_WARM_UP):
        small.add(*_arguments(first, first := next(source), rng))
    for batch in 2 * list(_ROUNDS):
        small.sample(batch)
    give_back_free_memory()
    process = psutil.Process()
    buffers = {_PEER: ReplayBuffer(peer, space, actions, "cpu", n_envs)} if peer else {}
    for _ in range(2 * peer // n_envs):  # all of its memory is touched
        buffers[_PEER].add(*_arguments(first, first, rng))
    before = process.memory_info().rss
    buffers[_OURS] = CompressedReplayBuffer(size, space, actions, "cpu", n_envs, threads=1)
    obs, done, times = next(source), 0, {name: list[float]() for name in buffers}
    for goal in [*checkpoints(size), size + min(size, _MOST_OVERWRITTEN)]:
        while done < goal:
            next_obs = next(source)
            arguments = _arguments(obs, next_obs, rng)
            for i in rng.permutation(len(buffers)):
                name = list(buffers)[i]
                began = time.perf_counter()
                buffers[name].add(*arguments)
                times[name].append(time.perf_counter() - began)
            obs, done = next_obs, done + n_envs
        transition_bytes = (process.memory_info().rss - before) / min(done, size)
        yield from _rows(f"after {done:,} transitions", buffers, times, n_envs, transition_bytes)
        times = {name: [] for name in buffers}
    del small  # not before


def _arguments(obs: Frames, next_obs: Frames, rng: np.random.Generator) -> tuple[Any, ...]:
    n = len(obs)
    rewards, dones = rng.integers(-1, 2, size=n).astype(np.float32), np.zeros(n, np.bool_)
    return obs, next_obs, rng.integers(_N_ACTIONS, size=n), rewards, dones, [{}] * n


def _rows(
    table: str, buffers: dict[str, ReplayBuffer], times: dict[str, list[float]], n_envs: int, transition_bytes: float
) -> Iterator[Row]:
    add_us = {name: 1e6 * np.mean(of) / n_envs for name, of in times.items()}
    medians: dict[str, dict[int, float]] = {name: {} for name in buffers}
    for batch, rounds in _ROUNDS.items():
        seconds: dict[str, list[float]] = {name: [] for name in buffers}
        for _ in range(rounds):
            for name, buffer in buffers.items():
                began = time.perf_counter()
                buffer.sample(batch)
                seconds[name].append(time.perf_counter() - began)
        medians |= {name: medians[name] | {batch: 1e3 * float(np.median(of))} for name, of in seconds.items()}
    for name in reversed(buffers):
        row: Row = {"table": table, "buffer": name}
        if len(buffers) == 1:  # else SB3's batches come and go in the same memory
            row["transition_bytes"] = transition_bytes
        row |= {"add_us": float(add_us[name]), "sample32_ms": medians[name][32], "sample256_ms": medians[name][256]}
        if _PEER in buffers:
            row["add_x"] = float(add_us[name] / add_us[_PEER])
            row |= {f"sample{n}_x": medians[name][n] / medians[_PEER][n] for n in _ROUNDS}
        yield row


def main(
    game: Annotated[str, typer.Option(help="a name such as Pong")] = "MsPacman",
    transitions: Annotated[int, typer.Option(min=1_000, help="of all environments")] = 10_000_000,
    envs: Annotated[int, typer.Option(min=1, help="number of environments")] = 64,
    frames: Annotated[str, typer.Option(help="84x84, or 210x160x3")] = "84x84",
    peer: Annotated[int, typer.Option(min=0, help="transitions of a buffer of SB3 that gets the same; 0 for none")] = 0,
    out: Annotated[Path, typer.Option(help="folder for the tables")] = _RESULTS,
) -> None:
    """Measure, and write tables."""
    about = circumstances()
    torch.set_num_threads(1)
    shape = tuple(map(int, frames.split("x")))
    nbytes = int(np.prod(shape))
    n = max(16, _RECORDED_NBYTES // nbytes // envs)
    console.log(f"{game}, {envs} environments, {n} frames of each")
    of_envs = np.stack([recorded(game, seed, n, shape) for seed in range(envs)], axis=1)
    out.mkdir(exist_ok=True, parents=True)
    rows: list[Row] = []
    for row in measured(steps(of_envs), envs, transitions, peer):
        console.log(*(f"{k} {v:.4g}" if isinstance(v, float) else v for k, v in row.items()))
        rows.append(row)
        name = f"{game}-{frames}-{envs}-envs-{transitions}"
        title = f"{game}, {frames}, {envs} environments"
        (out / f"{name}.md").write_text(as_markdown(title, rows, about), encoding="utf-8")
        (out / f"{name}.csv").write_text(as_csv(rows, about), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
