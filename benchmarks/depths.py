"""What codecs make of depth images and of latents: numbers that are smooth, in float32 and float16.

uv run --group textured benchmarks/depths.py

- *rays*: a camera that moves past balls on a plane; its depths are computed, in metres.
- *MuJoCo, turning*: depths in metres of ``mujoco.Renderer``, with a camera that turns around a random agent.
- *MuJoCo, Gymnasium*: what ``render_mode="depth_array"`` returns, from the camera of the environment.
- *latents*: vectors that wander, rounded to bfloat16, in float32; 16 consecutive ones are an image.

Each codec stores the frames in a store of its own. Half of them train its dictionary, the other half is measured.
Batches of 256 at random are read with one thread from the stores in turns, in random order. Times are the least of all
rounds, divided by that of `shuffle|zstd:1`.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import typer
from obscodec import FrameStore, Layout
from obscodec.codecs import check_codec, new_codec
from obscodec.errors import SpecError
from obscodec.stores import StoreOptions
from obscodec.stores.auto.choice import choose
from result_tables import circumstances

Frames = npt.NDArray[np.floating[Any]]

_SIDE, _BATCH, _LATENTS = 84, 256, 512
_PLAIN = "shuffle|zstd:1"
_SPECS = {"zstd:3": 1, "delta-rle|zstd:3": 16, _PLAIN: 1, "lorenzo|shuffle|zstd:1": 1, "pred": 1, "shuffle|pred": 1}
_SPECS |= {"lorenzo|shuffle|pred": 1}
_RESULTS = Path(__file__).parent / "results" / "depths.md"
_FAR = 20.0  # metres, of the sky
_PACKAGES = "obscodec", "numpy", "numba", "zstandard", "gymnasium", "mujoco"


def rays(n: int, side: int = _SIDE) -> Frames:
    """``f32[n, side, side]``: metres along the rays of a camera that moves past balls on a plane."""
    rng = np.random.default_rng(0)
    centres, radii = rng.uniform([-6, -6, 0.3], [6, 6, 1.5], (24, 3)), rng.uniform(0.3, 1, 24)
    down, right = np.meshgrid(np.linspace(0.6, -0.6, side), np.linspace(-0.6, 0.6, side), indexing="ij")
    seen = np.empty((n, side, side), np.float32)
    for t in range(n):
        place = np.array([4 * np.sin(t / 90) - 2, 3 * np.sin(t / 70), 1.5])
        ahead, aside = (np.array([np.cos(a), np.sin(a), 0]) for a in (t / 33, t / 33 - np.pi / 2))
        direction = ahead + right[..., None] * aside + (down[..., None] - 0.15) * [0, 0, 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            depth = np.where(direction[..., 2] < 0, -place[2] / direction[..., 2], _FAR)
            for centre, radius in zip(centres, radii, strict=True):
                a, b = (direction**2).sum(-1), direction @ (place - centre)
                hit = (-b - np.sqrt(b**2 - a * (((place - centre) ** 2).sum() - radius**2))) / a
                depth = np.fmin(depth, np.where(hit > 0, hit, np.nan))
        seen[t] = np.minimum(depth, _FAR)
    return seen


def mujoco(name: str, n: int, *, turning: bool) -> Frames:
    """``f32[n, 84, 84]``: depths of an environment that a random agent plays."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    import gymnasium
    import mujoco as physics

    env: Any = gymnasium.make(name, render_mode="depth_array", width=_SIDE, height=_SIDE)
    camera, renderer = physics.MjvCamera(), physics.Renderer(env.unwrapped.model, _SIDE, _SIDE) if turning else None
    camera.type, camera.trackbodyid = physics.mjtCamera.mjCAMERA_TRACKING, 1
    camera.distance, camera.elevation = 4, -20
    env.action_space.seed(0)
    seen, is_over = np.empty((n, _SIDE, _SIDE), np.float32), True
    for t in range(n):
        if is_over:
            env.reset(seed=t)
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        is_over = terminated or truncated
        if renderer is not None:
            camera.azimuth = t
            renderer.enable_depth_rendering()
            renderer.update_scene(env.unwrapped.data, camera)
        seen[t] = env.render() if renderer is None else renderer.render()
    return seen


def latents(n: int) -> Frames:
    """``f32[n, 16, 512]``: each vector is mostly the one before it, with a deviation of 1."""
    rng = np.random.default_rng(0)
    vectors = np.empty((16 * n, _LATENTS), np.float32)
    vector = rng.normal(0, 1, _LATENTS)
    for at in range(len(vectors)):
        vector = 0.999 * vector + rng.normal(0, 0.045, _LATENTS)
        vectors[at] = vector
    return vectors.astype(ml_dtypes.bfloat16).astype(np.float32).reshape(n, 16, _LATENTS)


def sets(n: int) -> Iterator[tuple[str, Frames]]:
    """Each set with its name."""
    depths = {"rays": rays(n), "rays, 240x240": rays(n // 8, 240)}
    for name in ("Hopper-v5", "Ant-v5", "HumanoidStandup-v5"):
        depths[f"MuJoCo, turning, {name}"] = mujoco(name, n, turning=True)
    depths["MuJoCo, Gymnasium, Hopper-v5"] = mujoco("Hopper-v5", n, turning=False)
    for name, frames in depths.items():
        yield f"{name}, float32", frames
        yield f"{name}, float16", frames.astype(np.float16)
    yield f"latents, 16x{_LATENTS}, bfloat16 in float32", latents(n)


def measured(frames: Frames, n_rounds: int) -> dict[str, tuple[float, float]]:
    """Of each codec: how many times smaller the second half of the frames is, and the seconds to read a batch."""
    stores, smaller = {}, {}
    for spec, block_frames in _SPECS.items():
        try:
            new_codec(spec, Layout.of(frames[0]))
        except SpecError:
            continue
        store = FrameStore(Layout.of(frames[0]), codec=spec, block_frames=block_frames, threads=1)
        half = len(frames) // 2
        first, trained = store.append(frames[:half]), store.log.train()
        stores[spec] = store, np.concatenate([first, store.append(frames[half:])])
        smaller[spec] = frames[0].nbytes / store.log.mean_frame_bytes(trained)
    rng, out = np.random.default_rng(0), np.empty((_BATCH, *frames.shape[1:]), frames.dtype)
    times: dict[str, list[float]] = {spec: [] for spec in stores}
    for _ in range(n_rounds):
        wanted = rng.integers(len(frames), size=_BATCH)
        for spec in rng.permutation([*stores]).tolist():
            store, ids = stores[spec]
            begin = time.perf_counter()
            store.read(ids[wanted], out)
            times[spec].append(time.perf_counter() - begin)
            if out.tobytes() != frames[wanted].tobytes():
                raise AssertionError(f"{spec} does not give back what it took")
    return {spec: (smaller[spec], min(times[spec])) for spec in stores}


def main(n: int = 1024, n_rounds: int = 25) -> None:
    """Measure, print, write."""
    for spec in _SPECS:
        check_codec(spec)
    lines = ["# Depths and latents", ""]
    lines += [f"- {what}: {text}" for what, text in circumstances("textured", _PACKAGES).items()]
    lines += [
        "",
        f"Times smaller than uncompressed, {n} frames of 84x84, {n // 8} of 240x240, and in brackets the time",
    ]
    lines += [f"to read 256 of them, relative to `{_PLAIN}`. `auto` chooses from the first 256.", ""]
    specs = [f"`{spec}`".replace("|", "\\|") for spec in _SPECS]
    lines += [f"| frames | {' | '.join(specs)} | `auto` chooses |", f"| --- |{' ---: |' * len(specs)} --- |"]
    for name, frames in sets(n):
        found = measured(frames, n_rounds)
        chosen = choose(frames[:256], np.zeros(len(frames[:256]), np.int64), StoreOptions()).chosen
        cells = [f"{found[s][0]:.1f} ({found[s][1] / found[_PLAIN][1]:.2f})" if s in found else "" for s in _SPECS]
        auto = f"`{chosen.spec}`, {chosen.block_frames} in a block".replace("|", "\\|")
        lines.append(f"| {name} | {' | '.join(cells)} | {auto} |")
        print(lines[-1], flush=True)
    _RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    typer.run(main)
