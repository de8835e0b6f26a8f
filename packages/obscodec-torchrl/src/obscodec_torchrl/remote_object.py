"""RemoteObject: calls the methods of an object from other processes."""

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
_N_WAITING = 64  # callers that may wait for their connection to be accepted
_numbers = count()
_targets: WeakValueDictionary[int, object] = WeakValueDictionary()


class RemoteObject:
    """Stands for an object of this process in other processes, and calls its methods there.

    The other processes are those that multiprocessing starts from this one, directly or not. Each call runs in a thread
    of its own in this process, side by side with other calls, and its result is sent by value. If the target has a
    ``lock``, it is held while a result is pickled. A ``RemoteObject`` does not keep its target alive.
    """

    def __init__(self, target: object) -> None:
        self._number, self._address = next(_numbers), _address(os.getpid())
        _targets[self._number] = target

    @staticmethod
    def forward(*, methods: Collection[str], attributes: Collection[str]) -> Callable[[type[T]], type[T]]:
        """Decorate a class whose instances have a ``remote``: these methods and attributes are those of its target.

        The attributes are read-only.
        """

        def method(name: str) -> Callable[..., Any]:
            return lambda self, *args, **options: self.remote.call(name, *args, **options)

        def attribute(name: str) -> property:
            return property(lambda self: self.remote.call("__getattribute__", name))

        def decorate(decorated: type[T]) -> type[T]:
            for name in (*methods, *attributes):
                setattr(decorated, name, method(name) if name in methods else attribute(name))
            return decorated

        return decorate

    @staticmethod
    def stand_in(target: T, of: type, without: Collection[str]) -> tuple[Any, ...] | None:
        """The result of ``target.__reduce_ex__`` when multiprocessing sends the target to a process that it spawns.

        There it is an ``of`` with the attributes of the target, but for some that are None, and ``remote``. The result
        is None if the target is pickled for another purpose, such as into a file.
        """
        if get_spawning_popen() is None:
            return None
        return of.__new__, (of,), vars(target) | dict.fromkeys(without) | {"remote": RemoteObject(target)}

    def call(self, method: str, *args: object, **options: object) -> Any:
        """Call a method of the target.

        Raises:
            ReferenceError: the target is gone.
            ConnectionError: the process of the target has ended.
            Exception: the exception of the method; a RuntimeError with its text if it can't be pickled.
        """
        message = pickle.dumps((self._number, method, args, options))
        try:
            with Client(self._address, authkey=current_process().authkey) as connection:
                connection.send_bytes(message)
                given, error = connection.recv()
        except (EOFError, FileNotFoundError) as gone:
            raise ConnectionError(f"the process that should run {method} has ended") from gone
        if error is not None:
            raise error
        return given


@cache
def _address(process: int) -> str:
    """The address at which this process answers calls; a forked process, with another number, gets its own."""
    listener = Listener(backlog=_N_WAITING, authkey=current_process().authkey)
    Thread(target=_accept, args=(listener,), name=f"calls of process {process}", daemon=True).start()
    return str(listener.address)


def _accept(listener: Listener) -> None:
    while True:
        with suppress(Exception):  # of a caller that is gone, or has another key: go on with other callers
            Thread(target=_answer, args=(listener.accept(),), daemon=True).start()


def _answer(connection: Connection) -> None:
    with connection, suppress(OSError, EOFError):
        connection.send_bytes(_result(connection.recv_bytes()))


def _result(message: bytes) -> bytes:
    """The result of a call and its exception, one of which is None, pickled."""
    try:
        number, method, args, options = pickle.loads(message)
        if (target := _targets.get(number)) is None:
            raise ReferenceError(f"the object that {method} was called on is gone")
        given = getattr(target, method)(*args, **options)
        with getattr(target, "lock", nullcontext()):  # the result may be a view of memory that others write
            return pickle.dumps((given, None))
    except Exception as error:
        try:
            result = pickle.dumps((None, error))
            pickle.loads(result)
        except Exception:  # the class of an exception may have code of its own for pickle, which may raise anything
            return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
        return result
