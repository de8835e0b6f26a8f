"""What stores and buffers report: StoreStats, with the Choice of a codec and the last Look, and BufferStats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

_UNITS = (10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")
_PLAIN = "uncompressed: under 1 KiB, or without a codec"


@dataclass(frozen=True, slots=True)
class Trial:
    """How a codec did on the first frames.

    Attributes:
        spec: the codec.
        block_frames: frames in a block.
        frame_bytes: bytes per frame, without dictionaries, which are trained later.
        cost: time to read a batch, relative to a gather from an uncompressed array; measured in advance.
        fits: whether it is fast enough.
    """

    spec: str
    block_frames: int
    frame_bytes: float
    cost: float
    fits: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """Which codec was chosen, and why: the best trial, for the reason, and all trials."""

    chosen: Trial
    trials: tuple[Trial, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Look:
    """What a store found when it looked again at how its tensors are stored.

    Attributes:
        choice: the codec that it would choose by the newest frames.
        now: the codec that stored them, on the same frames if it was tried on them.
        is_taken: whether that is worth a change: new frames are stored with the other codec from then on.
        n_frames: how many frames it had encoded since it chose, or since it was loaded.
    """

    choice: Choice
    now: Trial
    is_taken: bool
    n_frames: int = 0

    def __str__(self) -> str:
        when = f"looked again after {self.n_frames:,} frames"
        if self.is_taken:
            return f"{when}, and left {self.now.spec}, with which they took {self.now.frame_bytes:,.0f} bytes each"
        return f"{when}, and kept it"


@dataclass(frozen=True, slots=True, repr=False)
class StoreStats:
    """What a store holds, in bytes.

    Printed, it has a line for the size, and one for the codec, with the reason.

    Attributes:
        n_tensors: the number of stored tensors.
        raw_bytes: their size without compression.
        live_bytes: their streams.
        reserved_bytes: memory reserved for streams, live ones included.
        table_bytes: tables that find the stream of an id.
        dictionary_bytes: dictionaries that the streams need.
        disk_bytes: streams in files, see ``Store.spill``; they take no memory.
        growing_bytes: about the part of ``total_bytes`` and ``disk_bytes`` that grows with the number of tensors:
            streams and tables, but no dictionaries, queues or open blocks.
        codec: of its tensors, or of the frames that they are made of; ``"auto"`` until it is chosen.
        block_frames: how many frames are encoded together; None until it is chosen.
        choice: why the store chose its codec, and all trials; None before that, or if the codec was given.
        is_decided: whether it is decided how tensors are stored; until then they take their full size.
        waits_for: what the choice of a codec waits for; empty once it is made.
        last_look: when the store last looked again whether another codec is better by now, and what it found; None
            before that. Tensors that are stored stay as they are.
    """

    n_tensors: int
    raw_bytes: int
    live_bytes: int
    reserved_bytes: int
    table_bytes: int
    dictionary_bytes: int
    disk_bytes: int = field(default=0, kw_only=True)
    growing_bytes: int = field(default=0, kw_only=True)
    codec: str | None = field(default=None, kw_only=True)
    block_frames: int | None = field(default=None, kw_only=True)
    choice: Choice | None = field(default=None, kw_only=True)
    is_decided: bool = field(default=True, kw_only=True)
    waits_for: str = field(default="", kw_only=True)
    last_look: Look | None = field(default=None, kw_only=True)

    def with_others(self, others: Sequence[StoreStats], tensor_nbytes: int) -> StoreStats:
        """These stats, with those of others added: parts of one store, whose tensors have ``tensor_nbytes``."""
        added = [of.name for of in fields(self) if of.name.endswith(("n_tensors", "_bytes"))]
        sums = {name: sum(getattr(of, name) for of in (self, *others)) for name in added}
        return replace(self, **{**sums, "raw_bytes": sums["n_tensors"] * tensor_nbytes})

    @property
    def total_bytes(self) -> int:
        """All memory of the store."""
        return self.reserved_bytes + self.table_bytes + self.dictionary_bytes

    @property
    def ratio(self) -> float:
        """Uncompressed bytes for each byte of memory; 1 for an empty store."""
        return self.raw_bytes / self.total_bytes if self.total_bytes else 1.0

    @property
    def encoding(self) -> str:
        """How the tensors are encoded, and why, for a reader."""
        if self.block_frames is None:
            return f"{self.codec}, which has not chosen yet: {self.waits_for}"
        why = f": {self.choice.reason}" if self.choice else ""
        more = "".join(f"; {text}" for text in (self.last_look, self.waits_for) if text)
        return f"{self.codec}, blocks of {self.block_frames}{why}{more}"

    @property
    def summary(self) -> str:
        """The number of tensors and their size, in a line."""
        n, size = self.n_tensors, _size(self, [self])
        return f"{n:,} {'tensor' if n == 1 else 'tensors'}, {size}" if n else size

    def __str__(self) -> str:
        return f"{self.summary}\n  {self.encoding}"

    def __repr__(self) -> str:
        return f"StoreStats({self})"


@dataclass(frozen=True, slots=True, repr=False)
class BufferStats:
    """What a buffer holds, and how long its samples took.

    Printed, it has a line for the size, now and of the full buffer, and one for each codec, with the reason.

    Attributes:
        fields: by name, the stats of a field's store, with its codec, or the bytes of its arrays if they are not
            compressed. Fields that share a store have the same stats.
        id_bytes: the ids of compressed fields.
        waiting_bytes: steps that wait to be stored, and ids that were replaced.
        other_bytes: arrays that are no fields, such as the actions and rewards of SB3's buffers.
        raw_bytes: the size of all of them without compression.
        n_samples: the number of batches sampled; 0 for a storage, from which a buffer reads.
        sample_s: seconds that these took together.
        n_steps: how many steps the buffer has, if it has a limit of memory; else None.
        steps_that_fit: how many steps fit into this limit, at the present bytes for each; None without a limit, or if
            blocks that exceed it go to files.
        projected_bytes: about the memory of the full buffer, at the present bytes for each step; None while the buffer
            is empty, or while it is not decided how a field is stored.
    """

    fields: Mapping[str, StoreStats | int]
    id_bytes: int
    waiting_bytes: int
    other_bytes: int
    raw_bytes: int
    n_samples: int = 0
    sample_s: float = 0.0
    n_steps: int | None = None
    steps_that_fit: int | None = None
    projected_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        """The memory of everything; a store that fields share counts once."""
        stored = sum(store.total_bytes for store in self._stores)
        return stored + self._plain_bytes + self.waiting_bytes

    @property
    def growing_bytes(self) -> int:
        """About what grows with the number of steps: see ``StoreStats``."""
        return sum(store.growing_bytes for store in self._stores) + self._plain_bytes

    @property
    def _stores(self) -> list[StoreStats]:
        """Each store once."""
        return [*{id(held): held for held in self.fields.values() if isinstance(held, StoreStats)}.values()]

    @property
    def _plain_bytes(self) -> int:
        """What is not compressed."""
        plain_bytes = sum(held for held in self.fields.values() if isinstance(held, int))
        return plain_bytes + self.id_bytes + self.other_bytes

    @property
    def disk_bytes(self) -> int:
        """Bytes in files, of all stores; a store that fields share counts once."""
        return sum(store.disk_bytes for store in self._stores)

    @property
    def ratio(self) -> float:
        """Uncompressed bytes for each byte of memory; 1 for an empty buffer."""
        return self.raw_bytes / self.total_bytes if self.total_bytes else 1.0

    def projected(self, n_steps: int, capacity: int) -> BufferStats:
        """These stats, of ``n_steps`` steps, with ``projected_bytes`` for ``capacity`` steps, if known by now."""
        if not n_steps or not all(store.is_decided for store in self._stores):
            return self
        growing_bytes = self.growing_bytes * (capacity - n_steps) // n_steps
        return replace(self, projected_bytes=self.total_bytes + growing_bytes)

    def manifest(self, layouts: Mapping[str, object], n_steps: int | None, n_envs: int | None) -> dict[str, object]:
        """What a snapshot says of the buffer to a reader, as values of JSON.

        Args:
            layouts: of one item of each field.
            n_steps: how many steps there are, of each environment; None if they are no steps.
            n_envs: how many environments there are, None if it does not know.
        """
        fields, first = list[dict[str, object]](), dict[int, str]()  # of each store, the field that it counts for
        for name, held in self.fields.items():
            if isinstance(held, int):
                codec, nbytes = "", held
            elif (owner := first.setdefault(id(held), name)) != name:
                codec, nbytes = f"shares {owner}", 0
            else:
                codec, nbytes = held.codec or "", held.live_bytes
            fields.append({"name": name, "item": str(layouts[name]), "codec": codec, "nbytes": nbytes})
        return {"n_steps": n_steps, "n_envs": n_envs, "fields": fields}

    @property
    def summary(self) -> str:
        """The total size, now and of the full buffer, in a line."""
        full = "" if self.projected_bytes is None else f"; about {in_units(self.projected_bytes)} when full"
        fit = "" if self.steps_that_fit is None else f"; about {self.steps_that_fit:,} steps fit into max_bytes"
        return f"{_size(self, self._stores)}{full}{fit}"

    def __str__(self) -> str:
        names: dict[str, list[str]] = {}  # of fields that are encoded together
        for name, held in self.fields.items():
            names.setdefault(_PLAIN if isinstance(held, int) else held.encoding, []).append(name)
        lines = [f"  {', '.join(some)}: {how}" if any(some) else f"  {how}" for how, some in names.items()]
        mean_ms = 1000 * self.sample_s / max(self.n_samples, 1)
        samples = [f"  {mean_ms:.2f} ms for a sample, the mean of {self.n_samples:,}"] if self.n_samples else []
        return "\n".join([self.summary, *lines, *samples])

    def __repr__(self) -> str:
        return f"BufferStats({self})"


def in_units(nbytes: float) -> str:
    """A number of bytes for a reader.

    Example:
        >>> in_units(28_224_000_000)
        '28.2 GB'
    """
    for size, unit in _UNITS:
        if nbytes >= 0.9995 * size:  # three digits of less are fewer than 1000 of the next unit
            return f"{nbytes / size:.3g} {unit}" if nbytes < 999.5 * size else f"{nbytes / size:,.0f} {unit}"
    return f"{nbytes:.0f} bytes"


def _size(of: StoreStats | BufferStats, stores: Sequence[StoreStats]) -> str:
    """The size of what is in some stores and beside them, and whether a codec makes it smaller."""
    if not of.raw_bytes:
        return f"empty, {in_units(of.total_bytes)} in memory" if of.total_bytes else "empty"
    on_disk = f", {in_units(of.disk_bytes)} on disk" if of.disk_bytes else ""
    size = f"{in_units(of.total_bytes)} in memory{on_disk}, {in_units(of.raw_bytes)} uncompressed"
    if not stores or of.disk_bytes:  # what is on the disk has left memory, and is no smaller for that
        return size
    if not all(store.is_decided for store in stores):
        return f"{size}: {'not all is' if any(store.is_decided for store in stores) else 'nothing is'} compressed yet"
    ratio = of.ratio
    return f"{size}: {f'{ratio:.1f} times smaller' if ratio >= 1.05 else f'{1 / ratio:.2f} times as large'}"
