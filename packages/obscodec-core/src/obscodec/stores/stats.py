"""StoreStats: what a store holds, and Choice: which codec it chose."""

from __future__ import annotations

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
