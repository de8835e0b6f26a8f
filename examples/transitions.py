"""Transitions of an environment: recorded before the agent sees them, put into buffers, and compared with these."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
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
_BATCH = 256

Transitions = npt.NDArray[np.void]


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
        """End the step, and record it."""
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


def add(buffer: ReplayBuffer, t: Transitions) -> None:
    """Put one recorded transition into a buffer."""
    infos = [{"TimeLimit.truncated": bool(t["timeout"][0])}]
    buffer.add(t["obs"], t["next_obs"], t["action"], t["reward"], t["done"], infos)


def fill(buffer: ReplayBuffer, path: Path) -> None:
    """Put the first recorded transitions into a buffer until it is full."""
    for _, transition in zip(range(buffer.buffer_size), recorded(path), strict=False):
        add(buffer, transition)


def count_different(buffer: ReplayBuffer, path: Path) -> tuple[int, int]:
    """How many transitions ``buffer`` holds, and how many of them differ in a bit from the last recorded ones."""
    n_recorded = path.stat().st_size // TRANSITION.itemsize
    first = n_recorded - buffer.size()
    different = 0
    at = first
    for expected in recorded(path, first, _BATCH):
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
