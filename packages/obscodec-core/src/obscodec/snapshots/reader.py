"""Reading a generation of a snapshot."""

import os
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xxhash

from obscodec.errors import SnapshotError
from obscodec.segments import Bytes, Ints, Segments
from obscodec.snapshots.folder import Folder, Manifest
from obscodec.snapshots.known import FILE, NOWHERE, OFFSET, Known, SegmentFile, hashes_of
from obscodec.snapshots.segment_file import OnDamage, Piece, mapped, read_pieces
from obscodec.state import array_of
from obscodec.trees import Arrays, Tree, parse_arrays

_PIECE_NBYTES: Final = 1 << 21  # of a mapped file, as a chunk of a heap
_MIN_MAPPED_NBYTES: Final = 1 << 22  # a smaller file is read and checked at once: each mapping keeps a file open
_LENGTH: Final = 2  # a row, behind FILE and OFFSET
_OFFSETS: Final = 1 << 40  # more than the bytes of any file

_NO_SALVAGE: Final = "nothing of this generation can be salvaged without it"


class DamagedStreams(SnapshotError):
    """Some streams are damaged; the others can be salvaged."""


class Reader:
    """Reads the files that a manifest names."""

    def __init__(self, folder: Folder, manifest: Manifest, on_damage: OnDamage) -> None:
        self._folder, self._manifest, self._on_damage = folder, manifest, on_damage
        self._with_damage = set[int]()  # numbers of files
        segments = manifest["segments"]
        self._files = [None if x is None else SegmentFile(x["file"], x["nbytes"], x["number"]) for x in segments]
        names = [file.file for file in self._files if file is not None]
        if len({*names}) < len(names):
            raise SnapshotError(f"a manifest in {folder.path} names a file twice")

    def read(self, name: str, maps: bool) -> tuple[Tree, Known]:
        """The state, and where its streams are; ``name`` is that of the manifest."""
        arrays = self._arrays(self._manifest["arrays"])
        pages = self._manifest.get("pages", {})
        if sum(int(arrays[f"{x}/length"].sum()) for x in pages) > sum(x.nbytes for x in self._files if x):
            raise SnapshotError(f"the pages in {self._folder.path} have more bytes than their files")
        arrays |= {array: self._paged(array, arrays, about) for array, about in pages.items()}
        streams, lost, known = {}, {}, {}
        places = {group: self._places(group, arrays) for group in self._manifest["streams"]}
        contents: dict[int, list[Piece]] = {}
        for k in self._used([*places.values()]):
            offsets = np.concatenate([where[OFFSET, where[FILE] == k] for where in places.values()])
            try:
                maps_it = maps and self._segment(k).nbytes >= _MIN_MAPPED_NBYTES
                contents[k] = _cut(self._mapped(k), offsets) if maps_it else self._pieces(k)
            except SnapshotError as error:  # such as a file that is missing
                self._damaged(k, str(error))
        for group, where in places.items():
            streams[group], found = _streams(where, contents)
            if not found.all():
                n_lost, lost[group] = int((~found).sum()), np.flatnonzero(~found)
                self._on_damage(f"{n_lost} streams of {group} lie outside of the files, or in damaged records")
            places_known = where[: OFFSET + 1, found]  # streams of files with damage are written again next time
            places_known[:, np.isin(places_known[FILE], [*self._with_damage])] = NOWHERE
            known[group] = streams[group], places_known
        after = Known().after(name, int(self._manifest["generation"]), self._files, known, {})
        return Tree(self._manifest["values"], arrays, streams, lost), after

    def part(self, name: str) -> Tree:
        """All values of the state, and its arrays, but no streams, and of large arrays those of a part alone."""
        arrays, pages = self._arrays(self._manifest["arrays"]), self._manifest.get("pages", {})
        of_part = {array: about for array, about in pages.items() if array.startswith(f"{name}/")}
        arrays |= {array: self._paged(array, arrays, about) for array, about in of_part.items()}
        return Tree(self._manifest["values"], arrays, {}, {})

    def _damaged(self, k: int, damage: str) -> None:
        self._with_damage.add(k)
        self._on_damage(damage)

    def _arrays(self, about: dict[str, Any]) -> Arrays:
        name = about["file"]
        with self._folder.opened(name, "arrays") as file:
            content = file.read(about["nbytes"] + 1) if os.fstat(file.fileno()).st_size == about["nbytes"] else b""
        if xxhash.xxh3_64_hexdigest(content) != about["xxh3"]:
            raise SnapshotError(
                f"{self._folder.path / name} is damaged: it has other bytes than when it was written; {_NO_SALVAGE}"
            )
        try:
            return parse_arrays(content)
        except ValueError as error:
            raise SnapshotError(f"{self._folder.path / name} has no arrays: {error}") from error

    def _paged(self, name: str, arrays: Arrays, about: dict[str, Any]) -> npt.NDArray[Any]:
        """An array that lies in pages, checked by their hashes."""
        where = self._places(name, arrays)
        hashes = array_of(arrays, f"{name}/xxh3", np.uint64, (where.shape[1], 2))
        del arrays[f"{name}/xxh3"]
        contents = {k: [Piece(0, self._mapped(k))] for k in self._used([where])}
        streams, found = _streams(where, contents)
        if not found.all():
            raise SnapshotError(f"pages of {name} lie outside of the files")
        content = np.empty(streams.nbytes, np.uint8)
        streams.pack(content)
        wrong = (hashes_of(Segments.packed(content, streams.lengths)) != hashes).any(axis=1)
        if wrong.any():
            k, offset, _ = where[:, np.flatnonzero(wrong)[0]].tolist()
            page = f"{self._file(k)}, a page of {name} at {offset}"
            raise SnapshotError(f"{page}: its hash is wrong, so it is damaged; {_NO_SALVAGE}")
        array: npt.NDArray[Any] = content.view(np.dtype(about["dtype"])).reshape(about["shape"])
        return array

    def _places(self, name: str, arrays: Arrays) -> Ints:
        """``i64[3, n]``: the file, the offset and the length of each stream of a group."""
        columns = [arrays.pop(f"{name}/{column}") for column in ("file", "offset", "length")]
        if any(column.dtype != np.int64 or column.shape != (len(columns[0]),) for column in columns):
            raise SnapshotError(f"the places of {name} are no whole numbers, or not as many")
        where = np.stack(columns)
        inside = (where >= 0).all(axis=0) & (where[FILE] < len(self._files))
        inside &= (where[OFFSET] < _OFFSETS) & (where[_LENGTH] < _OFFSETS)
        if not inside.all() or any(self._files[k] is None for k in self._used([where])):
            raise SnapshotError(f"streams of {name} lie outside of the files")
        return where

    @staticmethod
    def _used(groups: list[Ints]) -> list[int]:
        """The numbers of the files that streams are in."""
        return sorted({int(k) for where in groups for k in np.unique(where[FILE])})

    def _segment(self, k: int) -> SegmentFile:
        segment = self._files[k]
        assert segment is not None  # streams lie in it
        return segment

    def _pieces(self, k: int) -> list[Piece]:
        segment = self._segment(k)
        with self._folder.opened(segment.file, "segment") as file:
            return read_pieces(file, self._file(k), int(segment.number, 16), segment.nbytes, partial(self._damaged, k))

    def _mapped(self, k: int) -> Bytes:
        segment = self._segment(k)
        with self._folder.opened(segment.file, "segment") as file:
            return mapped(file, self._file(k), int(segment.number, 16), segment.nbytes)

    def _file(self, k: int) -> str:
        return str(self._folder.path / self._segment(k).file)


def _cut(content: Bytes, offsets: Ints) -> list[Piece]:
    """A file in pieces, between streams that begin at ``offsets``."""
    begins = np.sort(offsets)
    at = np.searchsorted(begins, np.arange(_PIECE_NBYTES, len(content), _PIECE_NBYTES))
    bounds = [0, *np.unique(begins[at[at < len(begins)]]).tolist(), len(content)]
    return [Piece(begin, content[begin:end]) for begin, end in pairwise(bounds)]


def _streams(where: Ints, contents: dict[int, list[Piece]]) -> tuple[Segments, npt.NDArray[np.bool_]]:
    """The streams at some places that lie inside a piece, and ``bool[n]``, which do."""
    pieces = [(k * _OFFSETS + piece.begin, piece.content) for k, of_file in contents.items() for piece in of_file]
    pieces.sort(key=lambda piece: piece[0])
    begins = np.array([begin for begin, _ in pieces], np.int64)
    sizes = np.array([len(content) for _, content in pieces], np.int64)
    if not pieces or not where.size:
        return Segments((), *np.zeros((3, 0), np.int64)), np.zeros(where.shape[1], np.bool_)
    at = where[FILE] * _OFFSETS + where[OFFSET]
    which = np.searchsorted(begins, at, side="right") - 1
    offset, found = at - begins[which], which >= 0
    found &= (offset <= sizes[which]) & (where[_LENGTH] <= sizes[which] - offset)
    used, which = np.unique(which[found], return_inverse=True)
    offset, length = offset[found], where[_LENGTH, found]
    first, last = np.full(len(used), _OFFSETS), np.zeros(len(used), np.int64)  # of the bytes that these streams have
    np.minimum.at(first, which, offset)
    np.maximum.at(last, which, offset + length)
    extents = zip(used.tolist(), first.tolist(), last.tolist(), strict=True)
    buffers = tuple(pieces[k][1][begin:end] for k, begin, end in extents)
    return Segments(buffers, which.astype(np.int64), offset - first[which], length), found
