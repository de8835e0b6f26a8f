"""What stores and buffers hold: StoreStats, with the Choice of a codec, and BufferStats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Trial:
    """How a codec did on the first frames.

    Attributes:
        spec: the codec.
        block_frames: frames in a block.
        frame_bytes: bytes for each frame, without dictionaries, which come later.
        cost: time to read a batch, relative to a gather from an uncompressed array, where the table was made.
        batch_s: seconds to read a batch of 256 frames here and now, None if no budget was given.
        fits: whether it is fast enough.
    """

    spec: str
    block_frames: int
    frame_bytes: float
    cost: float
    batch_s: float | None
    fits: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen, and why.

    Attributes:
        chosen: the trial that won: the smallest of those that are fast enough, or the fastest if none is.
        trials: all trials.
        reason: the same in words.
    """

    chosen: Trial
    trials: tuple[Trial, ...]
    reason: str


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
        choice: which codec was chosen for them, why, and how the others did; None before that, or if it was given.
    """

    n_tensors: int
    raw_bytes: int
    live_bytes: int
    reserved_bytes: int
    table_bytes: int
    dictionary_bytes: int
    choice: Choice | None = field(default=None, repr=False, kw_only=True)  # all trials are in it

    @property
    def total_bytes(self) -> int:
        """All memory of the store."""
        return self.reserved_bytes + self.table_bytes + self.dictionary_bytes

    @property
    def ratio(self) -> float:
        """Uncompressed bytes for each byte of memory; 1 for an empty store."""
        return self.raw_bytes / self.total_bytes if self.total_bytes else 1.0


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
