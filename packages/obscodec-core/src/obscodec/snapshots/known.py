"""Known: what of a buffer lies in the files of a folder already, so that the next generation writes only the rest."""

from __future__ import annotations

from typing import Final, NamedTuple
from weakref import ref

import numpy as np
import numpy.typing as npt
import xxhash

from obscodec.segments import Bytes, Ints, Segments

FILE, OFFSET = 0, 1  # rows of Places
NOWHERE: Final = -1

# ``i64[2, n]``: for each stream the number of its file in the manifest, or NOWHERE, and its first byte there.
Places = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]  # ``u64[n, 2]``, the XXH3-128 of each page


class SegmentFile(NamedTuple):
    """A segment file in a manifest: its name, how many of its bytes belong to the generation, and its number.

    The number is random, in 16 hexadecimal digits; only this file has it.
    """

    file: str
    nbytes: int
    number: str


class _Streams(NamedTuple):
    """Streams by where they lie in memory, rising."""

    keys: Ints
    lengths: Ints
    places: Places


class Known:
    """The streams and pages of a generation.

    A stream in memory never changes, so it is known by its buffer, and by its place in that. Arrays do change: a page
    of one is known by its number and its hash.

    Attributes:
        manifest: the name of the manifest of the generation, "" for none.
        files: the segment files of the manifest; None for a number that is free.
    """

    def __init__(self) -> None:
        self.manifest, self.generation = "", 0
        self.files: list[SegmentFile | None] = []
        self._buffers: dict[int, tuple[ref[Bytes], int]] = {}  # by their ``id()``: the buffer, and its number
        self._n_buffers = 0
        self._streams: dict[str, _Streams] = {}
        self._pages: dict[str, tuple[Hashes, Places]] = {}

    def places_of(self, name: str, streams: Segments) -> Places:
        """Where the streams of a group are, as far as they are known."""
        places = np.full((2, len(streams)), NOWHERE)
        known = self._streams.get(name)
        if known is None or not len(known.keys) or not len(streams):
            return places
        keys = self._keys(streams)
        at = np.searchsorted(known.keys, keys).clip(max=len(known.keys) - 1)
        same = (known.keys[at] == keys) & (known.lengths[at] == streams.lengths)
        places[:, same] = known.places[:, at[same]]
        return places

    def places_of_pages(self, name: str, hashes: Hashes) -> Places:
        """Where the pages of an array are, as far as they are known."""
        places = np.full((2, len(hashes)), NOWHERE)
        before, known = self._pages.get(name, (np.empty((0, 2), np.uint64), places))
        n = min(len(before), len(hashes))
        same = np.flatnonzero((before[:n] == hashes[:n]).all(axis=1))
        places[:, same] = known[:, same]
        return places

    def after(
        self,
        manifest: str,
        generation: int,
        files: list[SegmentFile | None],
        streams: dict[str, tuple[Segments, Places]],
        pages: dict[str, tuple[Hashes, Places]],
    ) -> Known:
        """What is known after another generation; this object stays as it is."""
        known = Known()
        known.manifest, known.generation, known.files, known._pages = manifest, generation, files, pages
        known._buffers = {key: of for key, of in self._buffers.items() if of[0]() is not None}
        known._n_buffers = self._n_buffers
        for name, (segments, places) in streams.items():
            keys = known._keys(segments)
            order = np.argsort(keys, kind="stable")
            known._streams[name] = _Streams(keys[order], segments.lengths[order], places[:, order])
        return known

    def _keys(self, streams: Segments) -> Ints:
        """A number for each stream that no other stream has while both are in memory, unless one is empty."""
        numbers = np.array([self._number(buffer) for buffer in streams.buffers], np.int64)
        keys: Ints = (numbers[streams.which] << 32) + streams.offsets
        return keys

    def _number(self, buffer: Bytes) -> int:
        found = self._buffers.get(id(buffer))
        if found is None or found[0]() is not buffer:
            self._n_buffers += 1
            found = self._buffers[id(buffer)] = ref(buffer), self._n_buffers
        return found[1]


def hashes_of(pages: Segments) -> Hashes:
    """The hash of each page."""
    digests = b"".join(xxhash.xxh3_128_digest(page.data) for page in pages)
    return np.frombuffer(digests, ">u8").astype(np.uint64).reshape(-1, 2)
