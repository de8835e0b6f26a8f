"""Folder: the files of a snapshot. A generation is a manifest, which names a file of arrays and segment files."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import xxhash
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as format_arrays

from obscodec.errors import ObscodecError, SnapshotError
from obscodec.segments import Ints, Segments
from obscodec.snapshots.segment_file import HEAD, Piece, read_pieces, write_streams
from obscodec.snapshots.tree import Arrays, Tree

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

FORMAT: Final = "obscodec snapshot"
VERSION: Final = 1
_SEGMENT_NBYTES: Final = 1 << 26
_MANIFEST: Final = re.compile(r"generation-(\d{8,12})-([0-9a-f]{16})\.json")
_NAMES: Final = {
    "arrays": re.compile(r"arrays-\d{8,12}\.safetensors"),
    "segment": re.compile(r"blocks-\d{8,12}-\d{4,8}\.segment"),
    "unfinished": re.compile(r"unfinished-\d{8,12}\.json"),
}
_PLAIN: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class Generation(NamedTuple):
    """What was written together.

    Attributes:
        manifest: JSON values: ``generation``, its number, and what the writer put into the head.
        tree: the state.
    """

    manifest: dict[str, Any]
    tree: Tree


class Folder:
    """The folder of a snapshot. A generation is there as soon as its manifest is, which is written last, and renamed.

    Args:
        path: the folder; the first :meth:`write` makes it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def generations(self) -> dict[int, str]:
        """The numbers of the generations, rising, and the names of their manifests.

        Raises:
            SnapshotError: there is no such folder.
        """
        names = map(_MANIFEST.fullmatch, self._names())
        return dict(sorted((int(match[1]), match[0]) for match in names if match))

    def write(self, tree: Tree, head: dict[str, Any], keep: int = 1) -> int:
        """Write another generation, then remove the oldest ones. Whatever ends this call, the last generation stays.

        Args:
            tree: the state.
            head: JSON values for the manifest.
            keep: how many generations to keep.

        Returns:
            The number of the new generation.

        Raises:
            SnapshotError: the folder has other files, or another process writes to it.
            OSError: the disk refused; the generation is not there.
        """
        self._make()
        with self._locked():
            before = self.generations()
            self._remove_all_but(before.values())
            number = 1 + max(map(_number, filter(_is_ours, self._names())), default=0)
            segments, index = self._write_segments(number, tree.streams)
            manifest = {
                "format": FORMAT,
                "version": VERSION,
                **head,
                "generation": number,
                "values": tree.values,
                "streams": [*tree.streams],
                "arrays": self._write_arrays(number, {**tree.arrays, **index}),
                "segments": segments,
            }
            self._write_manifest(number, manifest)
            self._remove_all_but([*self.generations().values()][-keep:])
        return number

    def read(self, generation: int | None = None) -> Generation:
        """A generation, the last one for None.

        Raises:
            SnapshotError: there is no such generation, or it is damaged, or of a newer version.
        """
        known = self.generations()
        if not known or (generation is not None and generation not in known):
            wanted = "snapshot" if generation is None else f"generation {generation}"
            raise SnapshotError(f"{self.path} has no {wanted}, only generations {[*known] or '(none)'}")
        name = known[max(known) if generation is None else generation]
        manifest = self._read_manifest(name)
        try:
            arrays = self._read_arrays(manifest["arrays"])
            if len({segment["file"] for segment in manifest["segments"]}) < len(manifest["segments"]):
                raise SnapshotError(f"{self.path / name} names a file twice")
            pieces = [self._read_segment(segment) for segment in manifest["segments"]]
            streams = {of: _found(of, arrays, pieces) for of in manifest["streams"]}
            return Generation(manifest, Tree(manifest["values"], arrays, streams))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, ObscodecError):
                raise
            raise SnapshotError(f"{self.path / name} is no manifest: {type(error).__name__}: {error}") from error

    def _make(self) -> None:
        if not self.path.exists():
            self.path.mkdir(parents=True, exist_ok=True)
        others = [name for name in self._names() if not _is_ours(name)]
        if others and not self.generations():
            raise SnapshotError(f"{self.path} has other files, such as {others[0]!r}: name a new or an empty folder")

    def _names(self) -> list[str]:
        try:
            return [file.name for file in self.path.iterdir()]
        except OSError as error:
            raise SnapshotError(f"{self.path} is no folder with a snapshot: {error.strerror}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """A context in which no other process writes to the folder; the system ends it for a process that is killed."""
        if fcntl is None:
            yield
            return
        folder = os.open(self.path, os.O_RDONLY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SnapshotError(f"{self.path} is being written by somebody else: use another folder") from None
            yield
        finally:
            os.close(folder)

    def _write_segments(
        self, number: int, streams: dict[str, Segments]
    ) -> tuple[list[dict[str, Any]], dict[str, Ints]]:
        """Write all streams; what the manifest says of the files, and arrays that tell where each stream is."""
        files: list[dict[str, Any]] = []
        index: dict[str, Ints] = {}
        for name, of in streams.items():
            order = np.lexsort((of.offsets, of.which))  # as they lie in memory
            where = np.empty((3, len(of)), np.int64)
            where[2] = of.lengths
            ends = np.cumsum(of.lengths[order])
            first = 0
            while first < len(of):
                begin = int(ends[first] - of.lengths[order[first]])
                last = max(first + 1, int(np.searchsorted(ends, begin + _SEGMENT_NBYTES, side="right")))
                at = order[first:last]
                file_name = f"blocks-{number:08}-{len(files):04}.segment"
                with self._new_file(file_name) as file:
                    file.write(HEAD)
                    where[0, at], where[1, at] = len(files), write_streams(file, of.take(at))
                    nbytes = file.tell()
                files.append({"file": file_name, "nbytes": nbytes})
                first = last
            index |= {f"{name}/{column}": where[k] for k, column in enumerate(("file", "offset", "length"))}
        return files, index

    def _write_arrays(self, number: int, arrays: Arrays) -> dict[str, Any]:
        name, content = f"arrays-{number:08}.safetensors", format_arrays(arrays)
        with self._new_file(name) as file:
            file.write(content)
        return {"file": name, "nbytes": len(content), "xxh3": xxhash.xxh3_64_hexdigest(content)}

    def _write_manifest(self, number: int, manifest: dict[str, Any]) -> None:
        content = json.dumps(manifest, indent=1, allow_nan=False).encode()
        unfinished = f"unfinished-{number:08}.json"
        with self._new_file(unfinished) as file:
            file.write(content)
        self._sync()  # the names of the other files
        name = f"generation-{number:08}-{xxhash.xxh3_64_hexdigest(content)}.json"
        (self.path / unfinished).replace(self.path / name)
        self._sync()

    @contextmanager
    def _new_file(self, name: str) -> Iterator[BinaryIO]:
        """A new file, which is on the disk when the context ends."""
        with (self.path / name).open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def _sync(self) -> None:
        """Have the names of files be on the disk, where a system can do that."""
        if os.name == "posix":
            folder = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _remove_all_but(self, manifests: Iterable[str]) -> None:
        """Remove the files that no manifest of these names needs, and what a killed writer left."""
        needed = set(manifests)
        try:
            for manifest in map(self._read_manifest, list(needed)):
                needed |= {manifest["arrays"]["file"], *(segment["file"] for segment in manifest["segments"])}
        except (SnapshotError, LookupError, TypeError):
            return  # nobody knows what a damaged one needs
        for name in sorted(self._names(), key=lambda name: not _MANIFEST.fullmatch(name)):  # manifests first
            if _is_ours(name) and name not in needed:
                with suppress(OSError):  # the next writer tries again
                    (self.path / name).unlink()

    def _read_manifest(self, name: str) -> dict[str, Any]:
        match = _MANIFEST.fullmatch(name)
        assert match is not None
        with self._opened(name) as file:
            content = file.read()
        if xxhash.xxh3_64_hexdigest(content) != match[2]:
            raise SnapshotError(f"{self.path / name} is damaged: load another generation, {[*self.generations()]}")
        try:
            manifest = json.loads(content, parse_constant=_no_number)
            if manifest["format"] != FORMAT or type(manifest["version"]) is not int:
                raise ValueError(f"its format is {manifest['format']!r}")
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise SnapshotError(f"{self.path / name} is no manifest of a snapshot: {error}") from error
        if manifest["version"] > VERSION:
            raise SnapshotError(
                f"{self.path / name} has version {manifest['version']} of the format, this obscodec reads up to "
                f"{VERSION}: update obscodec"
            )
        return dict(manifest)

    def _read_arrays(self, about: dict[str, Any]) -> Arrays:
        name = _checked_name(about["file"], "arrays")
        with self._opened(name) as file:
            content = file.read(about["nbytes"] + 1) if os.fstat(file.fileno()).st_size == about["nbytes"] else b""
        if xxhash.xxh3_64_hexdigest(content) != about["xxh3"]:
            raise SnapshotError(f"{self.path / name} is damaged: it has other bytes than when it was written")
        try:
            return dict(parse_arrays(content))
        except Exception as error:  # safetensors raises an error of its own, which no other class is
            raise SnapshotError(f"{self.path / name} has no arrays: {error}") from error

    def _read_segment(self, about: dict[str, Any]) -> list[Piece]:
        name = _checked_name(about["file"], "segment")
        with self._opened(name) as file:
            return read_pieces(file, str(self.path / name), about["nbytes"])

    @contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO]:
        """A file of the folder, which is no link to elsewhere and no device."""
        try:
            descriptor = os.open(self.path / name, os.O_RDONLY | _PLAIN)
        except OSError as error:
            raise SnapshotError(f"{self.path / name} can't be opened: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise SnapshotError(f"{self.path / name} is no file")
        with os.fdopen(descriptor, "rb") as file:
            yield file


def _found(name: str, arrays: Arrays, files: list[list[Piece]]) -> Segments:
    """Streams in the pieces of segment files, by the arrays that tell where they are."""
    columns = [arrays.pop(f"{name}/{column}") for column in ("file", "offset", "length")]
    if any(column.dtype != np.int64 or column.ndim != 1 or len(column) != len(columns[0]) for column in columns):
        raise SnapshotError(f"the places of {name} are no whole numbers, or not as many")
    number, offset, length = columns
    pieces = [(k, piece) for k, of_file in enumerate(files) for piece in of_file]
    begins = np.array([(k << 40) + piece.begin for k, piece in pieces], np.int64)
    sizes = np.array([len(piece.content) for _, piece in pieces], np.int64)
    if len(number) == 0:
        return Segments((), number, offset, length)
    inside = (number >= 0) & (number < len(files)) & (offset >= 0) & (offset < 1 << 40) & (length >= 0)
    if not inside.all() or not len(pieces):
        raise SnapshotError(f"streams of {name} lie outside of the files")
    which = np.searchsorted(begins, (number << 40) + offset, side="right") - 1
    offset = (number << 40) + offset - begins[which]
    if (which < 0).any() or (offset > sizes[which]).any() or (length > sizes[which] - offset).any():
        raise SnapshotError(f"streams of {name} lie outside of the files")
    used, which = np.unique(which, return_inverse=True)
    return Segments(tuple(pieces[k][1].content for k in used.tolist()), which.astype(np.int64), offset, length)


def _is_ours(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (_MANIFEST, *_NAMES.values()))


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _number(name: str) -> int:
    """The number of the generation that a file was written for."""
    return int(re.split("[-.]", name)[1])


def _checked_name(name: object, kind: str) -> str:
    if not isinstance(name, str) or not _NAMES[kind].fullmatch(name):
        raise SnapshotError(f"a manifest names {name!r} as a file of {kind}: no such file can be in a snapshot")
    return name
