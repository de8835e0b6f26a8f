"""BufferStats: what the arrays of a buffer hold, and how long its samples took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from obscodec.stores import StoreStats


@dataclass(frozen=True, slots=True)
class BufferStats:
    """What a buffer holds, and how long its samples took.

    Attributes:
        fields: for each field what its store holds, or the bytes of its arrays if they are not compressed.
        raw_bytes: what all of them would take uncompressed.
        total_bytes: what they take, the ids of the compressed fields and the rows that can wait included.
        n_samples: how many batches were given out; 0 for a storage, from which a buffer reads.
        sample_s: how many seconds that took.
    """

    fields: Mapping[str, StoreStats | int]
    raw_bytes: int
    total_bytes: int
    n_samples: int = 0
    sample_s: float = 0.0

    @property
    def ratio(self) -> float:
        """Uncompressed bytes for each byte of memory; 1 for nothing."""
        return self.raw_bytes / self.total_bytes if self.total_bytes else 1.0

    def sample_ms_since(self, before: BufferStats) -> float | None:
        """The mean duration of the samples since ``before``, None if there were none."""
        n = self.n_samples - before.n_samples
        return 1000 * (self.sample_s - before.sample_s) / n if n else None

    def __str__(self) -> str:
        return f"{self.raw_bytes} bytes in {self.total_bytes}, {self.ratio:.1f} times smaller"
