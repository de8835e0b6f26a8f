"""Saved: what can be in a snapshot, and what is wrong with it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from obscodec.arrays import TensorArray
from obscodec.buffers import Prioritized, RingBuffer
from obscodec.errors import BackendUnavailable, HeapFull, LimitTooLow, MissingPackage, ObscodecError, SnapshotError
from obscodec.snapshots.known import Known
from obscodec.state import State

LOADED: Final[WeakKeyDictionary[object, tuple[Path, Known]]] = WeakKeyDictionary()  # where a buffer is from


class Saved(Protocol):
    """What can be saved: see ``obscodec.state``.

    A class of another package has an attribute ``written_by``: the name of its package, a space, and the version. A
    class that knows episodes has a method ``end_episodes``, which :func:`load` calls; a buffer has a method
    ``manifest``, which returns what ``BufferStats.manifest`` does: ``obscodec inspect`` prints it. What other threads
    may change has an attribute ``changing``, a lock that changes take, reentrant: it is held meanwhile. What
    adds to the state of another class, which :func:`load` is to make of it, has the name of that in ``saved_as``.
    """

    def arguments(self) -> State:
        """The arguments that make an equal, empty object."""

    def state(self) -> State:
        """What the object holds."""

    def restore(self, state: State) -> None:
        """Fill this object, which is empty."""


@contextmanager
def named(path: str | os.PathLike[str]) -> Iterator[None]:
    """A context that raises what is wrong with the content of a snapshot as SnapshotError."""
    try:
        yield
    except (SnapshotError, HeapFull, LimitTooLow, BackendUnavailable, MissingPackage):
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
        raise SnapshotError(f"{path} has content that obscodec never writes: {error}") from error


MADE: Final[dict[str, Callable[[State], Saved]]] = {
    "Prioritized": lambda arguments: Prioritized(**arguments),
    "RingBuffer": RingBuffer.from_arguments,
    "TensorArray": TensorArray.from_arguments,
}
