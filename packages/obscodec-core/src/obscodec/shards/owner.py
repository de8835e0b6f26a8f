"""Owner: serves a buffer to writers and learners in other processes, and saves it."""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from multiprocessing.connection import Connection
from threading import TIMEOUT_MAX, Event, Lock, Thread, current_thread, main_thread
from time import monotonic, time_ns
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np

from obscodec.arguments import as_count, as_envs, as_integers, as_number, check_kind, says_arguments, warn
from obscodec.buffers import Field, Prioritized, RateLimiter, RingBuffer
from obscodec.errors import FieldError, ShapeError, SnapshotError, SpecError, Unreachable
from obscodec.runtime import LockOrder, PicklableLock, folder_path
from obscodec.segments import Bytes, Ints
from obscodec.shards.line import (
    NO_ANSWER,
    Address,
    as_address,
    as_answer,
    as_connection,
    as_key,
    as_message,
    described,
    of_message,
    shake_hands,
)
from obscodec.snapshots import FolderLock, Saved, Snapshot, load
from obscodec.state import State, array_of, number_of, part_of
from obscodec.wire import MAX_BYTES, EncodedBatch, Sent

_LOOK_S: Final = 0.2  # for the end, of a thread that waits
_END_S: Final = 5.0
_NO_LOCK: Final = nullcontext()
_DRAWS: Final = {
    "sample": {"replace", "n_step", "gamma", "reward"},
    "sequences": {"length", "overlap", "burn_in", "bootstrap", "dilation", "strict_length", "across_episodes"},
}
_TAKEN_OVER: Final = "another writer has taken the environments of this one over: make another Writer"
_LENGTHS: Final = "length", "burn_in", "bootstrap"
_LEAST_NBYTES: Final = 64  # that a row takes here while it is drawn
_AFTER: Final = {"end_episodes", "drop_episode"}  # what a writer may do behind its steps


class _Writer(NamedTuple):
    """What an owner has of a writer.

    Attributes:
        envs: its environments, ``i64[n]``, in the order of its values.
        n: how many of its changes are done: each step is one, and each call of :data:`_AFTER`.
    """

    envs: Ints
    n: int


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
        limiter: the limiter, or None.
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
        if priorities is not None:
            check_kind("priorities", priorities, Prioritized, "a Prioritized")
        if limiter is not None:
            check_kind("limiter", limiter, RateLimiter, "a RateLimiter")
        if priorities is not None and priorities.capacity < buffer.capacity * buffer.n_envs:
            n = buffer.capacity * buffer.n_envs
            raise ShapeError(f"priorities have room for {priorities.capacity} of {n} steps: make a Prioritized({n})")
        if buffer.limiter is not None:
            raise SpecError("a limiter of the buffer would stop all writers and saves: pass it to Owner instead")
        self.buffer, self.priorities, self.limiter = buffer, priorities, limiter
        self.addresses: list[Address] = []
        self.save_error: Exception | None = None
        self._save_every = min(as_number("save_every", save_every), TIMEOUT_MAX)
        if not self._save_every:
            raise ShapeError("save_every must be more than 0 seconds")
        self._process = os.getpid()
        self._life = secrets.randbits(62)  # of the indices: after a crash, they may be of other steps
        self._lock = PicklableLock(LockOrder.OWNER)
        self._drawing = Lock()  # of priorities, until those that were drawn are known
        self._saving = Lock()
        self._writers: dict[str, _Writer] = {}
        self._turns: Ints = np.zeros(buffer.n_envs, np.int64)  # of the last writer of each environment, rising
        self._n_updates = 0
        self._saved: tuple[Any, ...] = ({},)  # nothing so far
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
            try:
                self._numbers.update(self._snapshot.generations)
                if self._numbers:
                    load(folder, spill=buffer.spill, by=self._to_fill)
                    self._saved = self._counts()
                self._start(self._go_on_saving)
            except BaseException:
                self._locked.close()
                raise
        atexit.register(self.close)

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
            if self._snapshot is None or self._saved == self._counts():
                return
            newest = max(self._snapshot.generations, default=0)
            if newest and newest not in self._numbers:
                what = "has a generation that this owner has not written: its own steps are only in memory"
                raise SnapshotError(f"the folder {what}. Save its buffer in another one, with obscodec.save")
            self._numbers.add(newest + 1)
            with self._lock:
                counts = self._counts()
                self._snapshot.write(self, newest + 1)
            self._snapshot.wait()
            self._saved = counts

    def _counts(self) -> tuple[Any, ...]:
        """What tells whether something has changed, the writers' changes in front."""
        n = {name: writer.n for name, writer in self._writers.items()}
        return n, self.buffer.n_appended, self.buffer.n_stored, self._n_updates

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
        return self._lock

    def arguments(self) -> State:
        """What makes an equal, empty buffer."""
        return self.buffer.arguments()

    def manifest(self) -> State:
        """See ``obscodec.snapshots.Saved``."""
        return self.buffer.manifest()

    def state(self) -> State:
        """The state of the buffer, and of what only an owner has."""
        with self._lock:
            writers = [{"name": name, "envs": of.envs, "n": of.n} for name, of in self._writers.items()]
            p = self.priorities
            priorities = None if p is None else {"arguments": p.arguments(), "state": p.state()}
            own: State = {"writers": writers, "turns": self._turns, "priorities": priorities}
            if self.limiter is not None:
                own["limiter"] = {"n_inserted": self.limiter.n_inserted, "n_sampled": self.limiter.n_sampled}
            return {**self.buffer.state(), "owner": own}

    def restore(self, state: State) -> None:
        """Fill the buffer, which is empty.

        Raises:
            CorruptStream: no owner of such a buffer has this state.
        """
        n_envs, writers = self.buffer.n_envs, dict[str, _Writer]()
        plain: State = {"writers": [], "turns": self._turns, "priorities": None}  # a buffer that was saved by itself
        own = state.get("owner") or plain
        turns = array_of(own, "turns", np.int64, (n_envs,))
        for of in part_of(own, "writers", list):
            envs = _each_once(array_of(of, "envs", np.int64, (None,)), n_envs)
            writers[part_of(of, "name", str)] = _Writer(envs, number_of(of, "n"))
        if self.priorities is not None and own["priorities"] is not None:
            saved, mine = part_of(own["priorities"], "arguments", dict), self.priorities.arguments()
            if {**saved, "beta": None} != {**mine, "beta": None}:  # it changes while a learner trains
                raise SnapshotError(f"the folder has priorities with {saved}, these have {mine}: pass equal ones")
            self.priorities.restore(part_of(own["priorities"], "state", dict))
        self.buffer.restore(state)
        self._writers, self._turns = writers, turns
        if self.limiter is not None and "limiter" in own:
            for name in ("n_inserted", "n_sampled"):
                setattr(self.limiter, name, number_of(part_of(own, "limiter", dict), name))

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
                    connection.send_bytes(self._answered(connection.recv_bytes(MAX_BYTES), sent))

    def _answered(self, message: bytes, sent: Sent) -> bytes:
        """The answer to a message, possibly of a stranger; only what is in it counts as sent."""
        try:
            told = sent.copy()
            answer = as_message(self._answer(of_message(message), told))
            sent.take_over(told)
        except Exception as error:
            return as_message(as_answer(error))
        return answer

    def _answer(self, call: State, sent: Sent) -> State:
        answers = {
            "join": self._join,
            "append": self._append,
            "acknowledge": self._acknowledged,
            "update": self._update,
        }
        name = part_of(call, "call", str)
        if name == "draw":
            return self._draw(call, sent)
        if name not in answers:
            raise SpecError(f"there is no call {name!r} in this version of obscodec")
        return answers[name](call)

    def _join(self, call: State) -> State:
        """A writer, for some environments; another one that has one of these is no longer heard.

        Nor when it connects again: its turn, which it got when it joined first, is over. Else its changes would count
        from 0, and come twice.
        """
        name, given, turn = part_of(call, "writer", str), call.get("envs"), number_of(call, "turn")
        envs = _each_once(given, self.buffer.n_envs)
        if "envs" in self.buffer.fields and len(envs) < self.buffer.n_envs:
            raise FieldError("a field has the name 'envs', so that all environments step together: leave envs out")
        with self._lock:
            known = self._writers.get(name)
            if known is None or not np.array_equal(known.envs, envs):
                if turn and turn < self._turns[envs].max():
                    raise Unreachable(_TAKEN_OVER)
                others = {of: w for of, w in self._writers.items() if of == name or np.isin(w.envs, envs).any()}
                self.buffer.end_episodes(np.unique(np.concatenate([envs, *(w.envs for w in others.values())])))
                staying = {of: w for of, w in self._writers.items() if of not in others}
                turns = self._turns.copy()
                turns[envs] = turn or min(max(time_ns(), int(turns.max()) + 1), np.iinfo(np.int64).max)
                self._writers, self._turns = {**staying, name: _Writer(envs, 0)}, turns
            own: State = {"arguments": self.buffer.arguments(), "turn": int(self._turns[envs[0]])}
            own["saves"] = self._snapshot is not None
            return {**self._acknowledged(call), **own}

    def _known(self, call: State) -> tuple[str, _Writer]:
        name = part_of(call, "writer", str)
        if name not in self._writers:
            raise Unreachable(_TAKEN_OVER)
        return name, self._writers[name]

    def _acknowledged(self, call: State) -> State:
        """How many changes of a writer are done, and how many of them are on the disk."""
        name, writer = self._known(call)
        return {"n": writer.n, "n_saved": writer.n if self._snapshot is None else self._saved[0].get(name, 0)}

    def _append(self, call: State) -> State:
        """Do what a writer has sent, except what is done already."""
        first, message, after = number_of(call, "first"), part_of(call, "steps", np.ndarray), call.get("after")
        ring, (name, writer) = self.buffer, self._known(call)
        steps = EncodedBatch.from_bytes(message.data).read() if message.size else {}
        n_envs = len(writer.envs)
        at = {} if np.array_equal(writer.envs, np.arange(ring.n_envs)) else {"envs": writer.envs}
        n = len(next(iter(steps.values()))) // n_envs if steps else 0
        done = self._done_before(name, first)
        for k in range(done - first, n):
            step = dict(_step(ring, steps, k * n_envs, n_envs))
            with self._turn("insert", n_envs, self._lock):
                is_new = self._count(name, first + k, partial(ring.append, **at, **step))
                if self.limiter is not None and not is_new:
                    self.limiter.count("insert", -n_envs)
        if after is not None and done <= first + n:
            method, given = part_of(after, "method", str), array_of(after, "envs", np.int64, (None,))
            envs = as_envs(given, ring.n_envs)
            if method not in _AFTER or not np.isin(envs, writer.envs).all():
                raise SpecError(f"a writer can't call {method!r} for these environments")
            with self._lock:
                self._count(name, first + n, partial(_after, ring, method, envs))
        return self._acknowledged(call)

    def _done_before(self, name: str, first: int) -> int:
        """How many changes of a writer are done that sends those from ``first`` on; what lies between is lost."""
        with self._lock:
            _, writer = self._known({"writer": name})
            if first > writer.n:
                self.buffer.end_episodes(writer.envs)
                self._writers[name] = writer = writer._replace(n=first)
            return writer.n

    def _count(self, name: str, n: int, change: Callable[[], None]) -> bool:
        """Make the change number ``n`` of a writer, unless it is done; with the lock. Returns whether it was not."""
        _, writer = self._known({"writer": name})
        if is_new := writer.n == n:
            counted = writer._replace(n=n + 1)
            change()
            self._writers[name] = counted  # no failed allocation comes between
        return is_new

    def _turn(
        self, call: Literal["insert", "sample"], n: int, lock: AbstractContextManager[Any] = _NO_LOCK
    ) -> AbstractContextManager[Any]:
        return lock if self.limiter is None else self.limiter.turn(call, n, lock)

    def _draw(self, call: State, sent: Sent) -> State:
        """A batch of this shard, encoded; and what it has, by which learners divide the next one."""
        n, method = number_of(call, "n"), part_of(call, "method", str)
        how, by_priority = part_of(call, "how", dict), part_of(call, "by_priority", bool)
        if method not in _DRAWS or not how.keys() <= _DRAWS[method]:
            raise SpecError(f"a learner can't call {method!r} with {[*how]} in this version of obscodec")
        p = self.priorities if by_priority else None
        if by_priority and p is None:
            raise SpecError("this owner has no priorities: pass a Prioritized to Owner, or draw uniformly")
        answer: State = {"life": self._life}
        length, *more = (of if type(of) is int and of > 0 else 0 for of in map(how.get, _LENGTHS))
        n_steps, n_longest = n * (length or 1), n * max(1, length + sum(more))
        if n_longest * max(_LEAST_NBYTES, sum(of.layout.nbytes for of in self.buffer.fields.values())) > MAX_BYTES:
            raise ShapeError(
                f"{n} rows take more than {MAX_BYTES >> 20} MiB, which no learner reads: draw fewer at once"
            )
        with self._turn("sample", n_steps) if n else _NO_LOCK, _NO_LOCK if p is None else self._drawing:
            if n:
                answer |= self._encoded(method, n, call, {**how, "p": p}, sent)
            if p is None:
                return {**answer, "mass": float(self.buffer.n_stored)}
            if n:
                answer["probabilities"] = p.probabilities(answer["indices"])
            else:
                self._tell(p)
            return {**answer, "mass": p.total}

    def _tell(self, priorities: Prioritized) -> None:
        """Tell the priorities which steps there are."""
        if len(self.buffer):
            self.buffer.sample(0, p=priorities)

    def _encoded(self, method: str, n: int, call: State, how: dict[str, Any], sent: Sent) -> State:
        draw = getattr(self.buffer, method)
        batch, indices = draw(n, rng=number_of(call, "seed"), to="encoded", return_indices=True, **how)
        return {"batch": as_bytes(batch.to_bytes(sent)), "indices": indices}

    def _update(self, call: State) -> State:
        if self.priorities is None:
            raise SpecError("this owner has no priorities: pass a Prioritized to Owner")
        if number_of(call, "life") == self._life:
            indices, priorities = (part_of(call, name, np.ndarray) for name in ("indices", "priorities"))
            with self._drawing:
                self._tell(self.priorities)
                self.priorities.update(indices, priorities)
            self._n_updates += 1
        return {}

    def __repr__(self) -> str:
        where = ", ".join(map(described, self.addresses)) or "nowhere"
        return f"Owner(at {where}, {len(self._writers)} writers, {self.buffer!r})"


def as_bytes(message: bytes) -> Bytes:
    """A message as part of another one."""
    return np.frombuffer(message, np.uint8)


def _said(name: str, arguments: State) -> str:
    """An argument of a buffer, for an error."""
    if name != "fields":
        return f"{name}={arguments.get(name)!r}"
    made = {of: Field.from_config(config) for of, config in part_of(arguments, name, dict).items()}
    return ", ".join(f"{of}: {field.described}" for of, field in made.items())


def _each_once(envs: Any, n_envs: int) -> Ints:
    """Environments, ``i64[n]``, all for None; ShapeError if one is out of range, or named twice."""
    if len(rising := as_envs(envs, n_envs)) != np.size(rising if envs is None else envs) or not len(rising):
        raise ShapeError(f"a writer has one environment or more, each once, got {envs}")
    return rising if envs is None else as_integers("environments", envs)


def _step(ring: RingBuffer, steps: Any, begin: int, n: int) -> Iterator[tuple[str, Any]]:
    """The values of each field of a step of some environments, ``[n, *shape]``."""
    for name, field in ring.fields.items():
        values = steps[name][begin : begin + n]
        if field.is_ragged:
            values = [x[:length] for x, length in zip(values, steps[f"{name}_lengths"][begin : begin + n], strict=True)]
        yield name, values


def _after(ring: RingBuffer, method: str, envs: Ints) -> None:
    """End or drop the running episodes of some environments."""
    if method == "end_episodes":
        ring.end_episodes(envs)
    else:
        for env in envs.tolist():
            ring.drop_episode(env)
