"""Layouts: which files of a folder have an episode each, and which arrays or groups of a file.

Groups that lie side by side and whose names differ only by a number at their end, as ``episode_0`` of Minari and
``data/demo_0`` of robomimic, are episodes; if such groups lie in each other, the outermost are. Arrays of the same name
in all of them are one field.
"""

import re
import shlex
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from obscodec.errors import ObscodecError, SourceError
from obscodec.installing import optional
from obscodec.recordings.stored import MINARI, Stored, told

_HDF5, _ZARR = (".hdf5", ".h5", ".hdf"), ("zarr.json", ".zgroup", ".zarray")
_EPISODES = (".npz", *_HDF5)  # files in a folder that may be one for each episode
ENDINGS = (".npy", *_EPISODES, ".zarr", ".zarr.zip")
FIRST = "is_first"  # true where an episode begins
_NUMBER = re.compile(r"(?<!\d)\d+(?=/)")  # at the end of the name of a group
_WORDS = ("demo_", "episode_", "traj_")  # of groups that are episodes even if there is one
_ENDS = "meta/episode_ends"
_MOST_NAMED = 3  # files, or folders, in a text
Episodes = dict[str, dict[str, str]]


class Part(NamedTuple):
    """An episode, or the arrays beside the episodes of a file.

    Its fields have the names that they have in all episodes. ``kind`` says what has an episode each, of which there are
    ``total``, and is "" if nothing tells of episodes. If it ``goes_on``, the next part may begin inside of an episode.
    """

    name: str
    fields: dict[str, Stored]
    kind: str = ""
    total: int = 1
    is_beside: bool = False
    goes_on: bool = False


def parts_in(path: Path) -> Iterator[Part]:
    """What is in a file or folder, whose files are opened one after the other.

    Raises:
        SourceError: there is nothing to read; while the parts are read: a file is damaged, or has no arrays.
        MissingPackage: while they are read: h5py or zarr is not installed.
    """
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    if not path.is_dir() and not (path.is_file() and path.name.endswith(ENDINGS)):
        raise SourceError(f"{path} is none of the files that can be read, *{', *'.join(ENDINGS)}")
    if path.is_file() or any((path / name).exists() for name in _ZARR):
        return _parts_of(path)
    if (file := path / "data" / MINARI).is_file():
        return _parts_of(file)
    files = [file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")]
    most = max(([file for file in files if file.suffix == suffix] for suffix in _EPISODES), key=len)
    if not most:
        raise SourceError(_nothing_in(path))
    return _parts_of_files(sorted(most, key=lambda file: _in_order(file.name)))


def _parts_of_files(files: list[Path]) -> Iterator[Part]:
    for file, goes_on in _in_succession(files):
        for part in _parts_of(file, any_words=len(files) == 1):
            if part.kind or part.is_beside:
                yield part
            else:
                yield Part(file.name, part.fields, f"files *{file.suffix}", len(files), goes_on=goes_on)


def _in_succession(files: list[Path]) -> Iterator[tuple[Path, bool]]:
    """The files, and whether the next one goes on with the steps of each: chunks, time-id-successor-length."""
    names = [file.stem.split("-") for file in files]
    rest = {of[1]: file for file, of in zip(files, names, strict=True) if len(of) == 4}
    if len(rest) < len(files):
        yield from ((file, False) for file in files)
        return
    after = {of[1]: of[2] for of in names}
    for chunk in sorted(after, key=set(after.values()).__contains__):  # those that follow none are the first
        while file := rest.pop(chunk, None):
            chunk = after[chunk]
            yield file, chunk in rest


def _parts_of(path: Path, *, any_words: bool = True) -> Iterator[Part]:
    with ExitStack() as opened:
        try:
            content, found = _opened(path, opened)
            names = list(found)
            bounds = _bounds(content, names) if _ENDS in names else None
        except ObscodecError:
            raise
        except Exception as error:  # of numpy, h5py or zarr
            raise SourceError(f"{path} can't be read: {told(error)}") from error
        if not names:
            raise SourceError(f"{path} has no arrays")
        if bounds:
            for begin, end in pairwise(bounds):
                steps = {of: Stored(path, content, of, begin, end) for of in names if of.startswith("data/")}
                yield Part(f"{path.name}[{begin}:{end}]", steps, f"slices by {_ENDS}", len(bounds) - 1)
            return
        beside, episodes = episodes_of(names, any_words=any_words)
        if beside:
            yield Part(path.name, {of: Stored(path, content, of) for of in beside}, is_beside=bool(episodes))
        for group, of_numbers in episodes.items():
            for number, named in sorted(of_numbers.items(), key=lambda item: (_in_order(item[0]), item[0])):
                fields = {field: Stored(path, content, name) for field, name in named.items()}
                yield Part(f"{path.name}/{group}{number}", fields, f"groups {path.name}/{group}*", len(of_numbers))


def episodes_of(names: list[str], *, any_words: bool = True) -> tuple[list[str], dict[str, Episodes]]:
    """The arrays beside the episodes of a file, and by group the episodes: by number, the arrays of the fields.

    Without ``any_words``, groups are called as ``demo_0``, ``episode_0`` or ``traj_0``; else there are two or more.

    Example:
        >>> episodes_of(["demo_10/obs", "demo_9/obs", "mean"])
        (['mean'], {'demo_': {'10': {'demo_*/obs': 'demo_10/obs'}, '9': {'demo_*/obs': 'demo_9/obs'}}})
    """
    numbers: dict[str, set[str]] = {}  # of groups that may be episodes, by what is before the number
    for name in names:
        for group in _NUMBER.finditer(name):
            numbers.setdefault(name[: group.start()], set()).add(group[0])
    groups = {of for of, found in numbers.items() if (any_words and len(found) > 1) or of.split("/")[-1] in _WORDS}
    beside, episodes = list[str](), dict[str, Episodes]()
    for name in names:
        for group in _NUMBER.finditer(name):
            if (before := name[: group.start()]) in groups:
                of_number = episodes.setdefault(before, {}).setdefault(group[0], {})
                of_number[f"{before}*{name[group.end() :]}"] = name
                break
        else:
            beside.append(name)
    return beside, episodes


def _in_order(name: str) -> list[tuple[int, str]]:
    """A key that sorts the numbers in names by their size."""
    parts = [part.lstrip("0") if k % 2 else part for k, part in enumerate(re.split(r"(\d+)", name))]
    return [(len(part) if k % 2 else -1, part) for k, part in enumerate(parts)]


def _opened(path: Path, opened: ExitStack) -> tuple[Any, Iterable[str]]:
    """A mapping from names to arrays that read slices, and these names."""
    if path.suffix == ".npy":
        return {path.stem: np.load(path, mmap_mode="r")}, [path.stem]
    if path.suffix in (".npz", ".zip") and not zipfile.is_zipfile(path):
        raise SourceError(f"{path} is damaged, or was never an archive of arrays, as numpy.savez and zarr write them")
    if path.suffix == ".npz":
        archive = opened.enter_context(np.load(path))
        return archive, archive.files
    if path.suffix in _HDF5:
        file = opened.enter_context(optional("h5py").File(path, "r"))
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
        return file, names
    zarr = optional("zarr")
    store: Any = zarr.storage.ZipStore(str(path), mode="r") if path.is_file() else str(path)
    array_or_group = zarr.open(store, mode="r")
    if path.is_file():
        opened.callback(store.close)
    if hasattr(array_or_group, "shape"):
        return {"array": array_or_group}, _names_of_zarr("array", array_or_group)
    return array_or_group, _names_of_zarr("", array_or_group)


def _names_of_zarr(name: str, item: Any) -> Iterator[str]:
    """The names of the arrays in a group."""
    if hasattr(item, "shape"):
        of = getattr(item, "metadata", item)  # zarr 2 has no metadata
        codecs = [*(getattr(of, "filters", None) or ()), getattr(of, "compressor", None)]
        if any(getattr(codec, "codec_id", "") == "pickle" for codec in codecs):  # older numcodecs load it
            raise ValueError(f"{name} is stored with pickle, which may run any program: save numbers")
        yield name
        return
    for key in sorted(item.keys()):
        yield from _names_of_zarr(f"{name}/{key}" if name else key, item[key])


def _bounds(content: Any, names: list[str]) -> list[int]:
    """Where the episodes of a buffer of diffusion_policy begin, and where the last one ends."""
    ends = np.asarray(content[_ENDS][:])
    bounds: list[int] = [0, *ends.tolist()]
    lengths = {name: content[name].shape[0] for name in names if name.startswith("data/")}
    if ends.dtype.kind not in "iu" or sorted(bounds) != bounds or {*lengths.values()} - {bounds[-1]}:
        raise ValueError(f"{_ENDS} must ascend to the length of the arrays, {lengths}, got {ends.dtype} {ends}")
    return bounds


def _nothing_in(folder: Path) -> str:
    """What was looked for in a folder, what is there, and what to name, if something there could be read."""
    there = sorted(f"{path.name}{'/' * path.is_dir()}" for path in folder.iterdir())
    named = f"({', '.join(there[:_MOST_NAMED])}{', ...' * (len(there) > _MOST_NAMED)})"
    text = (
        f"{folder} has no zarr ({', '.join(_ZARR)}), no data set of Minari (data/{MINARI}) and no episodes "
        f"(*{', *'.join(_EPISODES)}): it {f'has {len(there)} files and folders {named}' if there else 'is empty'}"
    )
    of = [name for ending in (ENDINGS, "/") for name in there if name.endswith(ending)]
    return f"{text}. Name one of them, such as {shlex.quote(str(folder / of[0]))}" if of else text
