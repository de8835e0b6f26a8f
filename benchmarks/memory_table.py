"""What a million transitions take, for games and environments: benchmarks/results/memory_table.

    uv run --group benchmarks benchmarks/memory_table.py

runs each environment with random actions, and compresses what it gives with the codec that ``auto`` chooses. Sizes do
not depend on the machine. ``--only PART`` measures the environments whose names have this part, and prints them.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import ale_py
import gymnasium as gym
import numpy as np
import obscodec
import typer
from gymnasium.wrappers import (
    AddRenderObservation,
    AtariPreprocessing,
    FrameStackObservation,
    GrayscaleObservation,
    ResizeObservation,
    TransformObservation,
)

RESULTS = Path(__file__).parent / "results" / "memory_table"
STEPS, N_SAMPLE, SEED = 1_000_000, 5_000, 0
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
SCREEN = gym.spaces.Box(0, 255, (240, 320, 3), np.uint8)
VECTORS = "CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0", "Pendulum-v1"


@dataclass(frozen=True)
class Row:
    """An environment, and how to make it."""

    name: str
    made: Callable[[], Any]


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


def atari(game: str) -> Any:
    """A game in 84x84 grey pixels and stacks of four, as most agents see it."""
    return FrameStackObservation(AtariPreprocessing(gym.make(f"ALE/{game}-v5", frameskip=1)), 4)


def vizdoom() -> Any:
    """What a camera sees in a room with textured walls."""
    import_module("vizdoom.gymnasium_wrapper")  # which registers its environments
    screen = TransformObservation(gym.make("VizdoomMyWayHome-v1", frame_skip=4), lambda seen: seen["screen"], SCREEN)
    return ResizeObservation(screen, (84, 84))


def pixels(name: str, size: int) -> Any:
    """What an environment renders, in colour and as small as agents see it."""
    env = AddRenderObservation(gym.make(name, render_mode="rgb_array"), render_only=True)
    return ResizeObservation(env, (size, size))


def rows() -> list[Row]:
    """All environments."""
    return [
        *(Row(f"Atari {game}", lambda game=game: atari(game)) for game in GAMES),  # type: ignore[misc]
        Row("Atari Breakout, 210x160 in colour", lambda: gym.make("ALE/Breakout-v5")),
        Row("CarRacing, 96x96 in colour", lambda: gym.make("CarRacing-v3")),
        Row(
            "CarRacing, 96x96 in grey, stacks of 4",
            lambda: FrameStackObservation(GrayscaleObservation(gym.make("CarRacing-v3")), 4),
        ),
        Row("VizDoom, a room with textures, 84x84 in colour", vizdoom),
        Row("CartPole, 64x64 pixels in colour", lambda: pixels("CartPole-v1", 64)),
        Row("Pendulum, 64x64 pixels in colour", lambda: pixels("Pendulum-v1", 64)),
        *(Row(f"{name}, vectors", lambda name=name: gym.make(name)) for name in VECTORS),  # type: ignore[misc]
        Row("noise, 84x84", Noise),
    ]


def main(only: Annotated[str, typer.Option(help="A part of the names to measure; nothing is written.")] = "") -> None:
    """Measure, print, and write a CSV and a table."""
    gym.register_envs(ale_py)
    found = [measured(row) for row in rows() if only in row.name]
    if only:
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "memory_table.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, found[0])
        writer.writeheader()
        writer.writerows(found)
    (RESULTS / "memory_table.md").write_text(table(found))


def measured(row: Row) -> dict[str, object]:
    """The sizes of a row."""
    env = row.made()
    try:
        estimated = obscodec.estimate(env, STEPS, n_sample=N_SAMPLE, seed=SEED)
    finally:
        env.close()
    codec = next(iter(estimated.fields.values())).codec
    print(f"{row.name}: {estimated.nbytes / 1e6:,.0f} MB of {estimated.raw_bytes / 1e6:,.0f}, {codec}")
    return {
        "environment": row.name,
        "raw_mb": f"{estimated.raw_bytes / 1e6:.0f}",
        "mb": f"{estimated.nbytes / 1e6:.0f}",
        "ratio": f"{estimated.ratio:.1f}",
        "codec": codec or "",
    }


def table(found: list[dict[str, object]]) -> str:
    """The results, for readers."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("ale-py", "gymnasium", "box2d", "vizdoom"))
    lines = [
        "# MB per million transitions",
        "",
        f"{N_SAMPLE:,} transitions with random actions, extrapolated to a million; observation and next observation,",
        "action and reward included. Written by `uv run --group benchmarks benchmarks/memory_table.py`, with",
        f"{packages}.",
        "",
        "| environment | uncompressed | obscodec | times smaller | codec |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for of in found:
        codec = f"`{str(of['codec']).replace('|', chr(92) + '|')}`" if of["codec"] else "none"
        raw, mb = (f"{int(str(of[name])):,}" for name in ("raw_mb", "mb"))
        lines.append(f"| {of['environment']} | {raw} | {mb} | {of['ratio']} | {codec} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    typer.run(main)
