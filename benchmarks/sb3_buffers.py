"""Compare the buffers of obscodec-sb3 with SB3's own: memory, times, steps per second of PPO.

uv run benchmarks/sb3_buffers.py

Writes benchmarks/results/sb3; docs/benchmarks.md describes what is measured. Each of the tables can be left out.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import ale_py
import gymnasium
import numpy as np
import psutil
import torch
import typer
from obscodec_sb3 import CompressedReplayBuffer, compressed
from processes import in_fresh_process
from recorded_steps import read_steps, record
from resident_memory import give_back_free_memory
from result_tables import Row, as_csv, as_markdown, circumstances
from rich.console import Console
from sb3_classes import ACTIONS, IMAGE, KINDS, resident, times
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack
from turns import training_s

_RESULTS = Path(__file__).with_name("results") / "sb3"
_MILLION = 1_000_000
_N_ENVS, _N_STEPS = 8, 128  # of PPO
_NOT_COUNTED = 2  # turns, until all is loaded and compiled
_NAMES = ("SB3", "obscodec")
console = Console(stderr=True)


def class_rows(kind: str, game: str, size: int, n_envs: int) -> Iterator[Row]:
    """Memory and times of a class, and of SB3's own."""
    console.log(f"{game}, {KINDS[kind].name}")
    paths = record(game, n_envs, 2 * max(size, 8_192) // n_envs)
    measured = in_fresh_process(times, kind, paths, size)
    nbytes = [in_fresh_process(resident, kind, paths, size, ours=ours) for ours in (False, True)]
    for i, name in enumerate(_NAMES):
        memory = {"transition_bytes": nbytes[i], "transition_x": nbytes[i] / nbytes[0]}
        table = f"{game}, {KINDS[kind].name}, n_envs {n_envs}, {size:,} transitions"
        yield {"table": table, "buffer": name, **memory, **measured[i]._asdict()}


def ppo(game: str, n_turns: int) -> list[tuple[float, float]]:
    """Steps per second of PPO with SB3's buffer and ours, in turns of one rollout, and median ratios."""
    torch.set_num_threads(1)
    gymnasium.register_envs(ale_py)
    models = [_ppo(game, ours=ours) for ours in (False, True)]
    elapsed_s = training_s(models, _N_ENVS * _N_STEPS, n_turns, _NOT_COUNTED)
    weights = [list(model.policy.state_dict().values()) for model in models]
    assert all(torch.equal(x, y) for x, y in zip(*weights, strict=True)), "the buffers gave different batches"
    steps_per_s = _N_ENVS * _N_STEPS / np.median(elapsed_s, axis=1)
    return [(float(steps_per_s[i]), float(np.median(elapsed_s[0] / elapsed_s[i]))) for i in (0, 1)]


def _ppo(game: str, *, ours: bool) -> PPO:
    env = VecFrameStack(make_atari_env(f"{game}NoFrameskip-v4", n_envs=_N_ENVS, seed=0), n_stack=4)
    more: dict[str, Any] = {}
    if ours:
        more = {"rollout_buffer_class": compressed(RolloutBuffer), "rollout_buffer_kwargs": {"threads": 1}}
    return PPO("CnnPolicy", env, n_steps=_N_STEPS, batch_size=256, n_epochs=4, seed=0, **more)


def construction() -> tuple[float, float]:
    """Seconds, and resident MB, of a buffer of a million transitions, in a process that made a small one before."""
    CompressedReplayBuffer(1_000, IMAGE, ACTIONS, "cpu")
    give_back_free_memory()
    before, start = psutil.Process().memory_info().rss, time.perf_counter()
    buffer = CompressedReplayBuffer(_MILLION, IMAGE, ACTIONS, "cpu")
    elapsed_s = time.perf_counter() - start
    nbytes = psutil.Process().memory_info().rss - before
    del buffer  # not before
    return elapsed_s, nbytes / 1e6


def million(game: str, paths: list[Path]) -> dict[str, float]:
    """Resident MB of DQN's buffer of a million transitions, filled with recorded steps in a loop, and its parts."""
    gymnasium.register_envs(ale_py)
    env = VecFrameStack(make_atari_env(f"{game}NoFrameskip-v4", seed=0), n_stack=4)

    def model(size: int) -> DQN:
        return DQN("CnnPolicy", env, buffer_size=size, replay_buffer_class=CompressedReplayBuffer)

    def fill(buffer: Any, n: int) -> None:
        left = n
        while left:
            for step, _ in zip(read_steps(paths), range(left), strict=False):
                buffer.add(*KINDS["replay"].arguments(step))
                left -= 1

    small, large = model(600), model(1)  # the network of a model is no part of the buffer
    assert small.replay_buffer is not None
    fill(small.replay_buffer, 600)
    small.replay_buffer.sample(256)
    give_back_free_memory()
    before = psutil.Process().memory_info().rss
    large.buffer_size = _MILLION
    large.replay_buffer = CompressedReplayBuffer(_MILLION, IMAGE, ACTIONS, "cpu")
    buffer = large.replay_buffer
    fill(buffer, _MILLION)
    grown = psutil.Process().memory_info().rss - before
    store = buffer.observation_store.stats()
    stats = buffer.stats()
    parts = {
        "resident_mb": grown,
        "streams_mb": store.live_bytes,
        "free_mb": store.reserved_bytes - store.live_bytes,
        "tables_mb": store.table_bytes + store.dictionary_bytes,
        "ids_mb": stats.id_bytes + stats.waiting_bytes,
        "rest_mb": stats.other_bytes,
    }
    return {name: nbytes / 1e6 for name, nbytes in parts.items()}


def main(
    games: Annotated[str, typer.Option(help="names such as Pong")] = "MsPacman,Pong,Breakout",
    transitions: Annotated[int, typer.Option(min=2_000, help="in each replay buffer")] = 50_000,
    envs: Annotated[int, typer.Option(min=1, help="environments of the replay buffers")] = 4,
    turns: Annotated[int, typer.Option(min=0, help="rollouts of PPO with each buffer; 0: without PPO")] = 12,
    fill: Annotated[bool, typer.Option(help="also fill a buffer of a million transitions")] = True,
    out: Annotated[Path, typer.Option(help="folder for sb3.csv, .md")] = _RESULTS,
) -> None:
    """Measure, and write the tables."""
    about = circumstances()
    out.mkdir(parents=True, exist_ok=True)

    def measured() -> Iterator[Iterator[Row]]:
        named = games.split(",")
        for game in named:
            yield class_rows("rollout", game, _N_ENVS * _N_STEPS, _N_ENVS)
        elapsed_s, mb = in_fresh_process(construction)
        yield iter([{"table": "Making a million", "buffer": "obscodec", "make_s": elapsed_s, "make_mb": mb}])
        for game in named if turns else ():
            console.log(f"{game}, PPO")
            pairs = zip(_NAMES, in_fresh_process(ppo, game, turns), strict=True)
            yield ({"table": f"{game}, PPO", "buffer": name, "ppo_per_s": s, "ppo_x": x} for name, (s, x) in pairs)
            if fill and game == named[0]:
                console.log("a million transitions of Pong")
                parts = in_fresh_process(million, "Pong", record("Pong", 1, 100_000))
                yield iter([{"table": "A million transitions of Pong in DQN's buffer", "buffer": "obscodec", **parts}])
        for game in named:
            for kind in ("replay", "dict"):
                yield class_rows(kind, game, transitions, envs)

    rows: list[Row] = []
    for table in measured():
        rows += table
        (out / "sb3.md").write_text(as_markdown("Buffers of obscodec-sb3", rows, about), encoding="utf-8")
        (out / "sb3.csv").write_text(as_csv(rows, about), encoding="utf-8")
    print((out / "sb3.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    typer.run(main)
