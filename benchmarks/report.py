# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
#     "obscodec-sb3",
#     "ale-py==0.12.1",
#     "av==18.1.0",
#     "dm-control==1.0.50",
#     "gymnasium==1.4.0",
#     "mujoco==3.17.0",
#     "numba==0.68.1",
#     "numpy==2.4.6",
#     "opencv-python-headless==5.0.0.93",
#     "psutil",
#     "stable-baselines3==2.9.2",
#     "torch==2.15.0",
#     "typer==0.29.2",
# ]
#
# [tool.uv.sources]  # of this checkout
# obscodec = { path = "../packages/obscodec-core", editable = true }
# obscodec-sb3 = { path = "../packages/obscodec-sb3", editable = true }
# ///
"""What a replay buffer of images takes, and whether an agent learns the same with it.

    uv run benchmarks/report.py

It repeats what "Differentially Encoded Observation Spaces for Perceptive Reinforcement Learning" (arXiv 2310.01767)
asks, which keeps observations as differences, with this library and with its own method, on the same frames: memory on
games of Atari and tasks of DeepMind's control suite, and learning curves with and without compression. It takes 25
minutes on two cores, and writes ``benchmarks/results/report.md``.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import psutil
import torch
import typer
from gymnasium import spaces
from processes import in_fresh_process
from resident_memory import give_back_free_memory
from result_tables import circumstances

GAMES = (
    *("Asteroids", "BeamRider", "Breakout", "Enduro", "MsPacman"),
    *("Pong", "Qbert", "RoadRunner", "Seaquest", "SpaceInvaders"),
)
TASKS = (
    *("acrobot-swingup", "cartpole-swingup", "cheetah-run", "finger-spin", "hopper-hop"),
    *("quadruped-walk", "reacher-easy", "walker-walk"),
)
STACKS = {"Atari": 4, "DMC": 3}  # frames of an observation
_RESULTS = Path(__file__).parent / "results" / "report.md"
_PACKAGES = ("obscodec", "stable-baselines3", "torch", "numpy", "numba", "ale-py", "dm-control", "av")
_WARM_UP = 400  # transitions; a store chooses its codec after 256 frames
_GROUP = 16  # frames of a film that are decoded together: as many as a block of the buffer has
_REPEAT = 2  # of an action in the control suite
_CELLS, _SCALE, _PADDLE = 12, 3, 3  # of the task that is learned
Frames = npt.NDArray[np.uint8]


class Taken(NamedTuple):
    """Bytes for each transition.

    Attributes:
        plain: the arrays of SB3's ``ReplayBuffer``: an observation and the next one.
        differences: the arrays of the paper's method.
        film: the frames as a lossless film of H.264, in groups of 16.
        resident: the growth of resident memory while a ``CompressedReplayBuffer`` is made and filled.
    """

    plain: float
    differences: float
    film: float
    resident: float


def atari(game: str) -> Iterator[tuple[Frames, bool]]:
    """Frames ``u8[1, 84, 84]`` of a game that a random agent plays, and whether each is the first of an episode."""
    from atari_frames import environment

    env, rng = environment(game), np.random.default_rng(0)
    n_actions: int = env.action_space.n  # type: ignore[attr-defined]
    frame, first = env.reset(seed=0)[0], True
    while True:
        yield frame[None], first
        frame, _, terminated, truncated, _ = env.step(int(rng.integers(n_actions)))
        first = terminated or truncated
        if first:
            yield frame[None], False
            frame = env.reset()[0]


def control(task: str) -> Iterator[tuple[Frames, bool]]:
    """The same for a task of the control suite, ``u8[3, 84, 84]``; an action is drawn evenly for two steps."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    from dm_control import suite

    domain, _, name = task.partition("-")
    env, rng = suite.load(domain, name, task_kwargs={"random": 0}), np.random.default_rng(0)
    actions, looks = env.action_spec(), env.physics.model.vis
    # Where no GPU draws, most of the time goes into pixels that nobody sees, and into shadows too sharp for 84x84.
    looks.global_.offwidth = looks.global_.offheight = 84
    looks.quality.shadowsize = 1024
    while True:
        env.reset()
        first = True
        while True:
            image = env.physics.render(84, 84, camera_id=2 if domain == "quadruped" else 0)
            yield np.ascontiguousarray(image.transpose(2, 0, 1)), first
            first, action = False, rng.uniform(actions.minimum, actions.maximum)
            if any(env.step(action).last() for _ in range(_REPEAT)):
                break


def record(suite: str, name: str, n: int, path: Path) -> None:
    """Write ``n`` frames, one after the other, and which of them begin episodes."""
    played, firsts = (atari if suite == "Atari" else control)(name), np.zeros(n, np.bool_)
    with path.open("wb") as file:
        for k in range(n):
            frame, firsts[k] = next(played)
            file.write(frame.tobytes())
    np.save(path.with_suffix(".npy"), firsts)


def frames_of(path: Path, shape: tuple[int, ...]) -> Iterator[Frames]:
    """The frames of a file, read one by one: a mapped file would count as memory."""
    nbytes = int(np.prod(shape))
    with path.open("rb") as file:
        while len(read := file.read(nbytes)) == nbytes:
            yield np.frombuffer(read, np.uint8).reshape(shape)


def transitions(path: Path, shape: tuple[int, ...], stack: int) -> Iterator[tuple[Frames, Frames, bool]]:
    """``obs`` and ``next_obs``, stacks of frames, and whether the episode ends; the first frame fills its stack."""
    firsts = np.load(path.with_suffix(".npy"))
    seen: deque[Frames] = deque(maxlen=stack)
    for k, frame in enumerate(frames_of(path, shape)):
        if firsts[k]:
            seen.extend([frame] * stack)
            continue
        obs = np.concatenate(seen)
        seen.append(frame)
        yield obs, np.concatenate(seen), bool(k + 1 == len(firsts) or firsts[k + 1])


def resident(path: Path, shape: tuple[int, ...], stack: int) -> float:
    """Bytes of resident memory for each transition of a buffer; AssertionError if one comes back changed."""
    from obscodec_sb3 import CompressedReplayBuffer

    space = spaces.Box(0, 255, (shape[0] * stack, *shape[1:]), np.uint8)

    def filled(size: int) -> Any:
        buffer = CompressedReplayBuffer(size, space, spaces.Discrete(1 << 40), device="cpu")
        for k, (obs, next_obs, ends) in enumerate(transitions(path, shape, stack)):
            if k == size:
                break
            number, done = np.array([[k]]), np.array([ends])
            buffer.add(obs[None], next_obs[None], number, np.zeros(1, np.float32), done, [{}])
        buffer.decide()
        return buffer

    n = sum(1 for _ in transitions(path, shape, stack))
    small = filled(_WARM_UP)
    small.sample(256)
    give_back_free_memory()
    before = psutil.Process().memory_info().rss
    buffer = filled(n)
    after = psutil.Process().memory_info().rss
    batch = buffer.sample(1024)
    found = dict(
        zip(batch.actions[:, 0].tolist(), zip(batch.observations, batch.next_observations, strict=True), strict=True)
    )
    for k, (obs, next_obs, _) in enumerate(transitions(path, shape, stack)):
        if k in found:
            assert all(np.array_equal(x, y) for x, y in zip((obs, next_obs), found[k], strict=True)), (path, k)
    del small
    return (after - before) / n


def differences(path: Path, shape: tuple[int, ...], stack: int) -> float:
    """Bytes for a frame as the paper keeps it, https://github.com/A2R-Lab/DiffCompressDRL.

    Every ``stack``-th frame is kept as it is. Of each plane of another frame, those pixels are kept that differ from
    this one's: two bytes for the place, two for the difference; or all differences, where these are fewer bytes. Each
    observation has the numbers of its frames, in four bytes each.
    """
    n = nbytes = 0
    for n, frame in enumerate(frames_of(path, shape), 1):
        if n % stack == 1:
            whole, nbytes = frame, nbytes + frame.nbytes
        else:
            n_different = np.count_nonzero(frame != whole, axis=(1, 2))
            nbytes += int(np.minimum(4 * n_different, 2 * frame[0].size).sum())
    return nbytes / n + 4 * stack


def film(path: Path, shape: tuple[int, ...]) -> float:
    """Bytes for a frame of a lossless film of H.264."""
    import av

    is_grey = shape[0] == 1
    encoder: Any = av.CodecContext.create("libx264" if is_grey else "libx264rgb", "w")
    encoder.width, encoder.height, encoder.pix_fmt = shape[2], shape[1], "gray" if is_grey else "rgb24"
    encoder.time_base, encoder.gop_size = Fraction(1, 25), _GROUP
    encoder.options = {"qp": "0", "preset": "medium"}
    nbytes = n = 0
    for k, image in enumerate(frames_of(path, shape)):
        pixels = image[0] if is_grey else np.ascontiguousarray(image.transpose(1, 2, 0))
        frame = av.VideoFrame.from_ndarray(pixels, format=encoder.pix_fmt)
        frame.pts, n = k, k + 1
        nbytes += sum(map(len, map(bytes, encoder.encode(frame))))
    return (nbytes + sum(map(len, map(bytes, encoder.encode(None))))) / n


def taken(suite: str, name: str, n: int, folder: Path) -> Taken:
    """Record, fill, and compare, each in a process of its own."""
    path, shape = folder / f"{name}.u8", (1 if suite == "Atari" else 3, 84, 84)
    in_fresh_process(record, suite, name, n, path)
    found = in_fresh_process(resident, path, shape, STACKS[suite])
    plain = 2 * STACKS[suite] * np.prod(shape)
    differing = in_fresh_process(differences, path, shape, STACKS[suite])
    filmed = in_fresh_process(film, path, shape)
    path.unlink()
    return Taken(float(plain), differing, filmed, found)


class Catch(gym.Env[Frames, np.int64]):
    """A ball falls, and a paddle must be under it: 36x36 in grey, 11 steps an episode."""

    observation_space = spaces.Box(0, 255, (1, _CELLS * _SCALE, _CELLS * _SCALE), np.uint8)
    action_space: Any = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frames, dict[str, Any]]:
        """A ball at the top, the paddle in the middle."""
        super().reset(seed=seed, options=options)
        self._row, self._column, self._at = 0, int(self.np_random.integers(_CELLS)), _CELLS // 2
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[Frames, float, bool, bool, dict[str, Any]]:
        """Move to the left, not at all, or to the right."""
        self._at, self._row = int(np.clip(self._at + int(action) - 1, 1, _CELLS - 2)), self._row + 1
        is_over = self._row == _CELLS - 1
        caught = abs(self._at - self._column) <= _PADDLE // 2
        return self._seen(), (1.0 if caught else -1.0) if is_over else 0.0, is_over, False, {}

    def _seen(self) -> Frames:
        cells = np.zeros((_CELLS, _CELLS), np.uint8)
        cells[self._row, self._column], cells[-1, self._at - 1 : self._at + 2] = 255, 128
        return cells.repeat(_SCALE, axis=0).repeat(_SCALE, axis=1)[None]


def trained(seed: int, steps: int, compressed: bool) -> list[float]:
    """See :func:`curve`, in a process of its own."""
    return in_fresh_process(curve, seed, steps, compressed=compressed)


def curve(seed: int, steps: int, *, compressed: bool) -> list[float]:
    """The mean return of the episodes that end in each tenth of a training with DQN."""
    from obscodec_sb3 import CompressedReplayBuffer
    from stable_baselines3 import DQN
    from stable_baselines3.common.monitor import Monitor

    torch.set_num_threads(1)
    env = Monitor(Catch())
    buffer_class = CompressedReplayBuffer if compressed else None
    model = DQN(
        "CnnPolicy", env, learning_rate=5e-4, buffer_size=5000, learning_starts=500, train_freq=2,
        target_update_interval=500, exploration_fraction=0.4, seed=seed, device="cpu", replay_buffer_class=buffer_class,
    )  # fmt: skip
    model.learn(steps)
    ends = np.cumsum(env.get_episode_lengths())
    tenth = np.minimum((ends - 1) * 10 // steps, 9)
    returns = np.array(env.get_episode_rewards())
    return [float(returns[tenth == k].mean()) for k in range(10)]


def main(n: int = 20_000, steps: int = 8_000, seeds: int = 3) -> None:
    """Measure, train, print, and write the results."""
    began, lines = monotonic(), list[str]()
    head = ["# Report", "", *(f"- {k}: {text}" for k, text in circumstances(None, _PACKAGES).items())]

    def say(*said: str) -> None:
        print(*said, sep="\n", flush=True)
        lines.extend(said)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as two_at_a_time:
        for suite, names in (("Atari", GAMES), ("DMC", TASKS)):
            n_frames = n if suite == "Atari" else n // 5
            say("", f"## {suite}, {n_frames:,} frames each, bytes for each transition", "")
            say(
                "| environment | plain | sparse differences | lossless film | obscodec, resident | times smaller |",
                "| --- |" + " ---: |" * 5,
            )
            of_suite = partial(taken, suite, n=n_frames, folder=Path(folder))
            for name, found in zip(names, two_at_a_time.map(of_suite, names), strict=True):
                say(f"| {name} |" + "".join(f" {x:,.0f} |" for x in (*found, found.plain / found.resident)))
        say("", f"## Catch, DQN, {steps:,} steps: mean return of the episodes that end in each tenth", "")
        say("| seed | buffer |" + "".join(f" {10 * k} % |" for k in range(1, 11)), "| ---: | --- |" + " ---: |" * 10)
        for seed in range(seeds):
            plain, compressed = two_at_a_time.map(partial(trained, seed, steps), (False, True))
            for kind, returns in (("plain", plain), ("compressed", compressed)):
                say(f"| {seed} | {kind} |" + "".join(f" {x:.2f} |" for x in returns))
            assert plain == compressed, seed
    head.append(f"- took: {(monotonic() - began) / 60:.0f} minutes")
    _RESULTS.write_text("\n".join(head + lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
