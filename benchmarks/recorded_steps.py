"""Transitions to fill replay buffers with: games are played at random once, and read from files as often as needed.

A file has the frames of one environment, each of them once. Reading stacks four frames as SB3's ``VecFrameStack`` does:
frames before the start of an episode are zeros, and the observation after an episode is the terminal one. Files are
read in pieces, and not mapped, so that they take no memory of the process that is measured.
"""

import os
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
from atari_frames import environment
from gymnasium import spaces

STACK = (4, 84, 84)
NOISE = "Noise"  # not a game: frames that nothing can compress
_RECORD = np.dtype(
    [
        ("frame", np.uint8, (84, 84)),
        ("first", np.bool_),  # the frame of a reset; what follows is of the step that led to it otherwise
        ("reward", np.float32),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
    ]
)
_PIECE = 4  # records to read at a time; large ones would stay in the memory of the process, 2 MB of them
_NOISE_EPISODE = 500

Array = npt.NDArray[np.generic]
Record = npt.NDArray[np.void]
Frame = npt.NDArray[np.uint8]


class Step(NamedTuple):
    """One step of each environment, the environments along the first axis.

    Attributes:
        obs: ``u8[n_envs, 4, 84, 84]``.
        next_obs: the observation after the step; after the last step of an episode, the terminal observation.
        number: ``i64[n_envs]``, which transition this is. Buffers get it as the action, so that a sampled transition
            tells which one it was.
        reward: ``f32[n_envs]``.
        terminated: ``bool[n_envs]``.
        truncated: ``bool[n_envs]``.
    """

    obs: npt.NDArray[np.uint8]
    next_obs: npt.NDArray[np.uint8]
    number: npt.NDArray[np.int64]
    reward: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]


def folder() -> Path:
    """The folder for recorded games, outside of the checkout, which later runs read again."""
    path = Path(tempfile.gettempdir(), "obscodec-benchmarks")
    path.mkdir(exist_ok=True)
    return path


def record(game: str, n_envs: int, n_steps: int) -> list[Path]:
    """Files with ``n_steps`` steps of each environment. A game that was recorded before is not played again."""
    paths = [folder() / f"{game}-ale{version('ale-py')}-{env}-{n_steps}.steps" for env in range(n_envs)]
    for env, path in enumerate(paths):
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}")
            with part.open("wb") as file:
                n_left = n_steps
                for record in _noise(env) if game == NOISE else _played(game, env):
                    record.tofile(file)
                    n_left -= not record["first"]
                    if not n_left:
                        break
            part.rename(path)
    return paths


def read_steps(paths: list[Path]) -> Iterator[Step]:
    """The recorded steps of some environments, side by side. Arrays are valid until the next step."""
    readers = [_transitions(path) for path in paths]
    for at, together in enumerate(zip(*readers, strict=False)):
        columns = [np.stack(column) for column in zip(*together, strict=True)]
        number = at * len(paths) + np.arange(len(paths))
        yield Step(columns[0], columns[1], number, columns[2], columns[3], columns[4])


def transposed(step: Step) -> Step:
    """A step with observations as ``VecTransposeImage`` gives them: views of arrays with the frames along the end."""
    obs, next_obs = (np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1) for x in (step.obs, step.next_obs))
    return step._replace(obs=obs, next_obs=next_obs)


def _transitions(path: Path) -> Iterator[tuple[Array, ...]]:
    """Observation, next observation, reward, terminated, truncated."""
    stack = np.zeros(STACK, np.uint8)
    with path.open("rb") as file:
        while len(records := np.fromfile(file, _RECORD, _PIECE)):
            for record in records:
                before, stack = stack, np.zeros_like(stack)
                if not record["first"]:
                    stack[:-1] = before[1:]
                stack[-1] = record["frame"]
                if not record["first"]:
                    yield before, stack, record["reward"], record["terminated"], record["truncated"]


def _played(game: str, seed: int) -> Iterator[Record]:
    """Records of a game under a random policy."""
    env = environment(game)
    rng = np.random.default_rng(seed)
    n_actions = cast("spaces.Discrete", env.action_space).n
    frame, _ = env.reset(seed=seed)
    yield _record(frame, first=True)
    while True:
        frame, reward, terminated, truncated, _ = env.step(rng.integers(n_actions))
        yield _record(frame, reward=float(reward), terminated=terminated, truncated=truncated)
        if terminated or truncated:
            frame, _ = env.reset()
            yield _record(frame, first=True)


def _noise(seed: int) -> Iterator[Record]:
    rng = np.random.default_rng(seed)
    while True:
        for i in range(_NOISE_EPISODE + 1):
            frame = rng.integers(0, 256, (84, 84), np.uint8)
            yield _record(frame, first=i == 0, terminated=i == _NOISE_EPISODE)


def _record(
    frame: Frame, *, first: bool = False, reward: float = 0, terminated: bool = False, truncated: bool = False
) -> Record:
    return np.array((frame, first, reward, terminated, truncated), _RECORD)
