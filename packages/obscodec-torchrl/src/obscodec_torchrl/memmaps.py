"""Folders that TorchRL and tensordict write, as files in a state, and read with care."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import torch
from obscodec import CorruptStream
from obscodec.runtime import temporary_folder
from obscodec.state import State, part_of
from tensordict import TensorDict

META = "meta.json"  # of each tensordict


def files_of(write: Callable[[Path], object]) -> State:
    """The files, ``u8[n]``, that ``write`` writes into a new folder, by their names in it."""
    with temporary_folder() as folder:
        write(folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): np.fromfile(path, np.uint8) for path in files}


@contextmanager
def folder_of(files: Mapping[str, Any]) -> Iterator[Path]:
    """A folder with the files of :func:`files_of`, while the context lasts; CorruptStream for what is no file in it."""
    with temporary_folder() as made:
        folder = made.resolve()
        for file in files:
            path = (folder / file).resolve()
            if not path.is_relative_to(folder):
                raise CorruptStream(f"{file!r} is no name of a file in a folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            part_of(files, file, np.ndarray).tofile(path)
        yield folder


def load_memmap(folder: Path) -> TensorDict:
    """The tensordict in a folder; CorruptStream if a file is missing or too short.

    (tensordict would leave out the leaf, or write zeros into the file.)
    """
    for meta in folder.rglob(META):
        files = {unquote(path.stem): path for path in meta.parent.glob("*.memmap")}
        for key, leaf in parsed(meta).items():
            if isinstance(leaf, dict) and leaf.get("is_nested") is False:
                check_whole(files.get(key, meta.parent / f"{key}.memmap"), leaf)
    try:
        return TensorDict.load_memmap(folder)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise CorruptStream(f"the checkpoint in {folder} is damaged: {error}") from error


def check_whole(file: Path, leaf: dict[str, Any]) -> None:
    """Make sure that a file has all bytes of a tensor."""
    nbytes = math.prod(leaf["shape"]) * getattr(torch, leaf["dtype"].removeprefix("torch.")).itemsize
    found = file.stat().st_size if file.exists() else 0
    if found < nbytes:
        raise CorruptStream(f"the checkpoint is damaged: {file} has {found} of {nbytes} bytes")


def parsed(file: Path) -> dict[str, Any]:
    """The content of a JSON file; ``CorruptStream`` if it is not JSON."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise CorruptStream(f"the checkpoint is damaged: {file} is no JSON: {error}") from error
