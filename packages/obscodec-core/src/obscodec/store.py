"""Store: what a TensorArray needs of the thing that keeps its tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from obscodec.layout import Layout
from obscodec.segments import Ints

NO_TENSOR = 0  # the id of the zero tensor, which every store has from the start and nobody can release


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What a store holds, in bytes.

    Attributes:
        n_tensors: tensors that are stored.
        raw_bytes: what these would take uncompressed.
        live_bytes: their streams.
        reserved_bytes: memory reserved for streams, the live ones included.
        table_bytes: the tables that find a stream.
        dictionary_bytes: dictionaries that the streams need.
    """

    n_tensors: int
    raw_bytes: int
    live_bytes: int
    reserved_bytes: int
    table_bytes: int
    dictionary_bytes: int

    @property
    def total_bytes(self) -> int:
        """All memory of the store."""
        return self.reserved_bytes + self.table_bytes + self.dictionary_bytes

    @property
    def ratio(self) -> float:
        """Uncompressed bytes for each byte of memory; 1 for an empty store."""
        return self.raw_bytes / self.total_bytes if self.total_bytes else 1.0


class Store(ABC):
    """Tensors of one layout, each under an integer id. Id 0 is the zero tensor.

    Attributes:
        layout: shape and dtype of one tensor.
    """

    layout: Layout

    @abstractmethod
    def append(self, tensors: npt.NDArray[np.generic]) -> Ints:
        """Store ``[n, *shape]``.

        Returns:
            ``i64[n]``, the ids. The caller owns one reference to each.
        """

    @abstractmethod
    def read(self, ids: Ints, out: npt.NDArray[np.generic] | None = None) -> npt.NDArray[np.generic]:
        """Decode the tensors ``ids``, ``i64[n]``, into ``out`` or a new array ``[n, *shape]``."""

    @abstractmethod
    def release(self, ids: Ints) -> None:
        """Give back one reference to each of ``ids``; a tensor that has none left is dropped."""

    @abstractmethod
    def stats(self) -> StoreStats:
        """What the store holds now."""
