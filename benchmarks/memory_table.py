"""What a million transitions take, for games and environments: benchmarks/results/memory_table.

    uv run --group benchmarks benchmarks/memory_table.py

plays each environment, and compresses what it gives with the codec that ``auto`` chooses. Most are played with random
actions. Some are also played by the agents that ``agents.py`` has trained, if they are there. Sizes do not depend on
the machine. ``--only PART`` measures the environments whose names have this part
again, and those that are new.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import ale_py
import gymnasium as gym
import numpy as np
import obscodec
import typer
from agents import ENVIRONMENTS, atari, trained, vizdoom
from gymnasium.wrappers import (
    AddRenderObservation,
    FrameStackObservation,
    GrayscaleObservation,
    RecordEpisodeStatistics,
    ResizeObservation,
)

RESULTS = Path(__file__).parent / "results" / "memory_table"
STEPS, N_SAMPLE, SEED = 1_000_000, 20_000, 0
GAMES = (
    "Asteroids",
    "BeamRider",
    "Boxing",
    "Breakout",
    "Enduro",
    "Freeway",
    "MontezumaRevenge",
    "MsPacman",
    "Pong",
    "Qbert",
    "Riverraid",
    "Seaquest",
    "SpaceInvaders",
    "Tennis",
    "VideoPinball",
)
SHOOTER = "VizDoom, a room with monsters, 84x84 in colour"
VECTORS = "CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Pendulum-v1"


@dataclass(frozen=True)
class Row:
    """An environment, how to make it, and who plays: a trained agent, or a random one if None."""

    name: str
    made: Callable[[], Any]
    agent: Any = None


class Noise(gym.Env[Any, Any]):
    """Observations of random bytes, which no codec makes smaller."""

    observation_space = gym.spaces.Box(0, 255, (84, 84), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """The first observation."""
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The next observation."""
        return self._observation(), 0.0, False, False, {}

    def _observation(self) -> Any:
        return self.np_random.integers(256, size=(84, 84), dtype=np.uint8)


def pixels(name: str, size: int) -> Any:
    """What an environment renders, in colour and as small as agents see it."""
    env = AddRenderObservation(gym.make(name, render_mode="rgb_array"), render_only=True)
    return ResizeObservation(env, (size, size))


def rows() -> Iterator[Row]:
    """All environments."""
    yield from (Row(f"Atari {game}", partial(atari, game)) for game in GAMES)
    yield Row("Atari Breakout, 210x160 in colour", lambda: gym.make("ALE/Breakout-v5"))
    yield Row("CarRacing, 96x96 in colour", lambda: gym.make("CarRacing-v3"))
    yield Row(
        "CarRacing, 96x96 in grey, stacks of 4",
        lambda: FrameStackObservation(GrayscaleObservation(gym.make("CarRacing-v3")), 4),
    )
    yield Row("VizDoom, a room with textures, 84x84 in colour", lambda: vizdoom("MyWayHome"))
    yield Row("CartPole, 64x64 pixels in colour", lambda: pixels("CartPole-v1", 64))
    yield Row("Pendulum, 64x64 pixels in colour", lambda: pixels("Pendulum-v1", 64))
    yield from (Row(f"{name}, vectors", partial(gym.make, name)) for name in VECTORS)
    yield Row("noise, 84x84", Noise)
    yield Row(SHOOTER, lambda: vizdoom("DefendCenter"))
    for name, made in ENVIRONMENTS.items():
        if (agent := trained(name)) is not None:
            yield Row(f"Atari {name}" if name in GAMES else SHOOTER, made, agent)


def main(
    only: Annotated[str, typer.Option(help="A part of the names to measure; the other rows stay as they are.")] = "",
) -> None:
    """Measure, print, and write a CSV and a table."""
    gym.register_envs(ale_py)
    path, found = RESULTS / "memory_table.csv", dict[tuple[object, object], dict[str, object]]()
    if only:
        with path.open(newline="") as file:
            found = {_key(row): dict(row) for row in csv.DictReader(file)}
    found |= {_key(row): row for row in (measured(row) for row in rows() if only in row.name)}
    RESULTS.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, next(iter(found.values())))
        writer.writeheader()
        writer.writerows(found.values())
    (RESULTS / "memory_table.md").write_text(table([*found.values()]))


def _key(row: Mapping[str, object]) -> tuple[object, object]:
    return row["environment"], row["policy"]


def measured(row: Row) -> dict[str, object]:
    """The sizes of a row."""
    env = RecordEpisodeStatistics(row.made())
    act = None if row.agent is None else lambda seen: row.agent.predict(seen)[0]
    try:
        estimated = obscodec.estimate(env, STEPS, n_sample=N_SAMPLE, seed=SEED, policy=act)
    finally:
        env.close()
    observations = [field for name, field in estimated.fields.items() if name.startswith("observation")]
    halved = estimated.raw_bytes - sum(field.raw_bytes for field in observations)
    policy = "random" if row.agent is None else f"PPO after {row.agent.num_timesteps:,} steps"
    games = f"{np.mean(env.return_queue):.1f}" if env.return_queue else ""
    print(f"{row.name}, {policy}: {estimated}, {observations[0].codec}")
    return {
        "environment": row.name,
        "policy": policy,
        "return": games,
        "raw_mb": f"{estimated.raw_bytes / 1e6:.0f}",
        "flag_mb": f"{halved / 1e6:.0f}",
        "mb": f"{estimated.nbytes / 1e6:.0f}",
        "ratio": f"{estimated.ratio:.1f}",
        "codec": observations[0].codec or "",
    }


def table(found: list[dict[str, object]]) -> str:
    """The results, for readers."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("ale-py", "gymnasium", "box2d", "vizdoom"))
    lines = [
        "# MB per million transitions",
        "",
        f"What {N_SAMPLE:,} transitions take, extrapolated to a million; observation and next observation, action and",
        "reward included. `optimize_memory_usage` of Stable-Baselines3 stores each observation once. Returns are means",
        "of the games that were played, of a hundred at most. Trained agents learned by `benchmarks/agents.py`.",
        f"Written by `uv run --group benchmarks benchmarks/memory_table.py`, with {packages}.",
        "",
        "| environment | policy | return | uncompressed | `optimize_memory_usage` | obscodec | times smaller | codec |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for of in found:
        codec = f"`{str(of['codec']).replace('|', chr(92) + '|')}`" if of["codec"] else "none"
        sizes = " | ".join(f"{int(str(of[name])):,}" for name in ("raw_mb", "flag_mb", "mb"))
        lines.append(f"| {of['environment']} | {of['policy']} | {of['return']} | {sizes} | {of['ratio']} | {codec} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    typer.run(main)
