"""The steps of a saved buffer, whichever package wrote it, for programs that look into snapshots."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from obscodec.arrays import TensorArray
from obscodec.buffers import Array, RingBuffer, StoredSteps
from obscodec.errors import MissingPackage, SnapshotError
from obscodec.installing import OURS, install_command
from obscodec.runtime import temporary_folder
from obscodec.segments import Bools, Ints
from obscodec.snapshots.loading import OpenGeneration, Salvaged, load

_ENTRY_POINT_GROUP: Final = "obscodec.snapshots"
OpenedSteps = Callable[[Path, int | None, bool], AbstractContextManager[StoredSteps]]


def opened_steps(
    path: Path, generation: int | None = None, salvage: bool = False
) -> AbstractContextManager[StoredSteps]:
    """A context with the steps of a saved buffer, of its last generation for None, as they were saved.

    The whole generation is read, which finds damage. With ``salvage``, steps that have lost a tensor are listed as
    ``lost``, and read as zeros. A package with a class of its own names a function like this one, as an entry point of
    ``obscodec.snapshots`` with the name of the package.

    Raises:
        SnapshotError: the snapshot has no steps, or a file is damaged; a step may turn out to be damaged when it is
            read.
        MissingPackage: a package has written it that is not installed.
    """
    package = OpenGeneration(path, generation).written_by.partition(" ")[0]
    if package == "obscodec":
        return _of_core(path, generation, salvage)
    found = [point for point in entry_points(group=_ENTRY_POINT_GROUP) if point.name == package]
    if not found:
        command = f": {install_command(package)}" if package in OURS else ""  # a file may name anything
        raise MissingPackage(f"{path} has a snapshot of {package}, which is not installed{command}")
    return cast("OpenedSteps", found[0].load())(path, generation, salvage)


@contextmanager
def _of_core(path: Path, generation: int | None, salvage: bool) -> Iterator[StoredSteps]:
    opened = OpenGeneration(path, generation)
    with temporary_folder() as folder:
        spill = folder if opened.arguments().get("spill") else None
        made: Any = load(path, generation=generation, salvage=salvage, spill=spill, continue_episodes=True)
        saved, lost, _ = made if isinstance(made, Salvaged) else (made, np.empty((0, 2), np.int64), [])
        if isinstance(saved, RingBuffer) and len(saved):
            yield saved.stored_steps()._replace(lost=lost)
        elif isinstance(saved, TensorArray) and saved.ids.size and saved.ids.ndim:
            yield _of_array(saved)._replace(lost=_with_env(lost, saved.ids.shape[1:]))
        else:
            raise SnapshotError(f"{path} has a {opened.kind} without items in the order of time")


def _of_array(array: TensorArray) -> StoredSteps:
    """The items of an array, of which the first axis is time, and the others together the environments."""
    columns = array.reshape(len(array), -1, *array.layout.shape)
    n, n_envs = columns.ids.shape

    def read(_: str, steps: Ints, envs: Ints) -> Array:
        return columns[steps, envs]

    def scan(steps: Ints) -> tuple[Bools, Bools]:
        inside = np.ones((len(steps), n_envs), np.bool_)
        return ~inside, inside

    return StoredSteps(n, n_envs, {"array": array.layout}, read, scan)


def _with_env(lost: Ints, others: tuple[int, ...]) -> Ints:
    """``i64[m, 2]`` of the indices ``[m, ids.ndim]`` of lost items, whose further axes are numbered together."""
    if not len(lost):
        return np.empty((0, 2), np.int64)
    envs = np.ravel_multi_index(tuple(lost[:, 1:].T), others) if others else np.zeros(len(lost), np.int64)
    return np.stack([lost[:, 0], envs], axis=1)
