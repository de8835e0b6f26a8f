"""StepWriter: stores steps of arrays of stacks in a FrameLog, with one compiled call for each."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from obscodec.frames.frame_log import FrameLog
from obscodec.frames.kernels.steps import PICKED_STEPS
from obscodec.frames.step_state import Ids, StepState
from obscodec.layout import Layout, Rows
from obscodec.segments import Ints

_BYTE = np.dtype(np.uint8)

Tensors = npt.NDArray[np.generic]


class HasLog(Protocol):
    """What has a log at every time, though not always the same."""

    log: FrameLog


class StepWriter:
    """Stores steps ``[n, *shape]``, a stack of each of the sequences ``0..n-1``, as they lie in memory.

    Not safe to use from several threads: whoever writes to an array of ids locks.

    Args:
        owner: has the log where the frames go.
        channels_last: whether the last axis has the frames, one behind the other, instead of the first.

    Attributes:
        state: has the ids that steps have replaced, until somebody gives them back.
    """

    def __init__(self, owner: HasLog, layout: Layout, n: int, *, channels_last: bool) -> None:
        self.state = StepState(n, layout.nbytes, owner.log.stacks.depth)
        self.owner = owner
        self._shape = n, layout.nbytes
        self._channels_last = channels_last
        self._are_bytes = layout.dtype == _BYTE and not channels_last  # as they lie in most arrays
        self._n_channels = (layout.shape[-1] if channels_last else layout.shape[0]) if layout.shape else 1
        n_axes = 1 + len(layout.shape)
        self._to_pixels = (0, *range(2, n_axes), 1) if n_axes > 1 else (0,)

    def write(self, step: int, ids: Ids, tensors: Tensors) -> bool:
        """Store tensors, ``[n, *shape]``, and put their ids into a step of ``ids``, ``[n_steps, n]``, contiguous.

        Returns:
            False if there is no room for replaced ids; nothing is done then.

        Raises:
            HeapFull: there is not enough room.
        """
        self._bind(ids)
        rows = self._as_it_lies(0, tensors)
        return self.owner.log.write_step(self.state, rows, rows, 1, 0, step)

    def write_some(self, steps: Ints, sequences: Ints, ids: Ids, tensors: Tensors) -> bool:
        """:meth:`write` for ``m`` of the sequences, ``i64[m]`` from 0 on, ``m <= n``, of a step each; ``[m, *shape]``.

        Of a place that is named twice, the last tensor stays. Nothing undoes this.
        """
        self.state.picked[:, : len(tensors)] = steps, sequences
        return self.write(PICKED_STEPS, ids, tensors)

    def write_both(self, step: int, ids: tuple[Ids, Ids], tensors: Tensors, more_tensors: Tensors) -> bool:
        """:meth:`write` for two arrays, all or none; the rows of bound columns change in the same step.

        ``StepState.undo`` undoes the last call.
        """
        state = self.state
        if ids is not state.pair:
            state.bind_ids(ids)
        if self._are_bytes and tensors.flags.carray and more_tensors.flags.carray:
            rows: Rows = tensors.reshape(self._shape)  # type: ignore[assignment]  # it has bytes
            more_rows: Rows = more_tensors.reshape(self._shape)  # type: ignore[assignment]
            if state.parts_channels:
                state.set_channels(0, 0)
                state.set_channels(1, 0)
        else:
            rows, more_rows = self._as_it_lies(0, tensors), self._as_it_lies(1, more_tensors)
        return self.owner.log.write_step(state, rows, more_rows, 2, state.n_columns, step)

    def _bind(self, ids: Ids) -> None:
        pair = self.state.pair
        if pair is None or pair[0] is not ids or pair[1] is not ids:
            self.state.bind_ids((ids, ids))

    def _as_it_lies(self, which: int, tensors: Tensors) -> Rows:
        """The bytes of the tensors, ``u8[m, nbytes]``; notes how many channels take turns in them, if that changes."""
        if self._are_bytes and not self.state.parts_channels and tensors.flags.carray:
            return tensors.reshape(len(tensors), self._shape[1])  # type: ignore[return-value]  # it has bytes
        n_channels = 0
        if self._channels_last:
            tensors = np.moveaxis(tensors, -1, 1)
        if not tensors.flags.c_contiguous:
            pixels = tensors.transpose(self._to_pixels)
            if tensors.itemsize == 1 and pixels.flags.c_contiguous:
                tensors, n_channels = pixels, self._n_channels
            else:
                tensors = np.ascontiguousarray(tensors)
        self.state.set_channels(which, n_channels)
        rows = tensors.view(_BYTE).reshape(len(tensors), self._shape[1])
        return rows if rows.flags.writeable else rows.copy()  # numba compiles another kernel for read-only arrays
