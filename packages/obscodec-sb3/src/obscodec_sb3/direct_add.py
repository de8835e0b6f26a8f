"""DirectAdd: stores a transition of SB3's ReplayBuffer with one compiled call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch as th
from obscodec import TensorArray
from obscodec.columns import Column, ColumnReader
from obscodec.stores import BATCH_MEMORY
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples

_NUMBERS = "biuf"  # kinds of dtypes


class DirectAdd:
    """Does what SB3's own ``add`` does, if its arguments are what an environment gives.

    The buffer has the arrays that it has now: of compressed observations, whose write buffer stores them at once, and
    contiguous ones.
    """

    def __init__(self, buffer: ReplayBuffer) -> None:
        obs, next_obs, *plain = self._of(buffer)
        self._obs, self._next_obs, self._actions, self._rewards, self._dones, self._timeouts = obs, next_obs, *plain
        self._keeps_timeouts = buffer.handle_timeout_termination
        self._write_buffer, self._device = obs.write_buffer, buffer.device
        self.reads_on_cpu = obs.store.device == buffer.device.type == "cpu"
        self._shape, self._dtype = self._write_buffer.row_shape, self._write_buffer.dtype
        self._ids = obs.ids, next_obs.ids
        columns = [array if isinstance(array, Column) else Column(array) for array in plain]
        rows = [np.zeros(array.shape[1:], array.dtype) for array in plain]
        self._action, self._reward, self._done, self._timeout = rows
        self._flat_action = self._action.reshape(-1)
        self._given: tuple[Any, ...] = ()  # the types, shapes and dtypes that came last
        ids, (actions, *others) = [Column(ids, np.dtype(np.int64)) for ids in self._ids], columns
        self._columns = ColumnReader(ids, others, [actions])
        writer = self._write_buffer.writer
        assert writer is not None
        writer.state.bind_columns([*zip(columns, rows, strict=True)][: 4 if self._keeps_timeouts else 3])

    @classmethod
    def of(cls, buffer: ReplayBuffer) -> DirectAdd | None:
        """For a buffer; None as long as it has not the arrays for it."""
        obs, next_obs, *plain = cls._of(buffer)
        if not (isinstance(obs, TensorArray) and isinstance(next_obs, TensorArray)):
            return None
        if obs.write_buffer is None or obs.write_buffer is not next_obs.write_buffer:
            return None
        for array in plain:
            if not (isinstance(array, Column) or (type(array) is np.ndarray and array.flags.carray)):
                return None
        return cls(buffer) if obs.write_buffer.writer is not None else None

    def is_for(self, buffer: ReplayBuffer) -> bool:
        """Whether a buffer still has the arrays and the device that it had."""
        return (
            buffer.observations is self._obs
            and buffer.next_observations is self._next_obs
            and buffer.actions is self._actions
            and buffer.rewards is self._rewards
            and buffer.dones is self._dones
            and buffer.timeouts is self._timeouts
            and buffer.device is self._device
            and buffer.handle_timeout_termination is self._keeps_timeouts
        )

    def add(self, step: int, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> bool:
        """Store a transition of each environment in row ``step``; False if SB3's ``add`` must look at the arguments."""
        try:
            given = (
                *(type(obs), type(next_obs), type(action), type(reward), type(done)),
                *(obs.shape, next_obs.shape, action.shape, reward.shape, done.shape),
                *(obs.dtype, next_obs.dtype, action.dtype, reward.dtype, done.dtype),
            )
            if given != self._given and not self._accepts(given):
                return False
            if self._keeps_timeouts:
                truncated = [info.get("TimeLimit.truncated", False) for info in infos]
                if len(truncated) != len(self._timeout):
                    return False
                if any(truncated):
                    self._timeout[:] = truncated
                else:
                    self._timeout.fill(0)
        except (AttributeError, TypeError, ValueError):
            return False
        if len(given[7]) == 1:
            self._flat_action[:] = action
        else:
            self._action[:] = action
        self._reward[:] = reward
        self._done[:] = done
        self._write_buffer.put_both(step, self._ids, obs, next_obs)
        return True

    def _accepts(self, given: tuple[Any, ...]) -> bool:
        """Whether arguments of these types, shapes and dtypes need no other look."""
        types, (*of_obs, of_action, of_reward, of_done), dtypes = given[:5], given[5:10], given[10:]
        accepted = all(one is np.ndarray for one in types) and of_obs == [self._shape] * 2
        accepted &= of_reward == of_done == self._reward.shape
        accepted &= of_action in (self._action.shape, self._flat_action.shape)
        accepted &= all(dtype == self._dtype for dtype in dtypes[:2]) and all(x.kind in _NUMBERS for x in dtypes[2:])
        if accepted:
            self._given = given
        return bool(accepted)

    def chosen(self, steps: Any, envs: Any) -> Callable[[], ReplayBufferSamples]:
        """Reads what SB3's ``_get_samples`` returns for rows and environments, ``i64[n]`` each, as they are now."""
        guard = self._obs.store.guard()
        ids, plain, actions = self._columns.take(steps, envs)

        def read() -> ReplayBufferSamples:
            n = len(steps)
            tensors = BATCH_MEMORY.array(2 * n, self._obs.store.layout)
            self._obs.store.read_into(ids.reshape(-1), tensors)
            guard.close()
            both = th.from_numpy(tensors)
            rewards, dones, timeouts = plain.reshape(3, n, 1)
            dones *= 1 - timeouts
            return ReplayBufferSamples(
                both[:n], th.from_numpy(actions[0]), both[n:], th.from_numpy(dones), th.from_numpy(rewards)
            )

        return read

    def undo(self, step: int) -> None:
        """Undo the last :meth:`add`, if it was to this row."""
        self._write_buffer.forget(step)

    @staticmethod
    def _of(buffer: ReplayBuffer) -> tuple[Any, ...]:
        pair = buffer.observations, buffer.next_observations
        return *pair, buffer.actions, buffer.rewards, buffer.dones, buffer.timeouts

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a copy of a buffer makes its own
