"""Examine: how a field compresses with each codec, and whether it comes back bit for bit."""

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from obscodec.buffers import MIN_COMPRESSED_NBYTES, Field, RingBuffer, part_ends, spread
from obscodec.cli.doctor.sources import Following
from obscodec.errors import SpecError
from obscodec.layout import FrameStack, Layout
from obscodec.segments import Ints
from obscodec.stats import BufferStats
from obscodec.stores import AutoStore, Shown, StoragePlan, Store, StoreOptions, find_plan, shown_first

Array = npt.NDArray[np.generic]
Steps = tuple[Array, Array]  # observations, and the next one of each
_BATCH, _N_BATCHES = 256, 7
_AT_ONCE = 32  # items, as a buffer stores some steps together
MILLION = 1_000_000


@dataclass(frozen=True)
class Measured:
    """How a codec did on all items of a field.

    Attributes:
        spec: the codec.
        block_frames: how many frames it encodes together.
        item_bytes: memory for each transition of a RingBuffer with a million of them: its observation, the next one,
            which shares its frames, and their part of ids, tables and fixed costs.
        least_bytes: the same if all items were as the part of them that takes least.
        most_bytes: the same of the part that takes most.
        ratio: raw bytes for each of them.
        encode_us: microseconds to store an item.
        decode_us: microseconds to read one, in random batches of 256.
        fits: whether ``auto`` takes it for fast enough, by a fixed table.
        decoded_sha256: of all items, read back.
    """

    spec: str
    block_frames: int
    item_bytes: float
    least_bytes: float
    most_bytes: float
    ratio: float
    encode_us: float
    decode_us: float
    fits: bool
    decoded_sha256: str


@dataclass(frozen=True)
class FieldReport:
    """What the doctor found out about a field.

    Attributes:
        chosen: how the codec did that ``auto`` chooses, None for a plain array.
        reason: why, in the words of ``Choice``.
        frame_stack: how items are made of frames, None if an item is a frame.
        stored_as: the dtype of the codes that numbers are stored as, None if they are stored as they are.
        next_name: the name of its next observations, None if the source has none.
    """

    name: str
    layout: Layout
    n: int
    raw_sha256: str
    chosen: Measured | None
    reason: str
    frame_stack: FrameStack | None = None
    stored_as: str | None = None
    measured: tuple[Measured, ...] = ()
    budget: str | None = None
    next_name: str | None = None

    @property
    def can_name_codec(self) -> bool:
        """Whether a field can name the codec; else ``auto`` has to find the codes that numbers are stored as first."""
        if self.recommended is not None:
            with suppress(SpecError):
                Field(self.layout.shape, self.layout.dtype, self.recommended, min_nbytes=0).new_store()
                return True
        return self.recommended is None

    @property
    def recommended(self) -> str | None:
        """The codec that ``auto`` chooses, None for a plain array."""
        return self.chosen.spec if self.chosen else None

    @property
    def item_bytes(self) -> float:
        """Memory for each item as recommended."""
        return self.chosen.item_bytes if self.chosen else float(self.layout.nbytes)

    @property
    def bounds(self) -> tuple[float, float]:
        """The same by the parts of the items that take least and most."""
        return (self.chosen.least_bytes, self.chosen.most_bytes) if self.chosen else (self.item_bytes, self.item_bytes)

    @property
    def is_lossless(self) -> bool:
        """Whether every codec gave back what it got."""
        return all(of.decoded_sha256 == self.raw_sha256 for of in self.measured)


def examine(
    name: str, items: Array, budget: str | None, show: Callable[..., None], following: Following | None = None
) -> FieldReport:
    """Try the codecs that ``auto`` tries, on all items ``[n, *shape]`` of a field, in the order of time.

    ``show`` is called whenever a codec has done all items: ``completed`` is the number of those, ``total`` of all.
    ``following`` has the next observation of each item, None for the item after it.
    """
    options = StoreOptions(budget=budget)
    layout = Layout(items.shape[1:], items.dtype)
    items = layout.tensors(layout.rows(items))
    digest = hashlib.sha256(layout.rows(items).data).hexdigest()
    if layout.nbytes < MIN_COMPRESSED_NBYTES:
        show(completed=1, total=1)
        why = f"below {MIN_COMPRESSED_NBYTES} bytes an item is mostly a vector, and takes little as it is"
        return FieldReport(name, layout, len(items), digest, None, why)
    after = np.concatenate([items[1:], items[-1:]]) if following is None else following.items
    steps = items, layout.tensors(layout.rows(after))
    first = shown_first(layout, chain.from_iterable(zip(*steps, strict=True)))
    plan = find_plan(first, np.zeros(len(first), np.int64), options, thorough=True)
    assert plan.choice is not None  # the codec is "auto"
    measured, trials = [], plan.choice.trials
    for trial in trials:
        of_trial = replace(plan, spec=trial.spec, block_frames=trial.block_frames)
        measured.append(_measure(of_trial, trial.fits, layout, steps, options))
        show(completed=len(measured), total=len(trials))
    narrow, best = str(plan.narrow.code_dtype) if plan.narrow else None, plan.choice.chosen
    chosen = next(of for of in measured if (of.spec, of.block_frames) == (best.spec, best.block_frames))
    return FieldReport(
        name,
        layout,
        len(items),
        digest,
        chosen,
        plan.choice.reason,
        plan.frame_stack,
        narrow,
        tuple(measured),
        budget,
        following.name if following else None,
    )


def _measure(plan: StoragePlan, fits: bool, layout: Layout, steps: Steps, options: StoreOptions) -> Measured:
    items, following = steps
    small = plan.new_store(layout, options)
    small.read(small.append(items[:_AT_ONCE]))  # compiles its kernels
    store = plan.new_store(layout, options)
    began = time.perf_counter()
    ids = np.concatenate([store.append(items[k : k + _AT_ONCE]) for k in range(0, len(items), _AT_ONCE)])
    store.stats()  # which compresses the blocks that wait
    encode_s = time.perf_counter() - began
    item_bytes, least, most = _item_bytes(plan, layout, items, following)
    return Measured(
        plan.spec,
        plan.block_frames,
        item_bytes,
        least,
        most,
        layout.nbytes / item_bytes,
        1e6 * encode_s / len(items),
        _decode_us(store, ids),
        fits,
        _decoded_digest(store, ids),
    )


def _decode_us(store: Store, ids: Ints) -> float:
    """Median microseconds to read an item of a random batch."""
    rng, times = np.random.default_rng(0), []
    out = np.empty((_BATCH, *store.layout.shape), store.layout.dtype)
    for _ in range(_N_BATCHES):
        wanted = rng.choice(ids, _BATCH)
        began = time.perf_counter()
        store.read(wanted, out)
        times.append(time.perf_counter() - began)
    return 1e6 * float(np.median(times)) / _BATCH


def _decoded_digest(store: Store, ids: Ints) -> str:
    digest = hashlib.sha256()
    for begin in range(0, len(ids), _BATCH):
        digest.update(store.layout.rows(store.read(ids[begin : begin + _BATCH])).data)
    return digest.hexdigest()


def _item_bytes(plan: StoragePlan, layout: Layout, items: Array, following: Array) -> tuple[float, float, float]:
    """Bytes for each transition in a buffer of a million; the same by the parts that take least and most."""
    late = 2 * len(items) + 1  # the store is told what to do
    obs = Field(layout.shape, layout.dtype, min_nbytes=0, decide_after=late)
    buffer = RingBuffer(len(items), {"obs": obs, "next": Field(layout.shape, layout.dtype, next_of="obs")})
    n_raw = Shown.of(layout).n // 2  # steps of two tensors that wait until it decides
    ends = [end for end in part_ends(len(items)) if end >= n_raw] or [len(items)]
    parts: list[tuple[int, BufferStats]] = []
    for begin, end in pairwise([0, *dict.fromkeys([min(n_raw, len(items)), *ends])]):
        buffer.extend(obs=items[begin:end], next=following[begin:end])
        for store in buffer.stores:
            assert isinstance(store, AutoStore)
            store.follow(plan)
        if end in ends:
            parts.append((end, buffer.stats()))
    of_million = buffer.stats().projected(len(buffer), MILLION).projected_bytes
    assert of_million is not None  # it has decided
    least, most = spread(parts, MILLION)
    return of_million / MILLION, least / MILLION, most / MILLION
