"""Folder: the files of a snapshot. A generation is a manifest, which names a file of arrays and segment files."""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Final

import xxhash

from obscodec.arguments import check_kind
from obscodec.errors import SnapshotError
from obscodec.runtime import folder_path, patiently, sync

FORMAT: Final = "obscodec snapshot"
VERSION: Final = 1
_MOST_LEVELS: Final = 3  # of folders that training frameworks put around a snapshot
NO_NUMBER: Final = 10**12  # of a generation, as the numbers from here on
_MANIFEST: Final = re.compile(r"generation-(\d{8,12})-([0-9a-f]{16})\.json")
_NAMES: Final = {
    "arrays": re.compile(r"arrays-\d{8,12}\.safetensors"),
    "segment": re.compile(r"(blocks|pages)-\d{8,12}-\d{4,8}\.segment"),
    "unfinished": re.compile(r"unfinished-\d{8,12}\.json"),
}
_OF_SYSTEM: Final = {".ds_store", "._.ds_store", "desktop.ini", "thumbs.db"}  # macOS and Windows write them anywhere
_PLAIN: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

Manifest = dict[str, Any]  # JSON values


class NewerVersion(SnapshotError):
    """A manifest is of a newer version of the format."""


class Folder:
    """The folder of a snapshot. A generation is there once its manifest is, which is written last, and renamed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        check_kind("path", path, (str, os.PathLike), "a folder, such as 'checkpoints'")
        self.path = folder_path(path)

    def generations(self) -> dict[int, str]:
        """The numbers of the generations, rising, and the names of their manifests; an error if there is no folder."""
        names = map(_MANIFEST.fullmatch, self._names())
        return dict(sorted((int(match[1]), match[0]) for match in names if match))

    def highest_number(self) -> int:
        """The highest number of a generation that a file was written for, 0 for none."""
        return max(map(_number, filter(_is_ours, self._names())), default=0)

    def make(self) -> None:
        """Make the folder, if it is not there; an error if it is a file, or has other files."""
        if self.path.is_file():
            raise SnapshotError(f"{self.path} is a file: name a new or an empty folder")
        if not self.path.exists():
            self.path.mkdir(parents=True, exist_ok=True)
        others = [name for name in self._names() if not _is_ours(name) and name.lower() not in _OF_SYSTEM]
        if others and not self.generations():
            raise SnapshotError(f"{self.path} has other files, such as {others[0]!r}: name a new or an empty folder")

    @contextmanager
    def new_file(self, name: str) -> Iterator[BinaryIO]:
        """A new file, which is on the disk when the context ends."""
        with (self.path / name).open("xb") as file:
            yield file
            file.flush()
            sync(file.fileno())

    def new_segment(self, kind: str, number: int) -> str:
        """A name for another segment file of a generation, which no file has."""
        names = (f"{kind}-{number:08}-{k:04}.segment" for k in count())
        return next(name for name in names if not (self.path / name).exists())

    def write_manifest(self, number: int, manifest: Manifest) -> str:
        """Write the manifest of a generation whose files are on the disk; its name."""
        content = json.dumps(manifest, indent=1, allow_nan=False).encode()
        unfinished = f"unfinished-{number:08}.json"
        with self.new_file(unfinished) as file:
            file.write(content)
        self._sync()  # the names of the other files
        name = f"generation-{number:08}-{xxhash.xxh3_64_hexdigest(content)}.json"
        patiently((self.path / unfinished).replace, self.path / name)
        self._sync()
        return name

    def remove_all_but(self, manifests: Iterable[str]) -> None:
        """Remove the files that no manifest of these names needs, and what a killed writer left.

        What the system refuses to remove, as Windows does while a file is open or mapped, is left for the next writer.
        """
        needed = set(manifests)
        try:
            for manifest in map(self.read_manifest, list(needed)):
                needed |= {manifest["arrays"]["file"], *(of["file"] for of in manifest["segments"] if of)}
        except (SnapshotError, LookupError, TypeError):
            return  # nobody knows what a damaged one needs
        for name in sorted(self._names(), key=lambda name: not _MANIFEST.fullmatch(name)):  # manifests first
            if _is_ours(name) and name not in needed:
                try:
                    (self.path / name).unlink(missing_ok=True)
                except OSError:
                    if _MANIFEST.fullmatch(name):
                        return  # it needs its files

    def remove(self, number: int) -> None:
        """Remove all files that were written for a generation, if there are any; its manifest first.

        A segment file that is mapped stays, on Windows: :meth:`new_segment` leaves its name out.
        """
        for name in sorted(filter(_is_ours, self._names()), key=lambda name: not _MANIFEST.fullmatch(name)):
            if _number(name) == number and _NAMES["segment"].fullmatch(name):
                with suppress(PermissionError):
                    (self.path / name).unlink(missing_ok=True)
            elif _number(name) == number:
                patiently((self.path / name).unlink, True)  # missing_ok

    def read_manifest(self, name: str) -> Manifest:
        """A manifest that is intact, of the generation that its name says, and of no newer version."""
        match = _MANIFEST.fullmatch(name)
        assert match is not None
        with self.opened(name) as file:
            content = file.read()
        if xxhash.xxh3_64_hexdigest(content) != match[2]:
            others = [number for number in self.generations() if number != int(match[1])]
            which = others or "(there is none)"
            raise SnapshotError(f"{self.path / name} is damaged: load another generation, {which}")
        try:
            manifest = json.loads(content, parse_constant=_no_number)
            if manifest["format"] != FORMAT:
                raise ValueError(f"its format is {manifest['format']!r}")
            if type(manifest["version"]) is not int or manifest["version"] < 1:
                raise ValueError(f"its version is {manifest['version']!r}, the first one was 1")
            if manifest["generation"] != int(match[1]):
                raise ValueError(f"it is of generation {manifest['generation']!r}, and somebody has renamed it")
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise SnapshotError(f"{self.path / name} is no manifest of a snapshot: {error}") from error
        if manifest["version"] > VERSION:
            raise NewerVersion(
                f"{self.path / name} has version {manifest['version']} of the format, this obscodec reads up to "
                f"{VERSION}: update obscodec"
            )
        return dict(manifest)

    @contextmanager
    def opened(self, name: str, kind: str | None = None) -> Iterator[BinaryIO]:
        """A file of the folder, which is no link to elsewhere and no device.

        A name that a manifest has must be one of its ``kind``, ``"arrays"`` or ``"segment"``.
        """
        if kind is not None and not (isinstance(name, str) and _NAMES[kind].fullmatch(name)):
            raise SnapshotError(f"a manifest names {name!r} as a file of {kind}: no such file can be in a snapshot")
        try:
            descriptor = os.open(self.path / name, os.O_RDONLY | _PLAIN)
        except OSError as error:
            raise SnapshotError(f"{self.path / name} can't be opened: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise SnapshotError(f"{self.path / name} is no file")
        with os.fdopen(descriptor, "rb") as file:
            yield file

    def _names(self) -> list[str]:
        try:
            return [file.name for file in self.path.iterdir()]
        except OSError as error:
            hint = ", and not what obscodec.save wrote, which is a folder" if self.path.is_file() else ""
            raise SnapshotError(f"{self.path} is no folder with a snapshot: {error.strerror}{hint}") from error

    def _sync(self) -> None:
        """Have the names of files be on the disk, where a system can do that."""
        if os.name == "posix":
            folder = os.open(self.path, os.O_RDONLY)
            try:
                sync(folder)
            finally:
                os.close(folder)


def find_snapshot(path: str | os.PathLike[str]) -> Path | None:
    """The folder of the one snapshot that a folder is, or that lies in it, as in a checkpoint of TorchRL."""
    for level in range(_MOST_LEVELS + 1):
        found = sorted({file.parent for file in Path(path).glob("*/" * level + "generation-*.json")})
        if len(found) > 1:
            raise SnapshotError(f"{path} has several snapshots, name one: {', '.join(map(str, found))}")
        if found:
            return found[0]
    return None


def folder_nbytes(path: str | os.PathLike[str]) -> int:
    """Bytes of all files in a folder, 0 if there is none."""
    with suppress(OSError):
        return sum(file.stat().st_size for file in Path(path).iterdir())
    return 0


def hash_of(path: Path) -> str:
    """The XXH3-128 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def _is_ours(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (_MANIFEST, *_NAMES.values()))


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _number(name: str) -> int:
    """The number of the generation that a file was written for."""
    return int(re.split("[-.]", name)[1])
