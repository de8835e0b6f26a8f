"""Portion: some frames of a log, as it keeps them, to be decoded elsewhere."""

from __future__ import annotations

from copy import copy
from typing import NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream, ObscodecError
from obscodec.frames.block_coder import PLAIN, Coder, Wanted
from obscodec.frames.coder_for import new_coder
from obscodec.frames.frame_log import FrameLog
from obscodec.layout import Layout, Rows, same_values
from obscodec.segments import Ints, Segments, segments_of
from obscodec.state import State, array_of, check_range, number_of, part_of
from obscodec.statuses import check
from obscodec.streams import MAX_REFERENCES, read_versions

_Key = tuple[int, str, Layout, int]  # the number of a log, the codec, a frame, how many are in a block

_MOST_LOGS, _MOST_VERSIONS = 1 << 10, 1 << 20
_MOST_FRAMES = 1 << 16  # of a block that is sent
_NOTHING: tuple[int, frozenset[int]] = 1, frozenset()  # but the frame of zeros
_FEW = 0.25  # of the bytes of the frames: if blocks have fewer, nothing else is tried, which takes far longer
_ALONE = "zstd:1"  # for frames that a log keeps as patches of others


class _Known:
    """What one end of a channel knows, in dictionaries."""

    def copy(self) -> Self:
        """The same, to which a message adds, until it is whole."""
        made = type(self)()
        vars(made).update({name: copy(of) for name, of in vars(self).items()})
        return made

    def take_over(self, other: Self) -> None:
        """Know what a :meth:`copy` does."""
        vars(self).update(vars(other))


class Sent(_Known):
    """What somebody elsewhere has of the logs whose frames were sent there: no more than once. For one thread."""

    def __init__(self) -> None:
        self._numbers: WeakKeyDictionary[FrameLog, int] = WeakKeyDictionary()
        self._known: dict[int, tuple[int, frozenset[int]]] = {}  # a number is never used again

    def unsent_nbytes(self, portion: Portion) -> int:
        """The bytes of the reference frames among the :meth:`news`."""
        n_known, _ = self._known.get(self._numbers.get(portion.log, 0), _NOTHING) if portion.log else _NOTHING
        return (len(portion.references) - n_known) * portion.frame.nbytes

    def news(self, portion: Portion) -> State:
        """What else decodes a portion, and was not sent; it counts as sent from now on."""
        if portion.log is None:
            return {"log": 0}
        log = self._numbers.setdefault(portion.log, len(self._known) + 1)
        n_known, versions = self._known.get(log, _NOTHING)
        found, heads = np.empty((2, len(portion.blocks)), np.int64)
        check(read_versions(portion.blocks.addresses(), portion.blocks.lengths, found, heads))
        wanted = {*found.tolist()} - {0}
        new, references = sorted(wanted - versions), portion.references[n_known:]
        self._known[log] = n_known + len(references), versions | wanted
        dictionaries = Segments.of([portion.coder.codecs[version].dictionary for version in new])
        return {
            "log": log,
            "n_references": n_known,
            "references": references,
            "versions": np.array(new, np.int64),
            "dictionaries": dictionaries.state(),
        }


class Received(_Known):
    """What was received of logs that are elsewhere, in the order of the messages. For one thread."""

    def __init__(self) -> None:
        self._coders: dict[_Key, tuple[Coder, Rows]] = {}

    def coder(self, news: State, spec: str, frame: Layout, block_frames: int) -> tuple[Coder, Rows]:
        """What decodes blocks, with its reference frames, after some :meth:`Sent.news`.

        Raises:
            CorruptStream: there can be no such coder, or something was not received.
        """
        log = number_of(news, "log", 0, _MOST_LOGS)
        key = log, spec, frame, block_frames
        try:
            coder, references = self._coders.get(key) or (
                new_coder(spec, frame, block_frames),
                np.zeros((1, frame.nbytes), np.uint8),
            )
        except ObscodecError as error:
            raise CorruptStream(f"no frames of {frame} have the codec {spec!r}: {error}") from error
        if log:
            more = array_of(news, "references", np.uint8, (None, frame.nbytes))
            dictionaries = segments_of(news, "dictionaries")
            versions = array_of(news, "versions", np.int64, (len(dictionaries),))
            if number_of(news, "n_references") != len(references) or len(references) + len(more) > MAX_REFERENCES:
                raise CorruptStream("messages are missing, or came in another order: send the batch for a new Received")
            references = np.concatenate([references, more])
            check_range("versions", versions, 1, _MOST_VERSIONS)
            if len(versions) and coder.versions is None:
                raise CorruptStream(f"{spec!r} has no dictionaries")
            if coder.versions is not None:
                coder.versions.add(versions, dictionaries)  # twice does nothing
        if len(self._coders) > _MOST_LOGS:
            raise CorruptStream(f"messages are of more than {_MOST_LOGS} logs")
        self._coders[key] = coder, references
        return coder, references


class Portion(NamedTuple):
    """Frames, in whole blocks.

    Attributes:
        coder: decodes the blocks.
        frame: the layout of a frame.
        block_frames: how many frames a block has.
        blocks: as a log stores them; an empty one is the block of the frame of zeros.
        starts: see ``Wanted``, as for ``places`` and ``targets``.
        references: ``u8[n_references, nbytes]``, what patches may begin with.
        log: what has the references and codecs, None if there are none.
        held: as long as it lives, ``log`` does not forget what decodes the blocks.
    """

    coder: Coder
    frame: Layout
    block_frames: int
    blocks: Segments
    starts: Ints
    places: Ints
    targets: Ints
    references: Rows
    log: FrameLog | None
    held: object

    @classmethod
    def of(cls, log: FrameLog, frame: Layout, ids: Ints) -> Self:
        """The frames, of a layout, of stacks ``i64[n]`` of a log; see ``FrameLog.read`` for errors."""
        blocks, starts, places, targets, references, held = log.located(ids)
        return cls(log.coder, frame, log.block_frames, blocks, starts, places, targets, references, log, held)

    @classmethod
    def plain(cls, frame: Layout, frames: npt.NDArray[np.generic]) -> Self:
        """Frames ``[n, *shape]`` that no log has."""
        n, blocks = len(frames), _plain(frame.rows(frames))
        coder, none = new_coder(_ALONE, frame, 1), np.zeros((1, frame.nbytes), np.uint8)
        return cls(coder, frame, 1, blocks, np.arange(n + 1), np.zeros(n, np.int64), np.arange(n), none, None, None)

    def read(self, rows: Rows, threads: int) -> None:
        """Decode the frames into ``u8[n, nbytes]``; CorruptStream if a block is damaged."""
        self.coder.read(self.blocks, Wanted(self.starts, self.places, self.targets, rows), self.references, threads)

    def smallest(self, sent: Sent, threads: int) -> Self:
        """The same frames in the fewest bytes: in these blocks, or each one encoded by itself, or as it is."""
        nbytes = self.blocks.nbytes + (sent.unsent_nbytes(self) if self.coder.patches else 0)
        if nbytes <= _FEW * len(self.targets) * self.frame.nbytes:
            return self
        block = np.repeat(np.arange(len(self.blocks)), np.diff(self.starts))
        each, first, which = np.unique(block * self.block_frames + self.places, return_index=True, return_inverse=True)
        starts = np.searchsorted(each, np.arange(len(self.blocks) + 1) * self.block_frames)
        rows = np.empty((len(each), self.frame.nbytes), np.uint8)
        self._replace(starts=starts, places=self.places[first], targets=np.arange(len(each))).read(rows, threads)
        coder = new_coder(_ALONE if self.coder.patches else self.coder.spec, self.frame, 1)
        _, sealed = coder.seal(_plain(rows))
        if sealed.nbytes >= nbytes:
            return self
        order = np.argsort(which, kind="stable")
        starts, places = np.searchsorted(which[order], np.arange(len(each) + 1)), np.zeros_like(self.places)
        of_each = starts, places, self.targets[order], self.references[:0]
        return type(self)(coder, self.frame, 1, sealed, *of_each, None, None)

    def state(self, sent: Sent) -> State:
        """All that decodes the frames and was not sent before: see ``obscodec.state``."""
        return {
            **sent.news(self),
            "spec": self.coder.spec,
            "frame": self.frame,
            "block_frames": self.block_frames,
            "blocks": self.blocks.state(),
            "starts": self.starts.astype(np.int32),
            "places": self.places.astype(np.uint16),
            "targets": self.targets.astype(np.int32),
        }

    @classmethod
    def from_state(cls, state: State, received: Received, max_bytes: int) -> Self:
        """The portion of a :meth:`state`, whose coder is among those that were ``received``.

        Raises:
            CorruptStream: there is no such portion, or its frames have more than ``max_bytes``.
        """
        frame, block_frames = part_of(state, "frame", Layout), number_of(state, "block_frames", 1, _MOST_FRAMES)
        blocks, starts = segments_of(state, "blocks"), array_of(state, "starts", np.int32, (None,)).astype(np.int64)
        places = array_of(state, "places", np.uint16, (None,)).astype(np.int64)
        targets = array_of(state, "targets", np.int32, (len(places),)).astype(np.int64)
        if max(len(places), block_frames) * frame.nbytes > max_bytes:
            raise CorruptStream(f"{len(places)} frames of {frame} have more than {max_bytes} bytes")
        n, lengths = len(places), np.diff(starts)
        if len(starts) != len(blocks) + 1 or starts[0] or starts[-1] != n or (lengths < 1).any():
            raise CorruptStream(f"{len(blocks)} blocks don't have {n} frames together")
        check_range("places", places, 0, block_frames - 1)
        falls = np.diff(places) < 0
        falls[starts[1:-1] - 1] = False
        if falls.any() or not same_values(np.sort(targets), np.arange(n)):
            raise CorruptStream("frames are not in the order of their blocks, or have no rows of theirs")
        coder, references = received.coder(state, part_of(state, "spec", str), frame, block_frames)
        return cls(coder, frame, block_frames, blocks, starts, places, targets, references, None, None)


def _plain(rows: Rows) -> Segments:
    """Each row as a block of version 0."""
    blocks = np.empty((len(rows), len(PLAIN) + rows.shape[1]), np.uint8)
    blocks[:, : len(PLAIN)], blocks[:, len(PLAIN) :] = np.frombuffer(PLAIN, np.uint8), rows
    return Segments.packed(blocks.reshape(-1), np.full(len(rows), blocks.shape[1]))
