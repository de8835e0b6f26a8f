"""StoragePlan: how an AutoStore keeps its tensors."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from operator import attrgetter
from types import NoneType
from typing import Self

import numpy as np
import numpy.typing as npt

from obscodec.arguments import warn
from obscodec.codecs import new_codec
from obscodec.errors import CorruptStream
from obscodec.frames import Newest
from obscodec.layout import FrameStack, Layout
from obscodec.segments import Ints
from obscodec.state import State, number_of, part_of
from obscodec.stats import Choice, Look, Trial
from obscodec.stores.auto.candidates import frames_of_block
from obscodec.stores.auto.choice import choose, pays
from obscodec.stores.auto.options import StoreOptions
from obscodec.stores.frame_store import FrameStore
from obscodec.stores.narrow.find_narrow import find_narrow
from obscodec.stores.narrow.narrow import Narrow
from obscodec.stores.narrow.narrow_store import NarrowStore

_WIDE_SPEC = "shuffle|zstd:1"  # for the few tensors that have no codes in a NarrowStore
_MIN_SHIFTS = 4  # in a frame stack
_MORE_RECENT = 0, 8, 32  # frames to compare with, as long as
_MIN_FEWER = 0.9  # of the frames, or fewer, are left then


@dataclass(frozen=True, slots=True)
class StoragePlan:
    """How tensors are kept.

    Attributes:
        narrow: which numbers have codes, None to store numbers as they are.
        frame_stack: how tensors are made of frames, None if a tensor is a frame.
        spec: the codec of the frames.
        block_frames: how many frames are encoded together.
        choice: why the codec was chosen, None if it was given.
        recent: how many of the last frames of its sequence a frame is compared with, None for its depth + 2.
    """

    narrow: Narrow | None
    frame_stack: FrameStack | None
    spec: str
    block_frames: int
    choice: Choice | None
    recent: int | None = None

    def config(self) -> State:
        """Plain values that :meth:`from_config` takes."""
        choice = None
        if self.choice is not None:
            choice = {**asdict(self.choice), "trials": [*map(asdict, self.choice.trials)]}
        return {**{of.name: getattr(self, of.name) for of in fields(self)}, "choice": choice}

    def followed_by(self, newest: Newest, layout: Layout, options: StoreOptions, frame_bytes: float) -> Look:
        """What other codec would store the newest frames better, which take ``frame_bytes`` each with this one.

        Only the codec changes: tensors are of the same numbers, and made of frames in the same way.
        """
        assert self.choice is not None
        layout = Layout(layout.shape, self.narrow.code_dtype) if self.narrow else layout
        stack = self.frame_stack
        depth, of_frame = (stack.depth, stack.frame_layout(layout)) if stack else (1, layout)
        frames, n_seen = of_frame.tensors(newest.rows), round(len(newest.rows) * newest.n_references / depth)
        choice = choose(frames, newest.sequences, options, n_seen=max(1, n_seen), depth=depth, which="newest")
        mine = [of for of in choice.trials if (of.spec, of.block_frames) == (self.spec, self.block_frames)]
        now = mine[0] if mine else replace(self.choice.chosen, frame_bytes=frame_bytes)
        best = choice.chosen
        is_other = (best.spec, best.block_frames) != (self.spec, self.block_frames)
        return Look(choice, now, is_other and pays(best, now))

    @classmethod
    def from_config(cls, config: State) -> Self:
        """The plan that :meth:`config` described; CorruptStream for another one."""
        narrow, stack, choice = (config.get(name) for name in ("narrow", "frame_stack", "choice"))
        if not isinstance(narrow, (Narrow, NoneType)) or not isinstance(stack, (FrameStack, NoneType)):
            raise CorruptStream(f"a plan has numbers and a frame stack, got {narrow!r} and {stack!r}")
        if choice is not None:
            of_choice = part_of(config, "choice", dict)
            kept = [part_of(of_choice, "chosen", dict), *part_of(of_choice, "trials", list)]
            chosen, *trials = (Trial(*(of[field.name] for field in fields(Trial))) for of in kept)
            choice = Choice(chosen, tuple(trials), part_of(of_choice, "reason", str))
        recent = None if config.get("recent") is None else number_of(config, "recent", 1)
        return cls(narrow, stack, part_of(config, "spec", str), number_of(config, "block_frames", 1), choice, recent)

    def new_store(
        self,
        layout: Layout,
        options: StoreOptions,
        threads: int | None = None,
        *,
        first_id: int = 1,
        first_wide: int = 1,
        first_row: int = 0,
    ) -> FrameStore | NarrowStore:
        """An empty store for tensors of ``layout``; see ``FrameStore`` for the first id and row of frames.

        ``first_wide`` is the first id of tensors that have no codes, if numbers do. It decodes on the device of the
        options if numbers are stored as they are, else on the CPU.
        """
        make = partial(FrameStore, first_row=first_row, max_bytes=options.max_bytes, threads=threads)
        of_frames = partial(make, frame_stack=self.frame_stack, codec=self.spec, block_frames=self.block_frames)
        is_single = self.frame_stack is None or self.frame_stack.depth == 1
        of_frames = partial(of_frames, recent=self.recent, interleaved=options.interleaved and is_single)
        if self.narrow is None:
            return of_frames(layout, first_id=first_id, device=options.device, heap=options.heap)
        codes = of_frames(Layout(layout.shape, self.narrow.code_dtype), first_id=first_id)
        wide = make(layout, codec=_WIDE_SPEC, block_frames=1, first_id=first_wide)
        return NarrowStore(self.narrow, codes, wide, threads=threads)


def find_plan(
    tensors: npt.NDArray[np.generic], sequences: Ints, options: StoreOptions, *, thorough: bool = False
) -> StoragePlan:
    """The best way to keep tensors, found in the first ones, ``[n, *shape]`` in the order of time for each sequence.

    ``options`` are of the store, with the device that decodes. ``thorough``: try slow codecs even if a fast one will
    do.
    """
    narrow = find_narrow(tensors)
    if narrow is not None and options.device != "cpu":
        warn(
            f"{tensors.dtype} that could be {narrow.code_dtype} is stored as it is, since {options.device!r} decodes it"
            f" so: store {narrow.code_dtype}, and scale what is read, to take less memory and time"
        )
        narrow = None
    if narrow is not None:
        tensors, _ = narrow.apply(tensors)
    stack = FrameStack.of(options.frame_stack) or find_frame_stack(tensors, sequences)
    find = partial(_plan, narrow, tensors, sequences, options, thorough=thorough)
    plan = find(stack)
    tried = [trial.spec for trial in plan.choice.trials] if plan.choice else [plan.spec]
    if stack is None and _misread(tried, tensors):
        of_planes = find(FrameStack(1, axis=-1))  # an image of two or four channels: its planes are images of one
        if _misread([of_planes.spec], tensors):
            return of_planes
    return plan


def _misread(specs: Iterable[str], tensors: npt.NDArray[np.generic]) -> bool:
    """Whether one of some codecs takes these tensors for other images."""
    layout = Layout(tensors.shape[1:], tensors.dtype)
    return any(new_codec(spec, layout).misreads for spec in specs)


def _plan(
    narrow: Narrow | None,
    tensors: npt.NDArray[np.generic],
    sequences: Ints,
    options: StoreOptions,
    stack: FrameStack | None,
    *,
    thorough: bool,
) -> StoragePlan:
    """The plan for tensors that are made of frames in this way."""
    depth, spec = stack.depth if stack else 1, options.codec or "auto"
    frames, sequences = stack.split(tensors) if stack else tensors, sequences.repeat(depth)
    if options.interleaved and depth == 1:
        sequences = np.zeros_like(sequences)
    recent, first = _find_recent(frames, sequences, depth, options.recent)
    if spec != "auto":
        of_block = frames_of_block(spec, options.block_frames, options.device)
        return StoragePlan(narrow, stack, spec, of_block, None, recent)
    new = frames[first], sequences[first]
    choice = choose(*new, options, n_seen=len(tensors), depth=depth, thorough=thorough)
    return StoragePlan(narrow, stack, choice.chosen.spec, choice.chosen.block_frames, choice, recent)


def _find_recent(frames: npt.NDArray[np.generic], sequences: Ints, depth: int, given: int | None) -> tuple[int, Ints]:
    """With how many of the last frames to compare a frame, so that few are stored twice; and which are new, ``i64[n]``.

    A loop that stores what it observes some steps later has each observation again after as many others.
    """
    found = 0, np.arange(len(frames))
    for recent in [depth + 2 + more for more in _MORE_RECENT] if given is None else [given]:
        distinct = FrameStore(Layout(frames.shape[1:], frames.dtype), codec="raw", block_frames=1, recent=recent)
        _, first = np.unique(distinct.append(frames, sequences), return_index=True)
        if not found[0] or len(first) <= _MIN_FEWER * len(found[1]):
            found = recent, np.sort(first)
    return found


def find_frame_stack(observations: npt.NDArray[np.generic], sequences: Ints) -> FrameStack | None:
    """How observations are made of frames, judged by their values.

    In a frame stack, each observation repeats all frames of the one before it but the oldest, shifted by one place. At
    least half of the consecutive observations that differ must do so; the first of an episode does not. If two arrays
    take turns, such as observations and those some steps later, consecutive ones are every other.

    Args:
        observations: ``[n, *shape]``, in the order of time for each sequence.
        sequences: ``i64[n]``, the sequence of each observation.

    Returns:
        The deepest stack that fits; None if none does.
    """
    found = [_stack_of(observations, of) for of in (sequences, 2 * sequences + _every_other(sequences))]
    return max(filter(None, found), key=attrgetter("depth"), default=None)


def _stack_of(observations: npt.NDArray[np.generic], sequences: Ints) -> FrameStack | None:
    """:func:`find_frame_stack` for neighbours of each sequence."""
    pairs = [(observations[a], observations[b]) for a, b in _consecutive(sequences)]
    pairs = [(before, after) for before, after in pairs if before.tobytes() != after.tobytes()]
    if observations.ndim < 3 or len(pairs) < _MIN_SHIFTS:
        return None
    for axis in (0, -1):
        length = observations.shape[1:][axis]
        moved = [[np.moveaxis(of, axis, 0) for of in pair] for pair in pairs]
        for channels in range(1, length // 2 + 1):
            if length % channels == 0:
                n = sum(a[channels:].tobytes() == b[:-channels].tobytes() for a, b in moved)
                if n >= _MIN_SHIFTS and 2 * n >= len(pairs):
                    return FrameStack(length // channels, axis)
    return None


def _every_other(sequences: Ints) -> Ints:
    """0 for the first item of each sequence, 1 for the second, 0 for the third, and so on."""
    turns = np.zeros_like(sequences)
    for before, after in _consecutive(sequences):
        turns[after] = 1 - turns[before]
    return turns


def _consecutive(sequences: Ints) -> Iterator[tuple[int, int]]:
    last: dict[int, int] = {}
    for i, sequence in enumerate(sequences.tolist()):
        if sequence in last:
            yield last[sequence], i
        last[sequence] = i
