"""Sources: where the doctor gets its data from."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.errors import DTypeError
from obscodec.layout import storable
from obscodec.snapshots import find_snapshot, first_items

Array = npt.NDArray[np.generic]
AXIS_0 = "Axis 0 of each array must be time, with its steps in their order: frames compress by what changes."
Advance = Callable[[int], None]
_INSTALL = {"ale_py": "ale-py", "gymnasium": "gymnasium", "h5py": "h5py", "minari": "minari", "zarr": "zarr"}
_HDF5, _ZARR = (".hdf5", ".h5", ".hdf"), ("zarr.json", ".zgroup", ".zarray")


class SourceError(Exception):
    """A source can't be read; the text says what to do."""


@dataclass(frozen=True)
class Request:
    """What to read.

    Attributes:
        source: a path, an id of an environment, or ``minari:`` and the id of a data set.
        n: the most items to read of each field, or steps to take.
        wrappers: of an environment, the innermost first.
        stack: how many frames to stack, 1 for none.
        seed: of the environment.
        advance: called with a number of items as they are read.
    """

    source: str
    n: int
    wrappers: tuple[str, ...]
    stack: int
    seed: int
    advance: Advance


def read(request: Request) -> dict[str, Array]:
    """The fields of a source, ``[n, *shape]`` in the order of time, by name.

    Raises:
        SourceError: it can't be read.
    """
    path = Path(request.source)
    if request.source.startswith("minari:"):
        found = _from_minari(request)
    elif path.exists():
        if request.wrappers or request.stack > 1:
            raise SourceError(f"{path} is data: --wrapper and --stack are for environments")
        found = _from_path(path, request)
    elif path.suffix in (".npy", ".npz", ".zarr", *_HDF5):
        raise SourceError(f"{path} does not exist")
    else:
        found = module("obscodec.cli.doctor.environments").steps_of(request)
    usable = {name: x for name, x in found.items() if x.ndim and len(x) and x[0].nbytes and _is_storable(x.dtype)}
    if not usable:
        raise SourceError(f"{request.source} has no arrays of numbers along time, {', '.join(found) or 'nothing'} only")
    return usable


def _is_storable(dtype: np.dtype[np.generic]) -> bool:
    with suppress(DTypeError):
        return bool(storable(dtype))
    return False


def has_arrays(source: str) -> bool:
    """Whether a source has arrays of which nothing says what their axes are."""
    path = Path(source)
    return path.suffix in (".npy", ".npz", *_HDF5) or _is_zarr(path)


def _is_zarr(path: Path) -> bool:
    return any((path / name).exists() for name in _ZARR)


def module(name: str) -> Any:
    """An optional package.

    Raises:
        SourceError: it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or name).partition(".")[0]
        raise SourceError(f"this source needs {missing}: pip install {_INSTALL.get(missing, missing)}") from None


def _from_path(path: Path, request: Request) -> dict[str, Array]:
    if path.is_dir():
        if _is_zarr(path):
            opened = module("zarr").open(str(path), mode="r")
            return _first_of(_arrays_of_zarr("", opened), request)
        items = first_items(find_snapshot(path), request.n)
        request.advance(max(map(len, items.values())))
        return items
    if path.suffix in (".npy", ".npz"):
        try:
            return _first_of(_arrays_of_numpy(path), request)
        except (ValueError, EOFError) as error:  # Python objects, or no file of numpy
            raise SourceError(f"{path} can't be read: {error}") from None
    if path.suffix in _HDF5:
        with module("h5py").File(path, "r") as file:
            return _first_of(_arrays_of_hdf5(file), request)
    raise SourceError(f"{path} is no .npy, .npz or .hdf5 file, and no folder of zarr or of a snapshot")


def _first_of(arrays: Any, request: Request) -> dict[str, Array]:
    """The first items of arrays ``(name, array)`` that read slices."""
    found = {}
    for name, array in arrays:
        if array.ndim:
            found[name] = np.asarray(array[: request.n])
            request.advance(len(found[name]))
    return found


def _arrays_of_numpy(path: Path) -> Iterator[tuple[str, Array]]:
    if path.suffix == ".npy":
        yield path.stem, np.load(path, mmap_mode="r")
        return
    with np.load(path) as archive:
        for name in archive.files:
            yield name, archive[name]


def _arrays_of_hdf5(file: Any) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    file.visititems(lambda name, item: found.append((name, item)) if hasattr(item, "dtype") else None)
    return found


def _arrays_of_zarr(name: str, item: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(item, "dtype"):
        yield name or "array", item
        return
    for key in sorted(item.keys()):
        yield from _arrays_of_zarr(f"{name}/{key}" if name else key, item[key])


def _from_minari(request: Request) -> dict[str, Array]:
    minari = module("minari")
    name = request.source.removeprefix("minari:")
    try:
        dataset = minari.load_dataset(name)
    except (FileNotFoundError, ValueError) as error:
        raise SourceError(f"Minari has no data set {name!r} here: minari download {name} ({error})") from None
    parts: dict[str, list[Array]] = {}
    n = 0
    for episode in dataset.iterate_episodes():
        values = {"observation": episode.observations, "action": episode.actions, "reward": episode.rewards}
        for field, array in _leaves("", values):
            parts.setdefault(field, []).append(array)
        n += len(episode.rewards)
        request.advance(len(episode.rewards))
        if n >= request.n:
            break
    return {field: np.concatenate(arrays)[: request.n] for field, arrays in parts.items()}


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), part)
    elif isinstance(value, tuple):
        yield from _leaves(name, dict(enumerate(value)))
    else:
        yield name, np.asarray(value)
