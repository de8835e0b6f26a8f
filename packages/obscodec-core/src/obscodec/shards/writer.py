"""Writer: sends steps to an owner, and keeps them until the owner has saved them."""

from __future__ import annotations

import atexit
import os
import secrets
import time
from collections import deque
from multiprocessing import AuthenticationError
from threading import TIMEOUT_MAX, Condition, RLock, Thread
from time import monotonic
from typing import Any, Final, NamedTuple, Never, Self

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_integers, as_number, says_arguments, warn
from obscodec.buffers import MIN_COMPRESSED_NBYTES, Field, RingBuffer
from obscodec.errors import FieldError, ShapeError, SpecError, Unreachable
from obscodec.runtime import says_errors
from obscodec.segments import Bytes, Ints
from obscodec.shards.line import Address, Line, as_address, as_key, described
from obscodec.state import State, number_of, part_of
from obscodec.wire import SENDING_CODEC

_CHUNK_NBYTES: Final = 1 << 20  # of decoded steps, which are encoded in a millisecond or two
_MOST_STEPS: Final = 128
_N_LOOKED_AT: Final = 32  # tensors, for how they are made of frames
_LINGER_S: Final = 1.0  # after which steps are sent, however few
_ASK_S: Final = 0.5  # for what is saved, and between attempts to connect
_JOIN_S: Final = 10.0
_NO_STEPS: Final[Bytes] = np.empty(0, np.uint8)


class Waiting(NamedTuple):
    """What a writer keeps, in steps of all its environments together.

    Attributes:
        n_unsent: steps that the owner has not confirmed.
        n_unsaved: steps that a crash of the owner would lose, if this writer did not keep them: the others among them.
            Of an owner without a folder, those that are not stored.
        nbytes: bytes of memory that they take here.
        silent_s: for how many seconds the owner has not answered, 0 if it does.
    """

    n_unsent: int
    n_unsaved: int
    nbytes: int
    silent_s: float


class _Chunk(NamedTuple):
    """Some steps, encoded, and what is done behind them. The owner counts changes: each step, and what is done behind.

    Attributes:
        first: the number of its first change.
        n_steps: how many steps, of all environments together.
        message: the steps; None if they are forgotten.
        after: what is done behind them, or None.
        n_encoded: steps of this chunk and all before it.
        nbytes: bytes of this message and all before it.
    """

    first: int
    n_steps: int
    message: Bytes | None
    after: State | None
    n_encoded: int
    nbytes: int

    @property
    def end(self) -> int:
        """The number of the first change behind it."""
        return self.first + self.n_steps + (self.after is not None)

    def n_behind(self, n: int) -> int:
        """How many of its steps are not among the first ``n`` changes."""
        return max(0, self.first + self.n_steps - max(n, self.first))


@says_arguments
class Writer:
    """Appends steps to the buffer of an :class:`Owner` in another process; a thread in the background sends them.

    Some steps are encoded and sent together, as soon as there are 128 or a mebibyte, or one second old when the next
    one comes. The writer keeps them until the owner has saved them: if the owner crashes, and is started again, they
    are sent again, and each is stored once. While the owner does not answer, the writer goes on to collect steps.

    A context, whose end waits until all steps are stored.

    Args:
        address: where the owner serves, a host and a port.
        authkey: the secret that the owner serves with.
        envs: which environments of the buffer this writer has, ``i64[n]``, or the number of one; they step together.
            None for all. An earlier writer of one of them is no longer heard, and its episodes end.
        max_bytes: how many bytes of steps it keeps. If there are more, it forgets the oldest ones that are stored and
            not saved, which a crash of the owner would lose; and :meth:`append` waits if none is stored.
        timeout: for how many seconds it waits for the owner before it raises: when it is made, in :meth:`append`, if it
            keeps too much, in :meth:`flush` and :meth:`close`. When it is made, it may take 20 seconds more to find
            that somebody listens there, and says nothing.

    Attributes:
        envs: the environments.
        n_lost: how many steps are lost: the owner had not saved them when it crashed, and this writer had no room to
            keep them, of which a warning tells; or another writer took the environments over before they were sent.

    Raises:
        Unreachable: nobody answers at the address, or somebody with another secret.
        ShapeError: there is no such environment, or a number is out of range.
        DTypeError: an argument has another type.
    """

    def __init__(
        self,
        address: Address,
        authkey: bytes,
        envs: npt.ArrayLike | None = None,
        *,
        max_bytes: int = 1 << 28,
        timeout: float = 60.0,
    ) -> None:
        self._line = Line(as_address(address), as_key(authkey))
        self._max_bytes, self._timeout = as_count("max_bytes", max_bytes), _as_seconds(timeout)
        self._name = secrets.token_hex(8)
        self._given: Ints | None = None if envs is None else np.atleast_1d(as_integers("environments", envs))
        self._turn = 0  # which the owner gives
        self.n_lost = self._n_told = 0
        self._appending, self._changed = RLock(), Condition()
        self._kept: deque[_Chunk] = deque()  # those that are forgotten first
        self._last = _Chunk(0, 0, None, None, 0, 0)  # that is saved or forgotten
        self._n_done = self._n_saved = 0  # changes
        self._gone = self._last  # all that is not with the owner of what comes before its end was counted as lost
        self._error: BaseException | None = None
        self._end: Unreachable | None = None  # another writer has the environments
        self._answered = self._appended = monotonic()
        self._is_closed = False
        arguments = self._joined_at_once()
        fields = {name: Field.from_config(of) for name, of in part_of(arguments, "fields", dict).items()}
        self.envs = np.arange(part_of(arguments, "n_envs", int)) if self._given is None else self._given
        self._given = self.envs  # also of an owner that is started again with more of them
        self._knows_episodes = bool(arguments["episode_end"])
        # A ring of its own checks steps, shares the frames of observations and next ones, and encodes.
        nbytes = len(self.envs) * sum(of.layout.nbytes for of in fields.values())
        self._chunk = max(1, min(_MOST_STEPS, _CHUNK_NBYTES // max(1, nbytes)))
        self._ring = RingBuffer(
            self._chunk, {name: _sent(of) for name, of in fields.items()}, len(self.envs), threads=1
        )
        self._process = os.getpid()
        self._thread = Thread(target=self._run, name="obscodec writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @says_errors
    def append(self, *unnamed: Never, **values: Any) -> None:
        """Store one step of all environments of this writer; see ``RingBuffer.append``. A refused call changes nothing.

        Raises:
            Unreachable: the owner does not answer, and there is no more room; or another writer has these environments.
            Exception: what ``RingBuffer.append`` raises, here or at the owner.
        """
        if "envs" in values and "envs" not in self._ring.fields:
            raise FieldError("a writer appends a step of all its environments: make another Writer for the others")
        with self._appending:
            self._check()
            self._make_room()
            now, n = monotonic(), self._n_unencoded()
            if n >= self._chunk or (n and now - self._appended > _LINGER_S):
                self._encode()
                n = 0
            self._ring.append(*unnamed, **values)
            if not n:
                self._appended = now

    def end_episodes(self, envs: npt.ArrayLike | None = None) -> None:
        """End the running episodes: see ``RingBuffer.end_episodes``. ``envs`` are numbers of the owner's buffer."""
        self._then("end_episodes", self._own(envs))

    def drop_episode(self, env: int | None = None) -> None:
        """Take the running episode out: see ``RingBuffer.drop_episode``. ``env`` is a number of the owner's buffer."""
        if not self._knows_episodes:
            raise FieldError("drop_episode needs to know where the episode began: pass episode_end to RingBuffer")
        envs = self._own(env)
        if len(envs) != 1:
            raise ShapeError(f"this writer has {len(envs)} environments: name one of {envs.tolist()}")
        self._then("drop_episode", envs)

    @says_arguments
    def flush(self, timeout: float | None = None, *, saved: bool = False) -> None:
        """Wait until the owner has stored all steps.

        Args:
            timeout: for how many seconds, None for that of the writer.
            saved: whether to wait until they are on its disk, too, which takes as long as its ``save_every``.

        Raises:
            Unreachable: it has not. The steps stay, and are sent as soon as it answers.
            SpecError: ``saved`` is True, and the owner has no folder.
        """
        if saved and not self._saves:
            raise SpecError("the owner has no folder, and saves nothing: make it with Owner(..., folder=...)")
        with self._appending:
            self._encode()
        seconds = self._timeout if timeout is None else _as_seconds(timeout)
        with self._changed:
            self._changed.wait_for(lambda: self._has_all(saved) or self._error is not None, seconds)
            self._check()
            if not self._has_all(saved):
                what = f"has not {'saved' if saved else 'stored'} all steps in {seconds:g} s"
                raise Unreachable(f"{described(self._line.address)} {what}: {self.waiting()}")

    def _has_all(self, saved: bool) -> bool:
        return (min(self._n_done, self._n_saved) if saved else self._n_done) >= self._newest.end

    def waiting(self) -> Waiting:
        """What is not stored or saved yet."""
        with self._changed:
            n_envs, n = len(self.envs), self._n_unencoded()
            unsent = sum(of.n_behind(self._n_done) for of in self._kept) + n
            unsaved = sum(of.n_behind(self._n_saved) for of in self._kept) + n
            silent = 0.0 if self._line.is_open else monotonic() - self._answered
            return Waiting(unsent * n_envs, unsaved * n_envs, self._nbytes, silent)

    def close(self) -> None:
        """:meth:`flush`, and let the owner go: a crash of it may lose the last steps from then on.

        Nothing happens if it is closed. The end of the program closes it; SIGTERM does not, unless a handler turns it
        into an exception.
        """
        with self._appending:  # another thread can't append what nobody would send
            if self._is_closed or self._process != os.getpid():
                return
            atexit.unregister(self.close)
            try:
                self.flush()
            finally:
                with self._changed:
                    self._is_closed = True
                    self._changed.notify_all()
        self._thread.join(_ASK_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Writer(to {described(self._line.address)}, {len(self.envs)} environments, {self.waiting()})"

    def _own(self, envs: Any) -> Ints:
        chosen = self.envs if envs is None else np.unique(as_integers("environments", envs))
        if not np.isin(chosen, self.envs).all():
            raise ShapeError(f"this writer has the environments {self.envs.tolist()}, got {chosen.tolist()}")
        return chosen

    def _check(self) -> None:
        """Raise what the owner has answered; it is tried again, so that a lack of memory may pass."""
        if self._is_closed:
            raise Unreachable("this writer is closed: make another one")
        if self._end is not None:
            raise Unreachable(str(self._end)) from self._end
        with self._changed:
            error, self._error = self._error, None
            self._changed.notify_all()
        if error is not None:
            raise error
        if self.n_lost > self._n_told:
            n, self._n_told = self.n_lost - self._n_told, self.n_lost
            warn(f"{described(self._line.address)} has lost {n} steps of this writer, which it had not saved")

    def _make_room(self) -> None:
        """Wait while the owner has not stored what this writer may keep."""
        if self._nbytes < self._max_bytes:
            return
        with self._changed:
            has_room = self._changed.wait_for(lambda: self._has_room() or self._error is not None, self._timeout)
        self._check()
        if not has_room:
            what = f"{described(self._line.address)} does not answer, and steps of {self._nbytes} bytes wait for it"
            raise Unreachable(f"{what}: start it again, or pass a larger max_bytes")

    def _has_room(self) -> bool:
        """Forget stored steps until there is room; with the lock."""
        for k, chunk in enumerate(self._kept):
            if self._nbytes < self._max_bytes or chunk.end > self._n_done:
                break
            if chunk.message is not None:
                self._kept[k] = self._last = chunk._replace(message=None)
        return self._nbytes < self._max_bytes

    @property
    def _newest(self) -> _Chunk:
        with self._changed:
            return self._kept[-1] if self._kept else self._last

    @property
    def _nbytes(self) -> int:
        with self._changed:
            return self._newest.nbytes - self._last.nbytes

    def _n_unencoded(self) -> int:
        return self._ring.n_appended // len(self.envs) - self._newest.n_encoded

    def _then(self, method: str, envs: Ints) -> None:
        with self._appending:
            self._check()
            self._encode({"method": method, "envs": envs})

    def _encode(self, after: State | None = None) -> None:
        """Keep the steps since the last call, encoded, to be sent."""
        newest, n_steps, message = self._newest, self._n_unencoded(), _NO_STEPS
        if n_steps:
            indices = newest.n_encoded * len(self.envs) + np.arange(n_steps * len(self.envs))
            message = np.frombuffer(self._ring.take(indices, to="encoded").to_bytes(threads=1), np.uint8)
        elif after is None:
            return
        made = _Chunk(newest.end, n_steps, message, after, newest.n_encoded + n_steps, newest.nbytes + len(message))
        with self._changed:
            self._kept.append(made)
            self._changed.notify_all()

    # In the background.

    def _join(self) -> State:
        call = {"call": "join", "writer": self._name, "envs": self._given, "turn": self._turn}
        try:
            answer = self._line.call(call, _JOIN_S)
        except BaseException:
            self._line.close()  # the owner does not know this writer, who must join before he says anything else
            raise
        self._turn, self._saves = number_of(answer, "turn"), part_of(answer, "saves", bool)
        return answer

    def _joined_at_once(self) -> State:
        """The arguments of the buffer, from an owner that may be about to start."""
        end = monotonic() + self._timeout
        while True:
            try:
                return part_of(self._join(), "arguments", dict)
            except Unreachable as error:
                if monotonic() + _ASK_S > end or isinstance(error.__cause__, AuthenticationError):
                    raise
            time.sleep(_ASK_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work, _ASK_S)
                if self._is_closed:
                    break
                if self._error is not None:
                    continue
                chunk = next((of for of in self._kept if of.end > self._n_done), None)
            try:
                self._say(chunk)
            except Unreachable as error:
                if error.__cause__ is None:  # the owner says that there is another writer
                    self._give_up(error)
                    break
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed, _ASK_S)
            except Exception as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
        self._line.close()

    def _has_work(self) -> bool:
        return self._is_closed or (self._error is None and self._n_done < self._newest.end)

    def _say(self, chunk: _Chunk | None) -> None:
        """Send a chunk, or ask for what is saved."""
        if not self._line.is_open:
            self._take_over(self._join())
            return
        if chunk is None:
            self._take_over(self._line.call({"call": "acknowledge", "writer": self._name}))
            return
        call = {"call": "append", "writer": self._name, "first": chunk.first, "steps": chunk.message}
        self._take_over(self._line.call({**call, "after": chunk.after}))

    def _take_over(self, answer: State) -> None:
        """Note what the owner has; after a crash that may be less than it had, and less than this writer has kept."""
        n, n_saved = number_of(answer, "n"), number_of(answer, "n_saved")
        with self._changed:
            self._answered = monotonic()
            if n < self._last.end:  # what this writer has not any more
                self.n_lost += self._n_lost(n) * len(self.envs)
                self._gone = self._last
            self._n_done, self._n_saved = max(n, self._last.end), n_saved
            while self._kept and self._kept[0].end <= n_saved:
                if self._kept[0].message is not None:
                    self._last = self._kept[0]
                self._kept.popleft()
            self._has_room()
            self._changed.notify_all()

    def _n_lost(self, n: int) -> int:
        """How many steps are lost, and were not counted so far, if the owner has ``n`` changes; with the lock."""
        forgotten = [of for of in self._kept if of.message is None]
        saved_end = forgotten[0].first if forgotten else self._last.end  # what came before was on its disk
        n_saved_steps = forgotten[0].n_encoded - forgotten[0].n_steps if forgotten else self._last.n_encoded
        lost = sum(of.n_behind(max(n, self._gone.end)) for of in forgotten)
        if n <= self._gone.end < saved_end:
            return lost + n_saved_steps - self._gone.n_encoded
        return lost + max(0, saved_end - max(n, self._gone.end))

    def _give_up(self, error: Unreachable) -> None:
        with self._changed:
            self.n_lost = self._n_told = self.n_lost + self.waiting().n_unsent
            self._error = self._end = error
            self._changed.notify_all()


def _as_seconds(timeout: float) -> float:
    return min(as_number("timeout", timeout), TIMEOUT_MAX)


def _sent(field: Field) -> Field:
    """A field of the ring that encodes what is sent."""
    keeps = {name: getattr(field, name) for name in ("shares", "next_of", "after")}
    if field.owner is not None:
        return Field(field.shape, field.dtype, **keeps)
    is_small = field.layout.nbytes < MIN_COMPRESSED_NBYTES and not field.is_ragged
    codec = None if field.codec is None or is_small else SENDING_CODEC
    stack = None if field.is_ragged else field.frame_stack
    return Field(field.shape, field.dtype, codec, frame_stack=stack, decide_after=_N_LOOKED_AT)
