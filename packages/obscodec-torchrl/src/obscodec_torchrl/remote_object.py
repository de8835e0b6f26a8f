"""RemoteObject: an object that is in one process, of which others call the methods."""

import os
import pickle
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from functools import cache
from itertools import count
from multiprocessing import current_process
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing.context import get_spawning_popen
from threading import Thread
from typing import Any, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")
_N_WAITING = 64  # callers that may wait to be accepted
_numbers = count()
_targets: WeakValueDictionary[int, object] = WeakValueDictionary()


class RemoteObject:
    """Calls the methods of an object from the processes that this is sent to.

    These are processes that multiprocessing starts from the one of the object, directly or not. What a method gives is
    sent back by value. Each call runs in a thread of its own in the process of the object, side by side with others.
    The object is not kept alive.

    Args:
        target: whose methods are called. If it has a ``lock``, what a method gives is pickled while that is held.

    Example:
        >>> import numpy as np
        >>> from obscodec import Layout, TensorStore, codec
        >>> store = TensorStore(codec("raw", Layout((2,), "uint8")), 10)
        >>> remote = RemoteObject(store)
        >>> remote.call("append", np.zeros((3, 2), np.uint8))  # in a worker
        array([1, 2, 3])
    """

    def __init__(self, target: object) -> None:
        self._number, self._address = next(_numbers), _address(os.getpid())
        _targets[self._number] = target

    @staticmethod
    def methods(*names: str) -> Callable[[type[T]], type[T]]:
        """For a class whose instances have ``remote``: its methods of these names call those of the target."""

        def decorate(decorated: type[T]) -> type[T]:
            for name in names:
                setattr(decorated, name, _method(name))
            return decorated

        return decorate

    @staticmethod
    def attributes(*names: str) -> Callable[[type[T]], type[T]]:
        """The same for attributes, which can only be read."""

        def decorate(decorated: type[T]) -> type[T]:
            for name in names:
                setattr(decorated, name, _attribute(name))
            return decorated

        return decorate

    @staticmethod
    def stand_in(target: T, of: type, without: Collection[str]) -> tuple[Any, ...] | None:
        """What ``target.__reduce_ex__`` gives if the target is on its way to a process that multiprocessing spawns.

        Args:
            target: whose methods are called there.
            of: a class; an object of it, with the attributes of the target and ``remote``, is what arrives.
            without: the attributes that are None there.

        Returns:
            That, or None if the target is on another way, such as into a file.
        """
        if get_spawning_popen() is None:
            return None
        return of.__new__, (of,), vars(target) | dict.fromkeys(without) | {"remote": RemoteObject(target)}

    def call(self, method: str, *args: object, **options: object) -> Any:
        """What the method of this name gives.

        Raises:
            ReferenceError: the object is gone.
            ConnectionError: its process has ended.
            Exception: what the method raises; a RuntimeError that names it if it can't be sent.
        """
        message = pickle.dumps((self._number, method, args, options))
        try:
            with Client(self._address, authkey=current_process().authkey) as connection:
                connection.send_bytes(message)
                given, error = connection.recv()
        except (EOFError, FileNotFoundError) as gone:
            raise ConnectionError(f"the process that {method} is called in has ended") from gone
        if error is not None:
            raise error
        return given


def _method(name: str) -> Callable[..., Any]:
    return lambda self, *args, **options: self.remote.call(name, *args, **options)


def _attribute(name: str) -> property:
    return property(lambda self: self.remote.call("__getattribute__", name))


@cache
def _address(process: int) -> str:
    """Where a process, this one, waits for calls."""
    listener = Listener(backlog=_N_WAITING, authkey=current_process().authkey)
    Thread(target=_accept, args=(listener,), name=f"calls of process {process}", daemon=True).start()
    return str(listener.address)


def _accept(listener: Listener) -> None:
    while True:
        with suppress(Exception):  # of one who is gone already, or was not started by us: the others are not concerned
            Thread(target=_answer, args=(listener.accept(),), daemon=True).start()


def _answer(connection: Connection) -> None:
    with connection, suppress(OSError, EOFError):
        connection.send_bytes(_result(connection.recv_bytes()))


def _result(message: bytes) -> bytes:
    """What a call gives and what it raises, one of which is None, pickled."""
    try:
        number, method, args, options = pickle.loads(message)
        if (target := _targets.get(number)) is None:
            raise ReferenceError(f"what {method} is called of is gone")
        given = getattr(target, method)(*args, **options)
        with getattr(target, "lock", nullcontext()):  # what is given may be a view of what others write
            return pickle.dumps((given, None))
    except Exception as error:
        try:
            result = pickle.dumps((None, error))
            pickle.loads(result)
        except Exception:  # an exception can be pickled by its class's own code, which may raise anything
            return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
        return result
