"""Saving and loading: what is in a snapshot, and which class makes it again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final, Protocol, TypeVar

from obscodec.arguments import kind_of
from obscodec.arrays import TensorArray
from obscodec.buffers import RingBuffer
from obscodec.errors import BackendUnavailable, DTypeError, HeapFull, MissingPackage, ObscodecError, SnapshotError
from obscodec.snapshots.folder import Folder
from obscodec.snapshots.tree import flatten, unflatten
from obscodec.state import State, part_of
from obscodec.stores import Store, store_of


class Saved(Protocol):
    """What can be saved: see ``obscodec.state``."""

    def arguments(self) -> State:
        """The arguments that make an equal, empty object."""

    def state(self) -> State:
        """What the object holds."""

    def restore(self, state: State) -> None:
        """Fill this object, which is empty."""


S = TypeVar("S", bound=Saved)

# What impossible values lead to; memory that is short, or a key that is pressed, is none of them.
_OF_CONTENT: Final = ObscodecError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError

_MADE: Final[dict[str, Callable[[State], Saved]]] = {
    "RingBuffer": RingBuffer.from_arguments,
    "TensorArray": TensorArray.from_arguments,
}


def save(saved: Saved, path: str | os.PathLike[str]) -> None:
    """Save a buffer, an array or a store in a folder, from which :func:`load` makes it again, in any later version.

    Tensors are written as they are stored, and not decoded. A snapshot that the folder has already is replaced as soon
    as the new one is complete: a failed or killed save leaves it as it was. Nobody may write to the buffer meanwhile.

    Args:
        saved: a RingBuffer, a TensorArray, with its whole store, or a store. A subclass of the first two comes back as
            a plain one.
        path: the folder; it is made if it is not there.

    Raises:
        DTypeError: ``saved`` is something else.
        SnapshotError: the folder has other files, or another process saves to it.
        OSError: the disk is full, or refuses.

    Example:
        >>> import tempfile
        >>> import numpy as np, obscodec
        >>> store = obscodec.FrameStore(obscodec.Layout((84, 84), "uint8"))
        >>> ids = store.append(np.ones((1, 84, 84), np.uint8))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(store, folder)
        ...     load(folder).read(ids).mean()
        np.float64(1.0)
    """
    if not isinstance(saved, (RingBuffer, TensorArray, Store)):
        what = "save takes a RingBuffer, a TensorArray or a store"
        raise DTypeError(f"{what}, got {kind_of(saved)}: buffers of adapters have a method save")
    known = (of.__name__ for of in type(saved).__mro__ if of.__name__ in _MADE or of in Store.kinds.values())
    write_snapshot(saved, path, next(known))


def write_snapshot(saved: Saved, path: str | os.PathLike[str], kind: str | None = None) -> None:
    """:func:`save` for a class of any package, which calls :func:`read_snapshot` to load; ``kind`` is its name."""
    tree = flatten({"arguments": saved.arguments(), "state": saved.state()})
    Folder(path).write(tree, {"kind": kind or type(saved).__name__, "written_by": f"obscodec {version('obscodec')}"})


def load(path: str | os.PathLike[str], *, generation: int | None = None) -> Any:
    """What :func:`save` has saved in a folder, equal in all that it holds.

    Everything is checked, so the folder may come from a stranger.

    Args:
        path: the folder.
        generation: the number of a generation, None for the last one.

    Raises:
        SnapshotError: the folder has no snapshot; or a file of it is damaged, missing, or of a newer version.
        BackendUnavailable: it was on a device that can't be used here.
        MissingPackage: it has a codec of a package that is not installed.
        MemoryError: there is no room for it.
    """
    kind, arguments, state = read_snapshot(path, generation)
    if kind not in _MADE and kind not in Store.kinds:
        raise SnapshotError(f"{path} has a {kind}: load it by {kind}.load({os.fspath(path)!r})")
    with named(path):
        made = _MADE[kind](arguments) if kind in _MADE else store_of(kind, arguments)
    return restored(made, state, path)


def read_snapshot(path: str | os.PathLike[str], generation: int | None = None) -> tuple[str, State, State]:
    """The kind, the arguments and the state in a snapshot; see :func:`load`."""
    manifest, tree = Folder(path).read(generation)
    with named(path):
        both, kind = unflatten(tree), part_of(manifest, "kind", str)
        return kind, part_of(both, "arguments", dict), part_of(both, "state", dict)


def restored(made: S, state: State, path: str | os.PathLike[str]) -> S:
    """An empty object with a state that :func:`read_snapshot` read.

    Raises:
        SnapshotError: no such object has this state.
    """
    with named(path):
        made.restore(state)
    return made


@contextmanager
def named(path: str | os.PathLike[str]) -> Iterator[None]:
    """A context that raises what is wrong with the content of a snapshot as SnapshotError."""
    try:
        yield
    except (SnapshotError, HeapFull, BackendUnavailable, MissingPackage):
        raise
    except (
        ObscodecError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise SnapshotError(f"{path} has a content that no obscodec writes: {error}") from error
