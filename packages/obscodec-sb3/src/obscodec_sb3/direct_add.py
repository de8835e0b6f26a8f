"""DirectAdd: stores a transition of SB3's ReplayBuffer with one compiled call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter, is_
from typing import Any

import numpy as np
import numpy.typing as npt
import torch as th
from gymnasium import spaces
from obscodec import TensorArray
from obscodec.arrays import WriteBuffer
from obscodec.buffers import TorchBatch
from obscodec.columns import Column, ColumnReader
from obscodec.frames import MAX_COLUMNS
from obscodec.stores import BATCH_MEMORY
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples

_NUMBERS = "biuf"  # kinds of dtypes
_SHAPE, _DTYPE = attrgetter("shape"), attrgetter("dtype")


class DirectAdd:
    """Does what SB3's own ``add`` does, if its arguments are what an environment gives.

    The buffer has the arrays that it has now. Observations are one array or a dictionary of arrays: compressed ones,
    whose write buffers store them at once, and others, which are contiguous.
    """

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._obs, self._next_obs, *plain = self._of(buffer)
        self._actions, self._rewards, self._dones, self._timeouts = plain
        self._keeps_timeouts, self._device = buffer.handle_timeout_termination, buffer.device
        self._keys = tuple(self._obs) if isinstance(self._obs, dict) else None
        pairs = _pairs(self._obs, self._next_obs)
        self._stored: list[tuple[int, WriteBuffer, tuple[Any, Any]]] = []  # compressed observations, by their place
        self._copied: list[tuple[int, npt.NDArray[Any]]] = []  # rows of the others, by their place
        self._expected: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        columns, rows = list[Column](), list[npt.NDArray[Any]]()
        for at, pair in enumerate(pairs):
            if isinstance(pair[0], TensorArray):
                write_buffer = pair[0].write_buffer
                assert write_buffer is not None
                self._stored.append((at, write_buffer, (pair[0].ids, pair[1].ids)))
                self._expected.append((write_buffer.row_shape, write_buffer.dtype))
                continue
            of_keys: Any = buffer.observation_space  # a dictionary, since something else is compressed
            is_flat = isinstance(of_keys[list(self._obs)[at]], spaces.Discrete)
            for place, array in zip((at, at + len(pairs)), pair, strict=True):
                columns.append(Column(array))
                rows.append(np.zeros(array.shape[1:], array.dtype))
                self._copied.append((place, rows[-1].reshape(-1) if is_flat else rows[-1]))
            self._expected.append((self._copied[-1][1].shape, pair[0].dtype))
        self._n_keys, self._parts = len(pairs), [*_parts(self._obs, self._next_obs)] if self._keys else []
        self._put_both, self._ids = self._stored[0][1].put_both, self._stored[0][2]
        columns += [array if isinstance(array, Column) else Column(array) for array in plain]
        rows += [np.zeros(array.shape[1:], array.dtype) for array in plain]
        self._action, self._reward, self._done, self._timeout = rows[-4:]
        self._flat_action = self._action.reshape(-1)
        self._given: tuple[Any, ...] = ()  # the types, shapes and dtypes that came last
        self._tensors: TorchBatch | None = None  # for a GPU, since the first batch: a buffer may be loaded without one
        self.reads = False
        if self._keys is None:
            self._store = self._obs.store
            self.reads = buffer.device.type == "cuda" or self._store.device == buffer.device.type == "cpu"
            ids, (actions, *others) = [Column(ids, np.dtype(np.int64)) for ids in self._stored[0][2]], columns
            self._columns = ColumnReader(ids, others, [actions])
        bound = [*zip(columns, rows, strict=True)][: len(rows) - (not self._keeps_timeouts)]
        for _, write_buffer, _ in self._stored:
            writer = write_buffer.writer
            assert writer is not None
            is_last = write_buffer is self._stored[-1][1]  # whose call stores the rest of the step, too
            writer.state.bind_columns(bound if is_last else [])

    @classmethod
    def of(cls, buffer: ReplayBuffer) -> DirectAdd | None:
        """For a buffer; None as long as it has not the arrays for it."""
        obs, next_obs, *plain = cls._of(buffer)
        n_stored = 0
        for pair in _pairs(obs, next_obs):
            if all(isinstance(array, TensorArray) for array in pair):
                write_buffer = pair[0].write_buffer
                if write_buffer is None or write_buffer is not pair[1].write_buffer or write_buffer.writer is None:
                    return None
                n_stored += 1
            else:
                plain += pair
        for array in plain:
            if not (isinstance(array, Column) or (type(array) is np.ndarray and array.flags.carray)):
                return None
        return cls(buffer) if n_stored and len(plain) <= MAX_COLUMNS else None

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
            and (self._keys is None or all(map(is_, self._parts, _parts(self._obs, self._next_obs))))
        )

    def accepts(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> Any:
        """The arrays of a transition of each environment; None if SB3's ``add`` must look at the arguments."""
        try:
            arrays: tuple[Any, ...]
            if self._keys is None:  # spelled out: half a microsecond less
                arrays = obs, next_obs, action, reward, done
                given = (
                    *(type(obs), type(next_obs), type(action), type(reward), type(done)),
                    *(obs.shape, next_obs.shape, action.shape, reward.shape, done.shape),
                    *(obs.dtype, next_obs.dtype, action.dtype, reward.dtype, done.dtype),
                )
            else:
                arrays = *[obs[key] for key in self._keys], *[next_obs[key] for key in self._keys], action, reward, done
                given = (*map(type, arrays), *map(_SHAPE, arrays), *map(_DTYPE, arrays))
            if given != self._given and not self._accepts(given, len(arrays)):
                return None
            if self._keeps_timeouts:
                truncated = [info.get("TimeLimit.truncated", False) for info in infos]
                if len(truncated) != len(self._timeout):
                    return None
                if any(truncated):
                    self._timeout[...] = truncated
                else:
                    self._timeout.fill(0)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):
            return None
        return arrays

    def add(self, step: int, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> bool:
        """Store a transition of each environment in row ``step``; False if SB3's ``add`` must look at the arguments.

        Several compressed observations are stored one after the other: after an exception, call :meth:`undo`.
        """
        arrays = self.accepts(obs, next_obs, action, reward, done, infos)
        if arrays is None:
            return False
        if len(action.shape) == 1:
            self._flat_action[...] = action
        else:
            self._action[...] = action
        self._reward[...] = reward
        self._done[...] = done
        if self._keys is None:
            self._put_both(step, self._ids, obs, next_obs)
            return True
        for at, row in self._copied:
            row[...] = arrays[at]
        for at, write_buffer, ids in self._stored:
            write_buffer.put_both(step, ids, arrays[at], arrays[at + self._n_keys])
        return True

    def _accepts(self, given: tuple[Any, ...], n: int) -> bool:
        """Whether arguments of these types, shapes and dtypes need no other look."""
        types, shapes, dtypes = given[:n], given[n : 2 * n], given[2 * n :]
        *of_obs, (of_action, _), (of_reward, _), (of_done, _) = zip(shapes, dtypes, strict=True)
        accepted = all(one is np.ndarray for one in types) and of_obs == self._expected * 2
        accepted &= of_reward == of_done == self._reward.shape
        accepted &= of_action in (self._action.shape, self._flat_action.shape)
        accepted &= all(dtype.kind in _NUMBERS for dtype in dtypes[-3:])
        if accepted:
            self._given = given
        return bool(accepted)

    @property
    def can_read(self) -> bool:
        """Whether :meth:`chosen` does; a store on a GPU may have first tensors on the CPU."""
        return self.reads and (self._store.device == "cpu" or self._store.has_device_reader)

    def chosen(self, steps: Any, envs: Any) -> Callable[[], ReplayBufferSamples]:
        """Reads what SB3's ``_get_samples`` returns for rows and environments, ``i64[n]`` each, as they are now."""
        guard = self._store.guard()
        ids, plain, actions = self._columns.take(steps, envs)

        def read() -> ReplayBufferSamples:
            n = len(steps)
            rewards, dones, timeouts = plain.reshape(3, n, 1)
            dones *= 1 - timeouts
            others = actions[0], dones, rewards
            if self._device.type == "cpu":
                tensors = BATCH_MEMORY.array(2 * n, self._store.layout)
                self._store.read_into(ids.reshape(-1), tensors)
                both, action, done, reward = map(th.from_numpy, (tensors, *others))
            else:
                both, action, done, reward = self._on_gpu(ids.reshape(-1), others)
            guard.close()
            return ReplayBufferSamples(both[:n], action, both[n:], done, reward)

        return read

    def _on_gpu(self, ids: Any, others: tuple[Any, ...]) -> list[th.Tensor]:
        """The observations with some ids, and other arrays, on a GPU: one copy, if the observations are there."""
        store, tensors = self._store, self._tensors or TorchBatch(self._device)
        self._tensors = tensors
        decoded = tensors.new_array(store, len(ids))
        if store.device == "cpu":
            store.read_into(ids, decoded)
            return [tensors.tensor(decoded), *tensors.tensors(others)]
        reader, known = store.device_reader(ids)
        there, *plain = tensors.tensors([known.astype(np.int32), *others])
        reader.read(known, decoded, there)
        return [tensors.tensor(decoded), *plain]

    def undo(self, step: int) -> None:
        """Undo the last :meth:`add`, if it was to this row."""
        for _, write_buffer, _ in self._stored:
            write_buffer.forget(step)

    @staticmethod
    def _of(buffer: ReplayBuffer) -> tuple[Any, ...]:
        pair = buffer.observations, buffer.next_observations
        return *pair, buffer.actions, buffer.rewards, buffer.dones, buffer.timeouts

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a copy of a buffer makes its own


def _parts(obs: Any, next_obs: Any) -> Iterator[Any]:
    """The arrays of observations that are a dictionary, and of next ones."""
    return chain(obs.values(), next_obs.values())


def _pairs(obs: Any, next_obs: Any) -> list[tuple[Any, Any]]:
    """The arrays of observations and of next ones, by key."""
    return [(obs[key], next_obs[key]) for key in obs] if isinstance(obs, dict) else [(obs, next_obs)]
