"""Arrays in files of numpy and HDF5, and in folders of zarr, as a source of data.

Many data sets have a group for each episode: ``episode_0/observations``, ``episode_1/observations`` and so on in those
of Minari, ``data/demo_0/obs/image`` in those of robomimic. Groups that lie side by side and whose names differ only by
a number at their end are the episodes; if such groups lie in each other, the outermost are. Arrays of the same name in
all of them are one field, whose time goes on from episode to episode, in the order of the numbers.

A folder may have a file for each episode instead, with the same arrays in each.

Example:
    >>> list(fields_of(["data/demo_10/obs", "data/demo_9/obs", "data/demo_9/cameras/camera_1/image", "mean"]))
    ['data/demo_*/obs', 'data/demo_9/cameras/camera_1/image', 'mean']
"""

import re
import shlex
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from obscodec.cli.doctor.sources import (
    ARRAYS,
    HDF5,
    LEAST_ITEMS,
    ZARR,
    Array,
    Content,
    Request,
    SourceError,
    module,
    told,
)

_AXIS_0 = "Axis 0 of each array is taken for time, with its steps in their order: frames compress by what changes."
_CHANNELS, _OF_PIXELS = (1, 2, 3, 4), ("uint8", "uint16")
_EPISODES = (".npz", *HDF5)  # files in a folder that may be one for each episode
_MOST_NAMED = 3  # files, or folders, in a text
_NUMBER = re.compile(r"\d+(?=/)")  # at the end of the name of a group


def arrays_of(path: Path, request: Request) -> Content:
    """The first items of each field of a file ``.npy``, ``.npz`` or of HDF5, or a folder of zarr."""
    if path.suffix == ".npy":
        return _first_of({path.stem: np.load(path, mmap_mode="r")}, [path.stem], request)
    with ExitStack() as opened:
        if path.suffix == ".npz":
            if not zipfile.is_zipfile(path):
                raise SourceError(f"{path} is damaged, or was never an archive of arrays, as numpy.savez writes them")
            archive = opened.enter_context(np.load(path))
            return _first_of(archive, archive.files, replace(request, source=str(path)))
        if path.is_file():
            file = opened.enter_context(module("h5py").File(path, "r"))
            names: list[str] = []
            file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
            return _first_of(file, names, request)
        array_or_group = module("zarr").open(str(path), mode="r")
        if hasattr(array_or_group, "shape"):
            return _first_of({"array": array_or_group}, ["array"], request)
        return _first_of(array_or_group, list(_names_of_zarr("", array_or_group)), request)


def arrays_in(folder: Path, request: Request) -> Content:
    """The first items of each field of the files in a folder, which have an episode each, with the same arrays.

    Of several kinds of files, those of which there are most are read.
    """
    files = [file for file in folder.iterdir() if file.is_file()]
    most = max(([file for file in files if file.suffix == suffix] for suffix in _EPISODES), key=len)
    if not most:
        raise SourceError(_nothing_in(folder))
    order = sorted(most, key=lambda file: _in_order(file.name))
    parts, left_out, said, n_read, n_files = dict[str, list[Array]](), dict[str, str](), list[str](), 0, 0
    while n_files < len(order) and n_read < request.n:
        file, n_files = order[n_files], n_files + 1
        try:
            found = arrays_of(file, replace(request, n=request.n - n_read))
        except SourceError:
            raise
        except Exception as error:  # of numpy or h5py
            raise SourceError(f"{file} can't be read: {told(error)}") from error
        if n_files == 1:
            parts, said = {name: [array] for name, array in found.items.items()}, [*found.presumed]
        refused = _add_to(parts, found.items, f"{order[0].name} and {file.name}") if n_files > 1 else {}
        left_out = {**refused, **found.left_out, **left_out}
        n_read += max((len(array) for array in found.items.values() if array.ndim), default=request.n)
    items = {name: of[0] if len(of) == 1 else np.concatenate(of) for name, of in parts.items() if name not in left_out}
    of_all = f"{n_files:,} of {len(order):,} files *{order[0].suffix}, {order[0].name} to {order[n_files - 1].name},"
    taken = f"{of_all} are taken for episodes, one after the other."
    return Content(items, left_out, (taken, *said), has_episodes=True)


def _add_to(parts: dict[str, list[Array]], items: Mapping[str, Array], files: str) -> dict[str, str]:
    """Add the arrays of another file to those of the first one; why some can't be, by name."""
    refused = {}
    for name in {*parts, *items}:
        if name not in parts or name not in items:
            refused[name] = f"it is not in both {files}, give all files the same arrays"
            continue
        one, other = parts[name][0], items[name]
        if (one.dtype, one.shape[1:], one.ndim) != (other.dtype, other.shape[1:], other.ndim):
            kinds = " and ".join(f"{of.dtype} {of.shape[1:]}" for of in (one, other))
            refused[name] = f"its items are {kinds} in {files}, give all the same"
        elif one.ndim:  # else it is one value, which is said later
            parts[name].append(other)
    return refused


def _nothing_in(folder: Path) -> str:
    """What was looked for in a folder, what is there, and what to type, if something there could be read."""
    there = sorted(folder.iterdir(), key=lambda path: path.name)
    files, folders = [path for path in there if path.is_file()], [path for path in there if path.is_dir()]
    found = " and ".join(
        f"{len(paths)} {what}{'s' * (len(paths) > 1)} ({', '.join(path.name for path in paths[:_MOST_NAMED])}"
        f"{', ...' * (len(paths) > _MOST_NAMED)})"
        for what, paths in (("file", files), ("folder", folders))
        if paths
    )
    text = (
        f"{folder} has no snapshot (generation-*.json, in it or up to three folders deeper), no zarr "
        f"({', '.join(ZARR)}) and no episodes (*{', *'.join(_EPISODES)}): it has {found or 'nothing'}"
    )
    of = [*(path for path in files if path.suffix in ARRAYS), *folders]
    return f"{text}. Name one of them, as in: python -m obscodec doctor {shlex.quote(str(of[0]))}" if of else text


def _in_order(name: str) -> list[tuple[int, str]]:
    """A key that sorts the numbers in names by their size."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def fields_of(names: Iterable[str]) -> dict[str, list[str]]:
    """The fields of a file: of each the names of its arrays, one for each episode.

    Args:
        names: of the arrays, with a slash between groups.
    """
    names = list(dict.fromkeys(names))  # an archive may have two arrays of one name
    numbers: dict[str, set[str]] = {}  # of groups that may be episodes, by what is before the number
    for name in names:
        for group in _NUMBER.finditer(name):
            numbers.setdefault(name[: group.start()], set()).add(group[0])
    fields: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        episodes = [of for of in _NUMBER.finditer(name) if len(numbers[name[: of.start()]]) > 1]
        number, begin, end = (int(episodes[0][0]), *episodes[0].span()) if episodes else (0, 0, 0)
        field = f"{name[:begin]}*{name[end:]}" if episodes else name
        fields.setdefault(field, []).append((number, name))
    return {
        field if len(arrays) > 1 else arrays[0][1]: [name for _, name in sorted(arrays)]
        for field, arrays in fields.items()
    }


def _first_of(arrays: Any, names: Iterable[str], request: Request) -> Content:
    """The first items of the fields of ``arrays``, a mapping from names to arrays that read slices."""
    items, left_out, episodes, pictures = dict[str, Array](), dict[str, str](), dict[str, int](), list[str]()
    for field, of_field in fields_of(names).items():
        try:
            items[field] = _joined(arrays, of_field, request)
        except Exception as error:  # of numpy, h5py or zarr: other arrays may be readable
            left_out[field] = str(error) if isinstance(error, ValueError) else told(error)
            if isinstance(error, (zipfile.BadZipFile, zlib.error, EOFError)):
                left_out[field] = f"its bytes in {request.source} are damaged: restore that file"
            continue
        pictures += _of_one_image(field, items[field])
        if len(of_field) > 1:
            groups = field[: field.index("*") + 1]
            episodes[groups] = max(episodes.get(groups, 0), len(of_field))
    taken = [f"The {n} groups {groups} are taken for episodes, one after the other." for groups, n in episodes.items()]
    return Content(items, left_out, (*taken, _AXIS_0, *pictures), has_episodes=bool(episodes))


def _of_one_image(field: str, array: Array) -> list[str]:
    """What to say of an array with the shape of a picture, which many steps of vectors have, too."""
    sides = array.shape[:-1] if array.ndim == 3 and array.shape[-1] in _CHANNELS else array.shape
    if array.dtype not in _OF_PIXELS or len(sides) != 2 or min(sides) < LEAST_ITEMS:
        return []
    n, *item = array.shape
    taken = f"{field} is taken for {n:,} steps of {array.dtype}{item}: if it is one image, or time is another axis"
    return [f"{taken}, save an array with time first, as np.stack(images) and np.moveaxis(array, axis, 0) make it."]


def _joined(arrays: Any, names: list[str], request: Request) -> Array:
    """The first items of arrays that follow each other in time; of one that can't be tried, its dtype."""
    parts: list[Array] = []
    for name in names:
        array = arrays[name]
        if not array.shape or array.dtype == object:
            return np.empty((0,) if array.shape else (), array.dtype)
        parts.append(np.asarray(array[: request.n - sum(map(len, parts))]))
        if parts[-1].dtype != parts[0].dtype or parts[-1].shape[1:] != parts[0].shape[1:]:
            one, other = (f"{of.dtype} {of.shape[1:]}" for of in (parts[0], parts[-1]))
            raise ValueError(f"its items are {one} in {names[0]} and {other} in {name}, give all the same")
        request.advance(len(parts[-1]))
        if sum(map(len, parts)) == request.n:
            break
    return np.concatenate(parts)


def _names_of_zarr(name: str, item: Any) -> Iterable[str]:
    """The names of the arrays in a group."""
    if hasattr(item, "shape"):
        yield name
        return
    for key in sorted(item.keys()):
        yield from _names_of_zarr(f"{name}/{key}" if name else key, item[key])
