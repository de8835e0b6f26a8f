"""Files beside a snapshot: what others write for a generation, such as the model that was trained with a buffer.

The manifest has their hashes, so that nobody goes on with the model of one training and the buffer of another.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import xxhash

from obscodec.errors import SnapshotError
from obscodec.snapshots.folder import Folder

Files = Mapping[str, str | os.PathLike[str]]  # by what each is, such as "model"
_PIECE_NBYTES: Final = 1 << 20


def check_beside(path: str | os.PathLike[str], generation: int, files: Files) -> None:
    """Make sure that files are those that were written with a generation, all of them and no others.

    Raises:
        SnapshotError: one is damaged, missing, or of another generation or training; or there is no such generation.
    """
    folder = Folder(path)
    there = folder.generations()
    if generation not in there:
        raise SnapshotError(f"{folder.path} has no generation {generation}, only generations {[*there]}")
    written = folder.read_manifest(there[generation]).get("beside")
    written = written if isinstance(written, dict) else {}
    if missing := sorted(written.keys() - files.keys()):
        raise SnapshotError(
            f"generation {generation} in {folder.path} was written with a {missing[0]}, which is missing"
        )
    for name, file in files.items():
        try:
            is_same = hash_of(Path(file)) == written.get(name)
        except OSError as error:
            raise SnapshotError(f"{file} can't be read: {error.strerror}") from error
        if not is_same:
            raise SnapshotError(
                f"{file} is damaged, or was not written with generation {generation} in {folder.path}: restore the one "
                "that was"
            )


def hash_of(path: Path) -> str:
    """The XXH3-128 of a file, in hexadecimal."""
    hashed = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_NBYTES):
            hashed.update(piece)
    return hashed.hexdigest()
