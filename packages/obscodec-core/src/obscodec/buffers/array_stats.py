"""ArrayStats: what the arrays of a buffer hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from obscodec.stores import StoreStats


@dataclass(frozen=True, slots=True)
class ArrayStats:
    """What some arrays hold.

    Attributes:
        fields: for each field what its store holds, or the bytes of its arrays if they are not compressed.
        raw_bytes: what all of them would take uncompressed.
        total_bytes: what they take, the ids of the compressed fields included.
    """

    fields: Mapping[str, StoreStats | int]
    raw_bytes: int
    total_bytes: int

    @property
    def ratio(self) -> float:
        """Uncompressed bytes for each byte of memory; 1 for nothing."""
        return self.raw_bytes / self.total_bytes if self.total_bytes else 1.0

    def __str__(self) -> str:
        return f"{self.raw_bytes} bytes in {self.total_bytes}, {self.ratio:.1f} times smaller"
