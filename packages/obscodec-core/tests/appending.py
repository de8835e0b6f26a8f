"""A buffer that is filled step by step, for what may go wrong in the middle of one."""

import threading
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from obscodec import AutoStore, Field, RingBuffer
from together import together

N_ENVS, DEPTH = 2, 3
N_WAITING = 4  # steps that wait in six rows, since most observations are the next ones of the steps before


class Player:
    """Observations of environments that are stacks of frames, now and then of a new episode."""

    def __init__(self, seed: int, dtype: str = "u1", side: int = 6, p_new: float = 0.1) -> None:
        self.p_new, self.rng, self.dtype = p_new, np.random.default_rng(seed), np.dtype(dtype)
        self.stacks = np.zeros((N_ENVS, DEPTH, side, side), np.uint8)

    def step(self) -> np.ndarray:
        """``[n_envs, depth, side, side]``"""
        side = self.stacks.shape[-1]
        if self.rng.random() < self.p_new:  # a stack that does not follow from the frames before
            self.stacks = self.rng.integers(256, size=self.stacks.shape, dtype=np.uint8)
        else:
            new = self.stacks[:, -1:].copy()
            new[:, 0, self.rng.integers(side), self.rng.integers(side)] += 1
            self.stacks = np.concatenate([self.stacks[:, 1:], new], axis=1)
        if self.dtype == np.uint8:
            return self.stacks.copy()
        off = self.rng.random() < 0.2  # which do not fit any narrow type
        return self.stacks.astype(self.dtype) / 255 + np.float32(0.1234) * off


class Appending:
    """A buffer whose next step finds no room for rows that wait, and a list of the steps that were appended.

    ``write_buffer._MAX_NBYTES`` must be 0, so that six rows may wait.
    """

    def __init__(self, player: Player, capacity: int, **options: object) -> None:
        stack = Field(player.stacks.shape[1:], player.dtype, **options)
        next_stack = Field(stack.shape, stack.dtype, shares="obs")
        fields = {"obs": stack, "next_obs": next_stack, "action": Field((), np.int64)}
        self.buffer, self.player = RingBuffer(capacity, fields, n_envs=N_ENVS), player
        self.steps: list[dict[str, np.ndarray]] = []
        self._obs, self._given = player.step(), {}

    def prepare(self) -> Callable[[], None]:
        """The call that appends the next step, when as many wait as may."""
        self.buffer.stats()  # which stores what waits
        for _ in range(N_WAITING):
            self._next()()
            self.steps.append(dict(self._given))
        return self._next()

    def _next(self) -> Callable[[], None]:
        obs, self._obs = self._obs, self.player.step()
        self._given = {"obs": obs, "next_obs": self._obs, "action": self.player.rng.integers(100, size=N_ENVS)}
        return lambda: self.buffer.append(**self._given)

    def check(self, what: str) -> None:
        """The last step was appended as a whole, or not at all."""
        if self.buffer._clock.appended > len(self.steps):
            self.steps.append(dict(self._given))
        assert self.buffer._clock.appended == len(self.steps), what
        for name, found in self.buffer[:].items():
            expected = [step[name] for step in self.steps[-self.buffer.capacity :]]
            np.testing.assert_array_equal(found, expected, err_msg=what)


def appended_by_threads(store: AutoStore, tensors: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of tensors and these: each array is appended by a thread, one by one, which reads some of all with each.

    Args:
        tensors: ``[n, *shape]`` for each thread.
    """
    lock = threading.Lock()
    known: list[tuple[int, np.ndarray]] = []

    def use(sequence: int) -> None:
        rng = np.random.default_rng(sequence)
        for tensor in tensors[sequence]:
            i = int(store.append(tensor[None], np.array([sequence]))[0])
            with lock:
                known.append((i, tensor))
                ids, expected = zip(*(known[k] for k in rng.integers(len(known), size=5)), strict=True)
            np.testing.assert_array_equal(store.read(ids), np.stack(expected))

    together(*(partial(use, sequence) for sequence in range(len(tensors))))
    return np.array([i for i, _ in known]), np.stack([tensor for _, tensor in known])
