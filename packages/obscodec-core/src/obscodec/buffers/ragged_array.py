"""RaggedArray: observations of different lengths, in pages of one size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.arrays import Selection, TensorArray
from obscodec.segments import Bools, Ints
from obscodec.state import check_range


class RaggedArray:
    """Observations ``[length, *shape]`` of steps and environments. Pages of theirs are the tensors of a store.

    The last page of an observation is filled up with zeros. Those behind it are the tensor of zeros, which takes no
    memory. A page that equals one of the step before is stored once, as of an observation that grows at its end.

    Args:
        lengths: ``i32[n_steps, n_envs]`` zeros, which this array fills.
        new_page: called with a number; makes an array ``[n_steps, n_envs, *page_shape]`` for this page of all
            observations. There are as many as the longest one has needed.
    """

    def __init__(self, lengths: npt.NDArray[np.int32], new_page: Callable[[int], TensorArray]) -> None:
        self._lengths, self._new_page = lengths, new_page
        self._pages = [new_page(0)]

    @property
    def n_pages(self) -> int:
        """How many pages the longest observation has needed."""
        return len(self._pages)

    @property
    def mean_nbytes(self) -> float:
        """The mean of the bytes of an observation."""
        lengths = self._lengths[self._lengths > 0]
        of_row = self._pages[0].layout.nbytes // self._pages[0].layout.shape[0]
        return float(lengths.mean()) * of_row if len(lengths) else 0.0

    def grow(self, n_pages: int) -> None:
        """Have place for so many pages, at least."""
        while len(self._pages) < n_pages:
            self._pages.append(self._new_page(len(self._pages)))

    def __setitem__(self, at: Any, observations: Any) -> None:
        """Store ``n`` observations, in a row or in rows and environments ``i64[n]``."""
        n_rows, *shape = self._pages[0].layout.shape
        lengths = np.array([len(observation) for observation in observations], np.int32)
        of_row = np.maximum(lengths, self._lengths[at])  # and of what it had: pages behind those are zeros already
        n_pages = -(-int(of_row.max(initial=0)) // n_rows)
        self.grow(n_pages)
        rows = np.zeros((len(lengths), n_pages * n_rows, *shape), self._pages[0].dtype)
        for row, observation in zip(rows, observations, strict=True):
            row[: len(observation)] = observation
        tensors = rows.reshape(len(lengths), n_pages, n_rows, *shape)
        self._lengths[at] = of_row  # an interrupt leaves no page that the next observation here would not replace
        for k, page in enumerate(self._pages[:n_pages]):
            page[at] = tensors[:, k]
        self._lengths[at] = lengths

    def select(self, rows: Ints, envs: Ints, real: Bools | None) -> Selection:
        """Some observations ``[...]``, filled up to the length of the longest one of these; zeros if not ``real``."""
        store = self._pages[0].store
        guard = store.guard()  # before the ids are copied
        lengths = self._lengths[rows, envs] if real is None else np.where(real, self._lengths[rows, envs], 0)
        longest = int(lengths.max(initial=0))
        n_pages = max(1, -(-longest // self._pages[0].layout.shape[0]))
        ids = np.stack([page.ids[rows, envs] for page in self._pages[:n_pages]], axis=-1)
        if real is not None:
            ids[~real] = 0
        return Selection(store, ids, guard, longest)

    def check(self) -> None:
        """Refuse lengths, which may have been read from a file, for which there are no pages: CorruptStream."""
        check_range("lengths", self._lengths, 0, self.n_pages * self._pages[0].layout.shape[0])
