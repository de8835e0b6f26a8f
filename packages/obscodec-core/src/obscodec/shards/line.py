"""Line: calls of an owner by another process, one after the other; what both send each other."""

from __future__ import annotations

import socket
import struct
import sys
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, Final

from obscodec import errors
from obscodec.arguments import check_kind
from obscodec.errors import DTypeError, ObscodecError, ShapeError, Unreachable
from obscodec.runtime import is_memory_error
from obscodec.state import State, part_of
from obscodec.wire import MAX_BYTES, format_message, parse_message

Address = tuple[str, int]

NO_ANSWER: Final = OSError, EOFError, AuthenticationError  # what a connection raises that is no more
_CONNECT_S: Final = 10.0
_PART_S: Final = 10  # the rest of a message that has begun, or of a handshake, keeps nobody waiting for longer
_PART: Final = struct.pack("L", 1000 * _PART_S) if sys.platform == "win32" else struct.pack("ll", _PART_S, 0)
# A machine that is gone breaks it in 30 s, the last one with data under way, which stop the others.
_ALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
_NAME: Final = b"obss"
_VERSION: Final = 1
_ERRORS: Final = {
    of.__name__: of for of in vars(errors).values() if isinstance(of, type) and issubclass(of, ObscodecError)
}


def as_address(address: object) -> Address:
    """A host and a port."""
    given: Any = address
    if isinstance(given, (tuple, list)) and [*map(type, given)] == [str, int]:
        return given[0], given[1]
    raise DTypeError(f"an address is a host and a port, such as ('10.0.0.2', 6000), got {address!r}")


def as_key(authkey: object) -> bytes:
    """The secret that all processes share."""
    check_kind("authkey", authkey, bytes, "some secret bytes, which all processes share")
    assert isinstance(authkey, bytes)
    if not authkey:
        raise ShapeError("authkey must be some secret bytes, which all processes share, got none")
    return authkey


def described(address: Address) -> str:
    """An address, for an error."""
    return f"{address[0]}:{address[1]}"


def as_connection(made: socket.socket) -> Connection:
    """A connection by a socket, which it takes over; it breaks when the other machine is gone, or stops in a message.

    Who waits for the first byte of a message calls ``poll`` before.
    """
    made.settimeout(None)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _PART)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return Connection(made.detach())


def shake_hands(connection: Connection, authkey: bytes, *, as_owner: bool) -> None:
    """Make sure that both sides have the same secret; AuthenticationError if a stranger says anything else."""
    both = [deliver_challenge, answer_challenge]
    try:
        for challenge in both if as_owner else reversed(both):
            challenge(connection, authkey)
    except (AssertionError, ValueError) as error:
        raise AuthenticationError(f"this is no handshake: {error}") from error


def as_message(state: State) -> bytes:
    """A call or an answer as bytes."""
    return format_message(_NAME, _VERSION, state)


def of_message(message: bytes) -> State:
    """A call or an answer, possibly from a stranger; CorruptStream if it is neither."""
    return parse_message(_NAME, _VERSION, message, "a message")


def as_answer(error: Exception) -> State:
    """What an owner answers in place of a result."""
    kind = "MemoryError" if is_memory_error(error) and type(error).__name__ not in _ERRORS else type(error).__name__
    return {"error": kind, "text": str(error)}


class Line:
    """A connection to an owner, which is made at the first call, and after an error at the next one.

    Args:
        address: where the owner serves.
        authkey: the secret that it shares.

    Attributes:
        number: how many connections there were.
    """

    def __init__(self, address: Address, authkey: bytes) -> None:
        self.address, self.number = address, 0
        self._authkey = authkey
        self._connection: Connection | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as the last call has shown."""
        return self._connection is not None

    def open(self) -> Connection:
        """The connection, which is made if there is none; errors are those of a socket, which :meth:`call` explains."""
        if self._connection is None:
            made = as_connection(socket.create_connection(self.address, _CONNECT_S))
            try:
                shake_hands(made, self._authkey, as_owner=False)
            except BaseException:
                made.close()
                raise
            self._connection = made
            self.number += 1
        return self._connection

    def call(self, state: State, seconds: float | None = None) -> State:
        """Send a call, and wait for the answer, for so many seconds, or for any time.

        Raises:
            Unreachable: there is no answer; nobody listens, or somebody with another secret.
            ObscodecError: what the owner has raised.
        """
        message = as_message(state)
        try:
            connection = self.open()
            connection.send_bytes(message)
            if not connection.poll(seconds):
                raise TimeoutError(f"no answer in {seconds:g} s")
            answer = of_message(connection.recv_bytes(MAX_BYTES))
        except BaseException as error:
            self.close()  # an answer that comes later would be taken for that to another call
            if isinstance(error, NO_ANSWER):
                raise self._silent(error) from error
            raise
        if "error" in answer:
            name, text = part_of(answer, "error", str), f"{answer.get('text')} (at {described(self.address)})"
            raise _ERRORS.get(name, MemoryError if name == "MemoryError" else ObscodecError)(text)
        return answer

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()

    def _silent(self, error: BaseException) -> Unreachable:
        if isinstance(error, AuthenticationError):
            return Unreachable(f"{described(self.address)} has another authkey: pass the same secret bytes")
        what = str(error) or ("it has closed the connection" if isinstance(error, EOFError) else type(error).__name__)
        return Unreachable(f"{described(self.address)} does not answer: {what}")
