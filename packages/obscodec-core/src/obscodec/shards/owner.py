"""Owner: serves a buffer to writers and learners in other processes, and saves it."""

from __future__ import annotations

import atexit
import os
import signal
import socket
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import TIMEOUT_MAX, Event, Lock, Thread, current_thread, main_thread
from time import monotonic
from types import NoneType
from typing import Any, Final, Self

from obscodec.arguments import as_count, as_number, check_kind, says_arguments, warn
from obscodec.buffers import Field, Prioritized, RateLimiter, RingBuffer
from obscodec.errors import ShapeError, SnapshotError, SpecError
from obscodec.runtime import PicklableLock, folder_path
from obscodec.shards.answers import Answers, Counts
from obscodec.shards.line import NO_ANSWER, Address, as_address, as_connection, as_key, described, shake_hands
from obscodec.snapshots import FolderLock, Saved, Snapshot, load
from obscodec.state import State, part_of
from obscodec.wire import MAX_BYTES, Sent

_LOOK_S: Final = 0.2  # for the end, of a thread that waits
_END_S: Final = 5.0


@says_arguments
class Owner:
    """Serves a buffer to :class:`Writer` and :class:`Shards` in other processes, and saves it again and again.

    Each has a thread here. Start it again after a crash with the same arguments: it goes on with the last generation in
    ``folder``, and writers send again what came after it. Without a folder, what it had is lost with its process.

    A context, which closes it at the end.

    Args:
        buffer: empty, or filled by the program; it may go on to append and sample in other threads.
        priorities: of its steps, for learners that draw by priority.
        limiter: asked before a step of a writer is appended, and before a learner draws; the buffer has none.
        folder: where to save the buffer, with the priorities. If it has a generation already, the buffer must be empty,
            and is filled from there. ``obscodec.load`` reads the buffer, too. Nobody else may save there; a second
            owner is refused, by an empty folder beside it whose name ends in ``.owner``.
        save_every: seconds from one generation to the next, if something has changed.
        keep: how many generations to keep.

    Attributes:
        buffer: the buffer.
        priorities: the priorities, or None.
        limiter: the limiter, or None; it can be replaced at any time.
        addresses: where it serves.
        save_error: why the last generation could not be written, None if it was.

    Raises:
        SnapshotError: the folder has a buffer that was made with other arguments, or something else; or is damaged.
        SpecError: the folder has a buffer, and ``buffer`` has steps.
        ShapeError: a number is out of range.
        DTypeError: an argument has another type.

    Example:
        >>> from obscodec import Field, RingBuffer
        >>> from obscodec.shards import Owner, Shards, Writer
        >>> ring = RingBuffer(1000, {"reward": Field((), "float32")})
        >>> with Owner(ring) as owner:
        ...     address = owner.serve(("localhost", 0), b"secret")
        ...     with Writer(address, b"secret") as writer:
        ...         for step in range(100):
        ...             writer.append(reward=step)
        ...     with Shards([address], b"secret") as shards:
        ...         shards.sample(8, 0).batch["reward"].shape
        (8,)
    """

    saved_as = "RingBuffer"  # see ``Saved``

    def __init__(
        self,
        buffer: RingBuffer,
        priorities: Prioritized | None = None,
        *,
        limiter: RateLimiter | None = None,
        folder: str | os.PathLike[str] | None = None,
        save_every: float = 30.0,
        keep: int = 3,
    ) -> None:
        check_kind("buffer", buffer, RingBuffer, "a RingBuffer")
        check_kind("priorities", priorities, (Prioritized, NoneType), "a Prioritized")
        check_kind("limiter", limiter, (RateLimiter, NoneType), "a RateLimiter")
        if priorities is not None and priorities.capacity < buffer.capacity * buffer.n_envs:
            n = buffer.capacity * buffer.n_envs
            raise ShapeError(f"priorities have room for {priorities.capacity} of {n} steps: make a Prioritized({n})")
        if buffer.limiter is not None:
            raise SpecError("a limiter of the buffer would stop all writers and saves: pass it to Owner instead")
        self.buffer, self.priorities = buffer, priorities
        self.addresses: list[Address] = []
        self.save_error: Exception | None = None
        self._save_every = min(as_number("save_every", save_every), TIMEOUT_MAX)
        if not self._save_every:
            raise ShapeError("save_every must be more than 0 seconds")
        self._process = os.getpid()
        self._answers = Answers(buffer, priorities, limiter)
        self._saving = Lock()
        self._saved: Counts | None = None  # of the last generation
        self._closing = Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[Thread] = []
        self._snapshot = None if folder is None else Snapshot(folder, keep=as_count("keep", keep))
        self._numbers = set[int]()  # of the generations that this owner has loaded, or tried to write
        self._locked: FolderLock | None = None
        if folder is not None and self._snapshot is not None:
            path = folder_path(folder).resolve()
            beside = path.with_name(f"{path.name}.owner")  # by which there is one owner at a time
            beside.mkdir(parents=True, exist_ok=True)
            self._locked = FolderLock(beside)
            self._answers.saved = {}
            try:
                self._numbers.update(self._snapshot.generations)
                if self._numbers:
                    load(folder, spill=buffer.spill, by=self._to_fill)
                    self._note_saved(self._answers.counts())
                self._start(self._go_on_saving)
            except BaseException:
                self._locked.close()
                raise
        atexit.register(self.close)

    @property
    def limiter(self) -> RateLimiter | None:
        """See the class."""
        return self._answers.limiter

    @limiter.setter
    def limiter(self, limiter: RateLimiter | None) -> None:
        self._answers.limiter = limiter

    @says_arguments
    def serve(self, address: Address, authkey: bytes) -> Address:
        """Serve at an address from now on; returns at once.

        Args:
            address: a host and a port: ``("", 6000)`` for all networks of the machine, ``("localhost", 0)`` for this
                machine alone, and any free port. Only for networks that you trust: what is sent is not encrypted.
            authkey: secret bytes, which writers and learners pass, too.

        Returns:
            The address, with the port.

        Raises:
            OSError: there is no such address, or it is taken.
        """
        key, made = as_key(authkey), socket.create_server(as_address(address), backlog=128)
        made.settimeout(_LOOK_S)
        served: Address = made.getsockname()[:2]
        self._sockets.append(made)
        self.addresses.append(served)
        self._start(self._accept, made, key)
        return served

    def wait(self) -> None:
        """Wait until :meth:`close` is called, or the system ends the program (SIGTERM); Ctrl+C interrupts it."""
        ends = Event()
        before = None
        if current_thread() is main_thread():
            before = signal.signal(signal.SIGTERM, lambda *_: ends.set())
        try:
            while not self._closing.is_set() and not ends.wait(_LOOK_S):
                pass
        finally:
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    def close(self) -> None:
        """Serve nobody any more, and write a last generation. Nothing happens if it is closed, or in a forked process.

        Raises:
            OSError: the disk refused the generation.
        """
        if self._closing.is_set() or self._process != os.getpid():
            return
        self._closing.set()
        atexit.unregister(self.close)
        if self.limiter is not None:
            self.limiter.stop()
        end = monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, end - monotonic()))
        for made in self._sockets:
            made.close()
        try:
            self.save()
        finally:
            if self._locked is not None:
                self._locked.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save(self) -> None:
        """Write a generation, if something has changed since the last one, and wait until it is finished.

        Raises:
            OSError: the disk refused it.
            SnapshotError: somebody else has written to the folder.
        """
        with self._saving:
            if self._snapshot is None or self._saved == self._answers.counts():
                return
            newest = max(self._snapshot.generations, default=0)
            if newest and newest not in self._numbers:
                what = "has a generation that this owner has not written: its own steps are only in memory"
                raise SnapshotError(f"the folder {what}. Save its buffer in another one, with obscodec.save")
            self._numbers.add(newest + 1)
            with self._answers.lock:
                counts = self._answers.counts()
                self._snapshot.write(self, newest + 1)
            self._snapshot.wait()
            self._note_saved(counts)

    def _note_saved(self, counts: Counts) -> None:
        self._saved, self._answers.saved = counts, counts[0]

    def _go_on_saving(self) -> None:
        while not self._closing.wait(self._save_every):
            try:
                self.save()
                self.save_error = None
            except Exception as error:
                with suppress(UserWarning):  # an error, for some
                    if self.save_error is None:
                        warn(f"an owner could not save its buffer, and tries again: {error}")
                self.save_error = error

    # What ``Snapshot`` asks for: the state of the buffer, and what the owner adds.

    @property
    def changing(self) -> PicklableLock:
        """See ``obscodec.snapshots.Saved``."""
        return self._answers.lock

    def arguments(self) -> State:
        """What makes an equal, empty buffer."""
        return self.buffer.arguments()

    def manifest(self) -> State:
        """See ``obscodec.snapshots.Saved``."""
        return self.buffer.manifest()

    def state(self) -> State:
        """The state of the buffer, and of what only an owner has."""
        with self._answers.lock:
            own = self._answers.state()  # first: priorities may know fewer steps than the buffer has, and not more
            return {**self.buffer.state(), "owner": own}

    def restore(self, state: State) -> None:
        """Fill the buffer, which is empty.

        Raises:
            CorruptStream: no owner of such a buffer has this state.
        """
        if "owner" in state:  # else the buffer was saved by itself
            self._answers.restore(part_of(state, "owner", dict))
        self.buffer.restore(state)

    def _to_fill(self, kind: str, arguments: State, path: str) -> Saved:
        """This owner, if a snapshot is of a buffer like its own."""
        if kind != self.saved_as:
            raise SnapshotError(f"{path} has a {kind}, and no buffer of an owner: name another folder")
        if self.buffer.n_stored:
            raise SpecError(
                f"{path} has a buffer already, and this one has steps: pass an empty one, or another folder"
            )
        mine = self.buffer.arguments()
        free = {"threads", "max_bytes", "spill"}
        if differing := [name for name in mine if name not in free and arguments.get(name) != mine[name]]:
            name = differing[0]
            what = f"{path} has a buffer with {_said(name, arguments)}, this one has {_said(name, mine)}"
            raise SnapshotError(f"{what}: make an equal one, or name another folder")
        return self

    # What writers and learners call.

    def _start(self, work: Any, *arguments: Any) -> None:
        thread = Thread(target=work, args=arguments, name=f"obscodec {work.__name__.strip('_')}", daemon=True)
        thread.start()
        self._threads = [*(of for of in self._threads if of.is_alive()), thread]

    def _accept(self, made: socket.socket, authkey: bytes) -> None:
        while not self._closing.is_set():
            try:
                self._start(self._converse, as_connection(made.accept()[0]), authkey)
            except TimeoutError:
                continue
            except (OSError, RuntimeError, MemoryError):  # somebody has gone away, or there are too many
                self._closing.wait(_LOOK_S)

    def _converse(self, connection: Connection, authkey: bytes) -> None:
        """Answer calls of one writer or learner, until it goes away."""
        with connection, suppress(*NO_ANSWER):
            shake_hands(connection, authkey, as_owner=True)
            sent = Sent()
            while not self._closing.is_set():
                if connection.poll(_LOOK_S):
                    connection.send_bytes(self._answers.answered(connection.recv_bytes(MAX_BYTES), sent))

    def __repr__(self) -> str:
        where = ", ".join(map(described, self.addresses)) or "nowhere"
        return f"Owner(at {where}, {len(self._answers)} writers, {self.buffer!r})"


def _said(name: str, arguments: State) -> str:
    """An argument of a buffer, for an error."""
    if name != "fields":
        return f"{name}={arguments.get(name)!r}"
    made = {of: Field.from_config(config) for of, config in part_of(arguments, name, dict).items()}
    return ", ".join(f"{of}: {field.described}" for of, field in made.items())
