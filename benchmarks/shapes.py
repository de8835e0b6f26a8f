"""What a RingBuffer takes of small observations, of many environments, and of observations of different lengths.

uv run --group textured benchmarks/shapes.py

- *MiniGrid*: the view of a random agent in four rooms, 7x7x3 bytes, with the next one of each step; the next one is one
  step later, or three, with the last one of an episode where it ends before.
- *many*: squares that move, and noise, 64x64x3 bytes, 8 steps of 1,024 environments; the ring is filled twice. It
  has a ninth step, which the next one replaces; of plain arrays it is not counted.
- *clouds*: 50 to 1,024 points on balls of random places, float16 in float32; filled up with zeros, or as they are.

Bytes are those of ``stats()``, by transition. Batches of 256 at random are read from the rings of a set in turns, in
random order; times are the least of all rounds.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import typer
from obscodec import Field, RingBuffer
from result_tables import circumstances

_RESULTS = Path(__file__).parent / "results" / "shapes.md"
_PACKAGES = "obscodec", "numpy", "numba", "zstandard", "minigrid"
_BATCH, _MOST_POINTS, _N_CLOUDS = 256, 1024, 4000
Steps = list[dict[str, Any]]


def minigrid(n: int, after: int) -> Steps:
    """Steps of a random agent."""
    import gymnasium
    import minigrid  # noqa: F401  # registers its environments

    env: Any = gymnasium.make("MiniGrid-FourRooms-v0")
    env.action_space.seed(0)
    steps: Steps = []
    while len(steps) < n:
        views, is_over = [env.reset(seed=len(steps))[0]["image"]], False
        while not is_over:
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            views.append(observation["image"])
            is_over = terminated or truncated
        last = len(views) - 1
        steps += [{"obs": views[t], "next_obs": views[min(t + after, last)]} for t in range(last)]
    return steps[:n]


def squares(n_envs: int, *, noise: bool) -> Steps:
    """Two rollouts of 8 steps."""
    rng, env = np.random.default_rng(0), np.arange(n_envs)
    frames = np.zeros((16, n_envs, 64, 64, 3), np.uint8)
    for t in range(16):
        for e in env:
            at = (7 * e + 3 * t) % 58, (5 * e + 2 * t) % 58
            frames[t, e, at[0] : at[0] + 6, at[1] : at[1] + 6] = 40 + e % 200
    return [{"obs": rng.integers(0, 256, step.shape, np.uint8) if noise else step} for step in frames]


def clouds(n: int, *, filled: bool) -> Steps:
    """Points on balls."""
    rng, steps = np.random.default_rng(0), []
    for _ in range(n):
        points = rng.normal(size=(int(rng.integers(50, _MOST_POINTS)), 3))
        points = points / np.linalg.norm(points, axis=1)[:, None] + rng.normal(size=3)
        seen = points.astype(np.float16).astype(np.float32)
        if filled:
            seen = np.pad(seen, [(0, _MOST_POINTS - len(seen)), (0, 0)])
        steps.append({"obs": seen})
    return steps


def sets(n: int) -> Iterator[tuple[str, dict[str, tuple[Steps, Callable[..., RingBuffer]]]]]:
    """Each set, with its rings and what they store."""

    def with_next(after: int, **options: Any) -> Callable[..., RingBuffer]:
        obs = Field((7, 7, 3), np.uint8, **options)
        later = Field((7, 7, 3), np.uint8, next_of="obs", after=after)
        if options.get("codec", "auto") is None:
            later = Field((7, 7, 3), np.uint8, codec=None)
        return lambda: RingBuffer(n, {"obs": obs, "next_obs": later})

    one, three = minigrid(n, 1), minigrid(n, 3)
    yield (
        "MiniGrid, next view",
        {
            "plain arrays": (one, with_next(1, codec=None)),
            "as it is": (one, with_next(1)),
            "`min_nbytes=0`": (one, with_next(1, min_nbytes=0)),
        },
    )
    yield (
        "MiniGrid, view 3 steps later",
        {
            "plain arrays": (three, with_next(1, codec=None)),
            "as it is": (three, with_next(3)),
            "`min_nbytes=0`": (three, with_next(3, min_nbytes=0)),
        },
    )
    for name, noise in (("squares", False), ("noise", True)):
        steps = squares(1024, noise=noise)
        yield (
            f"1,024 environments, 8 steps, {name}",
            {
                told: (
                    steps,
                    lambda options=options: RingBuffer(8, {"obs": Field((64, 64, 3), np.uint8, **options)}, 1024),
                )
                for told, options in {
                    "plain arrays": {"codec": None},
                    "as it is": {},
                    "`zstd:3`, 8 in a block": {"codec": "zstd:3", "block_frames": 8},
                }.items()
            },
        )
    points = {shape: Field((shape, 3), np.float32) for shape in (_MOST_POINTS, None)}
    plain = Field((_MOST_POINTS, 3), np.float32, codec=None)
    yield (
        "clouds of 50 to 1,024 points",
        {
            "plain arrays, filled up": (clouds(_N_CLOUDS, filled=True), lambda: RingBuffer(_N_CLOUDS, {"obs": plain})),
            "filled up": (clouds(_N_CLOUDS, filled=True), lambda: RingBuffer(_N_CLOUDS, {"obs": points[_MOST_POINTS]})),
            "`(None, 3)`": (clouds(_N_CLOUDS, filled=False), lambda: RingBuffer(_N_CLOUDS, {"obs": points[None]})),
        },
    )


def measured(
    rings: dict[str, tuple[Steps, Callable[..., RingBuffer]]], n_rounds: int
) -> Iterator[tuple[str, RingBuffer, float]]:
    """Fill and read the rings: their names, and the seconds of a batch."""
    filled, times = {}, {name: [] for name in rings}  # type: dict[str, RingBuffer], dict[str, list[float]]
    for name, (steps, make) in rings.items():
        ring = filled[name] = make()
        for k, step in enumerate(steps):
            ring.append(**step)
            if k == len(steps) // 2:
                ring.decide()
        ring.decide()
        newest = ring[-1]
        for field, value in steps[-1].items():
            if not np.array_equal(newest[field].reshape(np.shape(value)), value):
                raise AssertionError(f"{name} does not give back what it took")
    rng = np.random.default_rng(0)
    for _ in range(n_rounds):
        for name in rng.permutation([*filled]).tolist():
            begin = time.perf_counter()
            filled[name].sample(_BATCH, rng)
            times[name].append(time.perf_counter() - begin)
    for name, ring in filled.items():
        yield name, ring, min(times[name])


def main(n: int = 50_000, n_rounds: int = 40) -> None:
    """Measure, print, write."""
    lines = ["# Small observations, many environments, different lengths", ""]
    lines += [f"- {what}: {text}" for what, text in circumstances("textured", _PACKAGES).items()]
    lines += ["", f"Bytes of a transition, and milliseconds to sample {_BATCH}.", ""]
    lines += ["| observations | kept | codec | bytes | ms |", "| --- | --- | --- | ---: | ---: |"]
    for name, rings in sets(n):
        for kept, ring, seconds in measured(rings, n_rounds):
            stats = ring.stats()
            of = stats.fields["obs"]
            codec = "" if isinstance(of, int) else f"`{of.codec}`".replace("|", "\\|")
            each = stats.total_bytes / (len(ring) * ring.n_envs)
            lines.append(f"| {name} | {kept} | {codec} | {each:,.0f} | {1000 * seconds:.2f} |")
            print(lines[-1], flush=True)
    _RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
