"""Buffers of DQN and PPO on ViZDoom: memory, time of a batch, and speed of training, beside the buffers of SB3.

    uv run --group textured benchmarks/textured_sb3.py

Observations are stacks of four frames in colour, 84x84, as ``VecFrameStack`` and ``VecTransposeImage`` make them.
Sizes are growth of resident memory in fresh processes, of DQN's buffer. An agent that keeps a random action fills it
and, with ``--learning SETS``, so does a DQN that trains; both act on every fourth frame. For 50,000 transitions, that
DQN takes a quarter of an hour and writes a file of 1 GB into the folder of ``recorded_steps``, which later runs read.
Batches are drawn from both buffers in turn, and so do the two models train, which act on each frame: DQN once while
torch has all threads, and once while it leaves one free, in which our buffer reads ahead; PPO with eight environments.
DQN trains with buffers of at most 5,000 transitions. Writes ``benchmarks/results/textured/sb3.md``.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, SupportsFloat

import gymnasium
import numpy as np
import psutil
import torch
import typer
from gymnasium import Env, ObservationWrapper, Wrapper, spaces
from obscodec_sb3 import CompressedReplayBuffer, CompressedRolloutBuffer
from processes import in_fresh_process
from recorded_steps import folder
from resident_memory import give_back_free_memory
from result_tables import Row, as_csv, as_markdown, circumstances
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack
from textured_frames import SETS, Frame, played
from turns import training_s

RESULTS = Path(__file__).with_name("results") / "textured"
STACK, SHAPE = 4, (12, 84, 84)
_WARM_UP = 600  # transitions; a buffer has decided then, and trained
_TURN = 200  # steps of DQN before the other model goes on
_NOT_COUNTED = 1_000  # steps, until all is loaded and compiled
_N_ENVS, _N_STEPS = 8, 128  # of PPO, whose turn is a rollout
_LARGEST_TRAINED = 5_000  # transitions in SB3's buffer take 0.8 GB

_ENVIRONMENT = "VizdoomMyWayHome-v1"
_SEEN = np.dtype([("frame", np.uint8, (84, 84, 3)), ("ends", np.bool_)])  # a record of what a model sees
_PACKAGES = (
    "obscodec",
    "stable-baselines3",
    "torch",
    "numpy",
    "numba",
    "vizdoom",
    "gymnasium",
    "opencv-python-headless",
)

Options = dict[str, Any]


def stacks(source: str | Path) -> Iterator[tuple[Frame, Frame, bool]]:
    """Observation, next observation and end of an episode of each step of a set, without end, or of a recorded file."""
    stack, begins = np.zeros(SHAPE, np.uint8), True
    for frame, ends in played(source) if isinstance(source, str) else _read(source):
        before = stack
        stack = np.concatenate([np.zeros_like(stack[3:]) if begins else stack[3:], np.moveaxis(frame, -1, 0)])
        if not begins:
            yield before, stack, ends
        begins = ends


def _read(path: Path) -> Iterator[tuple[Frame, bool]]:
    with path.open("rb") as file:
        while len(seen := np.fromfile(file, _SEEN, 1)):
            yield seen["frame"][0], bool(seen["ends"][0])


def fill(buffer: ReplayBuffer, source: str | Path, n: int) -> None:
    """Add so many steps."""
    for obs, next_obs, ends in islice(stacks(source), n):
        buffer.add(obs[None], next_obs[None], np.zeros(1), np.zeros(1), np.array([ends]), [{}])


def new_buffer(kind: type[ReplayBuffer], n: int, options: Options) -> ReplayBuffer:
    """An empty buffer for so many transitions."""
    return kind(n, spaces.Box(0, 255, SHAPE, np.uint8), spaces.Discrete(3), "cpu", **options)


def resident_bytes(kind: type[ReplayBuffer], source: str | Path, n: int, options: Options) -> float:
    """Growth of resident memory for each transition of a full buffer; call it in a fresh process."""
    small = new_buffer(kind, _WARM_UP, options)
    fill(small, source, _WARM_UP)
    small.sample(32)
    give_back_free_memory()
    before = psutil.Process().memory_info().rss
    buffer = new_buffer(kind, n, options)
    fill(buffer, source, n)
    after = psutil.Process().memory_info().rss
    del small, buffer  # not before
    return (after - before) / n


def batches_ms(name: str, n: int, rounds: int, threads: int) -> tuple[float, float, float]:
    """Median ms of ``sample(256)`` of SB3's buffer and of ours, and the median ratio."""
    torch.set_num_threads(threads)
    buffers = [new_buffer(ReplayBuffer, n, {}), new_buffer(CompressedReplayBuffer, n, {"threads": threads})]
    for buffer in buffers:
        fill(buffer, name, n)
    times = np.empty((rounds + 1, 2))
    rng = np.random.default_rng(0)
    for turn in times:  # the first one compiles
        for i in rng.permutation(2):
            begin = time.perf_counter()
            buffers[i].sample(256)
            turn[i] = 1e3 * (time.perf_counter() - begin)
    stock, ours = np.median(times[1:], axis=0)
    return float(stock), float(ours), float(np.median(times[1:, 1] / times[1:, 0]))


class Screen(ObservationWrapper[Frame, Any, dict[str, Frame]]):
    """What a set has of the screen of ViZDoom."""

    def __init__(self, env: Env[dict[str, Frame], Any], name: str) -> None:
        super().__init__(env)
        self.view = SETS[name].views[name]
        self.observation_space = spaces.Box(0, 255, (84, 84, 3), np.uint8)

    def observation(self, observation: dict[str, Frame]) -> Frame:
        """The image, resized."""
        return self.view(observation["screen"])


class Recorder(Wrapper[Frame, Any, Frame, Any]):
    """Writes what an environment shows into a file."""

    def __init__(self, env: Env[Frame, Any], file: BinaryIO) -> None:
        super().__init__(env)
        self.file = file

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> tuple[Frame, Options]:
        """The first frame of an episode."""
        frame, info = self.env.reset(seed=seed, options=options)
        self._write(frame, ends=False)
        return frame, info

    def step(self, action: Any) -> tuple[Frame, SupportsFloat, bool, bool, Options]:
        """The next frame."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        self._write(frame, ends=terminated or truncated)
        return frame, reward, terminated, truncated, info

    def _write(self, frame: Frame, *, ends: bool) -> None:
        np.array((frame, ends), _SEEN).tofile(self.file)


def seen_while_learning(name: str, n: int) -> Path:
    """A file with the frames of a DQN that learns for ``n`` steps from a buffer of as many, with SB3's own settings.

    What was recorded before is not recorded again.
    """
    versions = f"vizdoom{version('vizdoom')}-sb3-{version('stable-baselines3')}"
    path = folder() / f"{name}-dqn-{versions}-{n}.frames"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        with part.open("wb") as file:
            environments = _environments(name, 1, lambda env: Recorder(env, file), frame_skip=4)
            DQN("CnnPolicy", environments, buffer_size=n, replay_buffer_class=CompressedReplayBuffer, seed=0).learn(n)
        part.rename(path)
    return path


def dqn(name: str, size: int) -> list[BaseAlgorithm]:
    """DQN with SB3's buffer, and with ours, which reads ahead."""

    def model(kind: type[ReplayBuffer], options: Options) -> DQN:
        return DQN(
            "CnnPolicy",
            _environments(name, 1),
            buffer_size=size,
            learning_starts=_WARM_UP,
            replay_buffer_class=kind,
            replay_buffer_kwargs=options,
            seed=0,
        )

    return [model(ReplayBuffer, {}), model(CompressedReplayBuffer, {"prefetch": True})]


def ppo(name: str) -> list[BaseAlgorithm]:
    """PPO with SB3's buffer, and with ours, which reads ahead."""

    def model(kind: type[RolloutBuffer], options: Options) -> PPO:
        return PPO(
            "CnnPolicy",
            _environments(name, _N_ENVS),
            n_steps=_N_STEPS,
            batch_size=256,
            n_epochs=4,
            rollout_buffer_class=kind,
            rollout_buffer_kwargs=options,
            seed=0,
        )

    return [model(RolloutBuffer, {}), model(CompressedRolloutBuffer, {"prefetch": True})]


def _environments(
    name: str, n: int, wrapped: Callable[[Env[Frame, Any]], Env[Frame, Any]] = lambda env: env, **options: Any
) -> VecFrameStack:
    import vizdoom.gymnasium_wrapper  # noqa: F401 (registers environments)

    def environment() -> Env[Frame, Any]:
        return wrapped(Screen(gymnasium.make(_ENVIRONMENT, **options), name))

    return VecFrameStack(make_vec_env(environment, n, 0), STACK)


def steps_per_s(
    make: Callable[..., Sequence[BaseAlgorithm]],
    arguments: tuple[Any, ...],
    n_steps: int,
    n_turns: int,
    threads: int,
) -> tuple[float, float, float]:
    """Median steps per second with SB3's buffer and with ours, and the median ratio; ``make`` gives these two."""
    torch.set_num_threads(threads)
    counted = training_s(make(*arguments), n_steps, n_turns, -(-_NOT_COUNTED // n_steps))
    stock, ours = n_steps / np.median(counted, axis=1)
    return float(stock), float(ours), float(np.median(counted[0] / counted[1]))


def main(
    sets: Annotated[str, typer.Option(help="of textured_frames")] = "doom_home,doom_home_near",
    transitions: Annotated[int, typer.Option(min=1_000)] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, help="batches of each buffer")] = 60,
    turns: Annotated[int, typer.Option(min=0, help=f"of {_TURN} steps of DQN; 0 to train no model")] = 20,
    rollouts: Annotated[int, typer.Option(min=0, help="of PPO; 0 to leave it out")] = 8,
    threads: Annotated[int, typer.Option(min=1, help="of torch and obscodec")] = 2,
    learning: Annotated[str, typer.Option(help="which of the sets also fill a buffer as a DQN sees them")] = "",
) -> None:
    """Measure, and write the table."""
    about = circumstances("textured", _PACKAGES) | {"transitions": f"{transitions:,}", "threads": str(threads)}
    names, learned = sets.split(","), learning.split(",") if learning else []
    if others := sorted({*learned} - {*names}):
        raise typer.BadParameter(f"--learning has {others[0]!r}, which is none of the sets {sets}")
    rows: list[Row] = []
    for name in names:
        table = f"{name}, 84x84x3, stacks of {STACK}"
        stock: Row = {"table": table, "buffer": "SB3"}
        ours: Row = {"table": table, "buffer": "obscodec"}
        stock_bytes = in_fresh_process(resident_bytes, ReplayBuffer, name, transitions // 5, {})
        our_bytes = in_fresh_process(resident_bytes, CompressedReplayBuffer, name, transitions, {})
        stock |= {"transition_bytes": stock_bytes, "transition_x": 1.0}
        ours |= {"transition_bytes": our_bytes, "transition_x": our_bytes / stock_bytes}
        if name in learned:
            seen = in_fresh_process(seen_while_learning, name, transitions)
            learning_bytes = in_fresh_process(resident_bytes, CompressedReplayBuffer, seen, transitions, {})
            ours |= {"learning_bytes": learning_bytes, "learning_x": learning_bytes / stock_bytes}
        pairs = {"sample256_": ("ms", in_fresh_process(batches_ms, name, transitions // 5, rounds, threads))}
        sized = name, min(transitions, _LARGEST_TRAINED)
        for figure, n in (("steps_", threads), ("free_", max(1, threads - 1))) if turns else ():
            pairs[figure] = ("per_s", in_fresh_process(steps_per_s, dqn, sized, _TURN, turns, n))
        if rollouts:
            n_steps = _N_ENVS * _N_STEPS
            pairs["ppo_"] = ("per_s", in_fresh_process(steps_per_s, ppo, (name,), n_steps, rollouts, threads))
        for figure, (unit, (of_stock, of_ours, ratio)) in pairs.items():
            stock |= {figure + unit: of_stock, f"{figure}x": 1.0}
            ours |= {figure + unit: of_ours, f"{figure}x": ratio}
        rows += [stock, ours]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "sb3.csv").write_text(as_csv(rows, about), encoding="utf-8")
    (RESULTS / "sb3.md").write_text(as_markdown("Buffers on textured images", rows, about), encoding="utf-8")
    print((RESULTS / "sb3.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    typer.run(main)
