"""Shards: draws batches from the buffers of several owners as from one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from queue import SimpleQueue
from threading import TIMEOUT_MAX, Condition, Thread
from time import monotonic
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_flag, as_number, check_kind, says_arguments
from obscodec.buffers import Rng, as_generator, batches_to, divided, importance, in_one_batch
from obscodec.errors import CorruptStream, ShapeError, SlotError, SpecError, Unreachable
from obscodec.runtime import says_errors
from obscodec.segments import Ints
from obscodec.shards.line import Address, Line, as_address, as_key, described
from obscodec.state import State, array_of, number_of, part_of
from obscodec.wire import EncodedBatch, Received

_PAUSE_S: Final = 0.5  # between attempts to connect
_MISSING: Final = Unreachable, SlotError  # what makes an owner give no rows, and does not concern the others
_WEIGHTS: Final = "$weights"  # no field has this name


class Where(NamedTuple):
    """Where the rows of a batch are from, for :meth:`Shards.update`.

    Attributes:
        shards: ``i64[batch]``, the positions of their owners in ``Shards.addresses``.
        indices: ``i64[batch]``, the indices in the buffers of these.
        lives: of each owner a number, which is another one after a crash; None if it gave no rows, or crashed.
    """

    shards: Ints
    indices: Ints
    lives: tuple[int | None, ...]


class Drawn(NamedTuple):
    """A batch of several shards.

    Attributes:
        batch: for each field an array ``[batch, *shape]``, or what ``to`` or ``convert`` makes of it.
        where: where its rows are from.
        weights: with priorities, importance weights ``f32[batch]``, factors of the losses of the rows; else None.
        missing: the owners that gave no rows though they may have steps, and why, such as no answer in time.
    """

    batch: Any
    where: Where
    weights: Any
    missing: dict[str, str]


class _Job:
    """A call of an owner; the answer, once it is there."""

    def __init__(self, call: State, n: int) -> None:
        self.call, self.n = call, n
        self.is_done = False
        self.answer: State | None = None
        self.line_number = 0
        self.error: Exception | None = None
        self.began = monotonic()


class _Shard:
    """An owner, called by a thread in the background, which waits for the answers and decodes nothing."""

    def __init__(self, address: Address, authkey: bytes, changed: Condition) -> None:
        self.address = address
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()  # calls to make soon; None ends the thread
        self.job: _Job | None = None  # the draw that runs, or has ended and was not taken
        self.update_error: Exception | None = None
        self.masses: dict[bool, float] = {}  # by whether they are of priorities
        self._changed = changed
        self._line = Line(address, authkey)
        self._received, self._received_of = Received(), 0  # the connection
        self._is_behind = False
        Thread(target=self._run, name="obscodec shard", daemon=True).start()

    def draw(self, call: State, n: int) -> _Job:
        """Ask for ``n`` rows, or what there is."""
        self.job = job = _Job({"call": "draw", "n": n, **call}, n)
        self.jobs.put(job)
        return job

    def close(self) -> None:
        """End the thread, as soon as the call that runs has ended."""
        self.jobs.put(None)

    def taken(self) -> tuple[State, Any] | None:
        """The answer of the draw, and its batch; None if there is no draw, or it is without rows or answer.

        Raises:
            ObscodecError: what the owner has raised, unless nobody answers.
        """
        job, self.job = self.job, None
        if job is None or job.answer is None:
            if job is not None and job.error is not None and not isinstance(job.error, _MISSING):
                raise job.error
            return None
        answer = job.answer
        mass = part_of(answer, "mass", float)
        if not 0 <= mass < np.inf:
            raise CorruptStream(f"{described(self.address)} has {mass} steps, or priorities with this sum")
        self.masses[job.call["by_priority"]] = mass
        if not job.n:
            return None
        if job.line_number != self._received_of:
            self._received, self._received_of = Received(), job.line_number
        self._is_behind = True  # of what the owner has sent, if this fails
        batch = EncodedBatch.from_bytes(part_of(answer, "batch", np.ndarray).data, self._received)
        self._is_behind = False
        return answer, batch

    def _run(self) -> None:
        tried = -_PAUSE_S
        while (job := self.jobs.get()) is not None:
            try:
                if self._is_behind:
                    self._line.close()
                    self._is_behind, tried = False, -_PAUSE_S
                if not self._line.is_open and monotonic() < tried + _PAUSE_S:
                    raise Unreachable(f"{described(self.address)} does not answer")
                tried = monotonic()
                job.answer = self._line.call(job.call)
                job.line_number = self._line.number
            except Exception as error:
                job.error = error
            with self._changed:
                job.is_done = True
                if job.call["call"] == "update" and not isinstance(job.error, Unreachable):
                    self.update_error = job.error or self.update_error
                self._changed.notify_all()
        self._line.close()


@says_arguments
class Shards:
    """Draws batches from the buffers of several :class:`Owner` as from one buffer that has all their steps.

    Each owner gives rows in proportion to the steps that it holds, or to the sum of their priorities, as of its last
    answer. One that does not answer in time is left out, until it does; the others give its rows. If these do not come
    in time either, some of the rows that are here come twice: a batch always has as many rows as were asked for.
    Batches come encoded, and are decoded here.

    One thread at a time draws; make another one for another thread. A context, whose end closes the connections.

    Args:
        addresses: where the owners serve, a host and a port each. Their buffers have the same fields.
        authkey: the secret that they serve with.
        timeout: a call waits at most so many seconds for its rows; an owner that does not answer in half of it is left
            out. To decode them comes on top, the first time with compiled code that ``obscodec warm`` prepares. None to
            wait for all of them: with a ``RateLimiter``, draws may wait for a while.

    Attributes:
        addresses: these.

    Raises:
        ShapeError: there is no address, or one twice.
        DTypeError: an argument has another type.
    """

    def __init__(self, addresses: Iterable[Address], authkey: bytes, *, timeout: float | None = 2.0) -> None:
        self.addresses = tuple(map(as_address, addresses))
        if not self.addresses or len({*self.addresses}) < len(self.addresses):
            raise ShapeError(f"shards are of one owner or more, each once, got {self.addresses}")
        self._timeout = None if timeout is None else min(as_number("timeout", timeout), TIMEOUT_MAX)
        self._changed = Condition()
        key, self._is_closed = as_key(authkey), False
        self._shards = [_Shard(address, key, self._changed) for address in self.addresses]

    @says_errors
    def sample(
        self,
        batch: int,
        rng: Rng = None,
        *,
        by_priority: bool = False,
        beta: float = 0.4,
        **how: Any,
    ) -> Drawn:
        """Random steps of all shards.

        How many are of each shard is its share of the batch, rounded up or down at random.

        Args:
            batch: how many steps.
            rng: a random generator, of numpy or PyTorch, or a seed; None for one that the system has seeded.
            by_priority: whether to draw by the priorities of the owners, in place of uniformly.
            beta: how much the weights make up for priorities, 1 entirely.
            **how: ``replace``, ``n_step``, ``gamma``, ``reward``, ``to`` and ``convert`` of ``RingBuffer.sample``.

        Raises:
            Unreachable: no owner answers.
            SlotError: none that answers has steps.
            Exception: what ``RingBuffer.sample`` raises.
        """
        return self._drawn("sample", batch, rng, by_priority, beta, how)

    @says_errors
    def sequences(
        self,
        batch: int,
        length: int,
        rng: Rng = None,
        *,
        by_priority: bool = False,
        beta: float = 0.4,
        **how: Any,
    ) -> Drawn:
        """Random sequences of all shards: see :meth:`sample`, and ``RingBuffer.sequences`` for what ``how`` takes."""
        return self._drawn("sequences", batch, rng, by_priority, beta, {**how, "length": length})

    @says_arguments
    def update(self, where: Where, priorities: npt.ArrayLike) -> None:
        """Give steps new priorities, such as the absolute TD errors of a batch; returns at once.

        Those of an owner that does not answer are dropped, and those of one that was started again since the draw.

        Args:
            where: ``where`` of a :class:`Drawn`.
            priorities: ``[batch]``, of 0 or more.

        Raises:
            ShapeError: their number is another one, or one is out of range.
            Exception: what an owner has raised about an earlier call.
        """
        check_kind("where", where, Where, "that of a batch: pass drawn.where")
        given = np.asarray(priorities, np.float64).reshape(-1)
        if len(given) != len(where.indices):
            raise ShapeError(f"there are {len(where.indices)} rows and {len(given)} priorities: pass one for each")
        if len(given) and not (given.min() >= 0 and given.max() < np.inf):
            raise ShapeError(f"priorities must be finite and 0 or more, got {given.min()} to {given.max()}")
        self._raise_of_updates()
        for k, (shard, life) in enumerate(zip(self._shards, where.lives, strict=True)):
            if life is not None and (shard.job is None or shard.job.is_done):
                rows = where.shards == k
                call: State = {"call": "update", "life": life}
                shard.jobs.put(_Job({**call, "indices": where.indices[rows], "priorities": given[rows]}, 0))

    def close(self) -> None:
        """Close the connections. Nothing happens if they are closed."""
        self._is_closed = True
        for shard in self._shards:
            shard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Shards({', '.join(map(described, self.addresses))})"

    def _drawn(self, method: str, batch: int, rng: Rng, by_priority: bool, beta: float, how: dict[str, Any]) -> Drawn:
        batch, rng, to = as_count("batch", batch), as_generator(rng), how.pop("to", None)
        by_priority, beta = as_flag("by_priority", by_priority), as_number("beta", beta)
        if self._is_closed:
            raise Unreachable("these Shards are closed: make others")
        check_kind("p", how.pop("p", None), type(None), "left out", ": by_priority=True draws by those of the owners")
        if how.pop("return_indices", None) is not None or to == "encoded":
            raise SpecError(
                "Shards returns where rows are as drawn.where, and decodes: leave out return_indices and to"
            )
        batches = batches_to(to, how.pop("convert", None))
        how = {name: of.item() if isinstance(of, np.generic) else of for name, of in how.items()}
        self._raise_of_updates()
        drawing = _Drawing(self, {"method": method, "by_priority": by_priority, "how": how}, rng)
        if not any(by_priority in shard.masses for shard in self._shards):
            drawing.ask(0, 0.25)  # what they have
        drawing.ask(batch, 0.5)
        drawing.ask(batch - drawing.n_rows, 1.0)  # in place of those that do not answer
        return drawing.drawn(batch, beta, batches)

    def _raise_of_updates(self) -> None:
        for shard in self._shards:
            error, shard.update_error = shard.update_error, None
            if error is not None:
                raise error


class _Drawing:
    """A batch that is being drawn from some shards."""

    def __init__(self, shards: Shards, call: State, rng: np.random.Generator) -> None:
        self.n_rows = 0
        self._of, self._call, self._rng = shards._shards, call, rng
        self._changed, self._timeout, self._began = shards._changed, shards._timeout, monotonic()
        self._parts: list[list[tuple[State, Any]]] = [[] for _ in self._of]
        self._expected = np.zeros(len(self._of))  # rows
        self._missing: dict[int, str] = {}
        self._why: Exception | None = None

    def ask(self, n: int, until: float) -> None:
        """Ask for ``n`` rows, and wait for them ``until`` a part of the timeout; none if the batch is complete."""
        if n <= 0 and self.n_rows:
            return
        asked = dict[int, _Job]()
        for k, shard in enumerate(self._of):
            if shard.job is not None and shard.job.is_done:
                with suppress(Exception):  # of an earlier batch, which it came too late for, or which has failed
                    shard.taken()
            if shard.job is not None:
                self._missing[k] = f"it has not answered for {monotonic() - shard.job.began:.1f} s"
        shares, counts = self._shares(), [0] * len(self._of)
        if any(shares):
            counts = divided(n, shares, self._rng).tolist()
        seeds: list[int] = self._rng.integers(0, 1 << 62, len(counts)).tolist()
        for k, shard in enumerate(self._of):
            if k not in self._missing:
                asked[k] = shard.draw({**self._call, "seed": seeds[k]}, counts[k])
        left = None if self._timeout is None else self._began + until * self._timeout - monotonic()
        with self._changed:
            self._changed.wait_for(lambda: all(job.is_done for job in asked.values()), left)
        for k, job in asked.items():
            if not job.is_done:
                self._missing[k] = f"it has not answered for {monotonic() - job.began:.1f} s"
            elif isinstance(job.error, _MISSING):
                self._missing[k], self._why = str(job.error), job.error
            if job.is_done and (taken := self._of[k].taken()) is not None:
                self._parts[k].append(taken)
                self._expected[k] += n * shares[k]
                self.n_rows += counts[k]

    def _shares(self) -> list[float]:
        """The part of the rows that each shard gives; all 0 if none has any."""
        by_priority = self._call["by_priority"]
        masses = [0.0 if k in self._missing else of.masses.get(by_priority, 0.0) for k, of in enumerate(self._of)]
        total = sum(masses) or 1.0
        return [mass / total for mass in masses]

    def drawn(self, n: int, beta: float, batches: Any) -> Drawn:
        """``n`` rows as one batch: all that came, and if these are fewer, some of them again."""
        missing = {described(self._of[k].address): why for k, why in sorted(self._missing.items())}
        found = [(k, *part) for k, parts in enumerate(self._parts) for part in parts]
        if not found:
            if isinstance(self._why, SlotError):
                raise self._why
            if len(missing) == len(self._of):
                why = "; ".join(f"{address}: {text}" for address, text in missing.items())
                raise Unreachable(f"no owner answers in time, {why}: start them, or pass a longer timeout")
            others = f"; {', '.join(missing)} did not answer" if missing else ""
            raise SlotError(f"no owner that answers has steps: wait until a writer has appended some{others}")
        given = [array_of(answer, "indices", np.int64, (None,)) for _, answer, _ in found]
        shards = np.repeat([k for k, *_ in found], [*map(len, given)])
        lives = [{number_of(answer, "life") for answer, _ in parts} for parts in self._parts]
        for k, of in enumerate(lives):
            if same := [described(self._of[j].address) for j in range(k) if lives[j] & of]:
                raise SpecError(f"{same[0]} and {described(self._of[k].address)} are one owner: name it once")
        arrays: list[Any] = [batch.read() for *_, batch in found]
        if self._call["by_priority"]:
            drawn = np.concatenate([array_of(answer, "probabilities", np.float64, (None,)) for _, answer, _ in found])
            weights = importance(drawn * (self._expected / self.n_rows)[shards], beta)
            parts = np.split(weights, np.cumsum([*map(len, given)])[:-1])
            arrays = [of | {_WEIGHTS: part} for of, part in zip(arrays, parts, strict=True)]
        joined, indices = in_one_batch(arrays), np.concatenate(given)
        if len(indices) < n:
            rows = np.append(np.arange(len(indices)), self._rng.integers(len(indices), size=n - len(indices)))
            joined = {name: x[rows] for name, x in joined.items()}
            shards, indices = shards[rows], indices[rows]
        joined = batches.batch(joined)
        weights = joined.pop(_WEIGHTS, None)
        where = Where(shards, indices, tuple(of.pop() if len(of) == 1 else None for of in lives))
        return Drawn(joined, where, weights, missing)
