"""Answers: what an owner answers to writers and learners, and what each writer has done."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from threading import Lock
from time import time_ns
from typing import Any, Final, NamedTuple

import numpy as np

from obscodec.arguments import as_envs, as_integers
from obscodec.buffers import Prioritized, RateLimiter, RingBuffer
from obscodec.errors import FieldError, ShapeError, SnapshotError, SpecError, Unreachable
from obscodec.layout import same_values
from obscodec.runtime import LockOrder, PicklableLock
from obscodec.segments import Ints
from obscodec.shards.line import as_answer, as_message, of_message
from obscodec.state import State, array_of, number_of, part_of
from obscodec.wire import MAX_BYTES, EncodedBatch, Sent

_NO_LOCK: Final = nullcontext()
_DRAWS: Final = {
    "sample": {"replace", "n_step", "gamma", "reward"},
    "sequences": {"length", "overlap", "burn_in", "bootstrap", "dilation", "strict_length", "across_episodes"},
}
_TAKEN_OVER: Final = "another writer has taken the environments of this one over: make another Writer"
_LENGTHS: Final = "length", "burn_in", "bootstrap"
_LEAST_NBYTES: Final = 64  # that a row takes here while it is drawn
_AFTER: Final = {"end_episodes", "drop_episode"}  # what a writer may do behind its steps


Counts = tuple[dict[str, int], tuple[int, ...]]


class _Writer(NamedTuple):
    """What an owner has of a writer.

    Attributes:
        envs: its environments, ``i64[n]``, in the order of its values.
        n: how many of its changes are done: each step is one, and each call of :data:`_AFTER`.
    """

    envs: Ints
    n: int


class Answers:
    """Answers the calls of writers and learners of a buffer, each in a thread of its own.

    Attributes:
        lock: held while the buffer changes, and while the change is counted.
        saved: how many changes of each writer are on the disk, by its name; None if nothing is saved.
        limiter: see :class:`Owner`.
    """

    def __init__(self, buffer: RingBuffer, priorities: Prioritized | None, limiter: RateLimiter | None) -> None:
        self._buffer, self._priorities, self.limiter = buffer, priorities, limiter
        self.lock = PicklableLock(LockOrder.OWNER)
        self.saved: Mapping[str, int] | None = None
        self._drawing = Lock()  # of priorities, until those that were drawn are known
        self._writers: dict[str, _Writer] = {}
        self._turns: Ints = np.zeros(buffer.n_envs, np.int64)  # of the last writer of each environment, rising
        self._n_updates = 0
        self._life = secrets.randbits(62)  # of the indices: after a crash, they may be of other steps

    def __len__(self) -> int:
        """How many writers there are."""
        return len(self._writers)

    def counts(self) -> Counts:
        """How many changes of each writer are done; and what tells of other changes."""
        done = {name: writer.n for name, writer in self._writers.items()}
        return done, (self._buffer.n_appended, self._buffer.n_stored, self._n_updates)

    def state(self) -> State:
        """What an owner has beside its buffer; with the lock."""
        writers = [{"name": name, "envs": of.envs, "n": of.n} for name, of in self._writers.items()]
        p, limiter = self._priorities, self.limiter
        priorities = None if p is None else {"arguments": p.arguments(), "state": p.state()}
        state: State = {"writers": writers, "turns": self._turns, "priorities": priorities}
        if limiter is not None:
            state["limiter"] = {"n_inserted": limiter.n_inserted, "n_sampled": limiter.n_sampled}
        return state

    def restore(self, state: State) -> None:
        """Take over the :meth:`state` of an owner of such a buffer.

        Raises:
            CorruptStream: there is no such state.
            SnapshotError: its priorities were made with other arguments.
        """
        n_envs, writers = self._buffer.n_envs, dict[str, _Writer]()
        turns = array_of(state, "turns", np.int64, (n_envs,))
        for of in part_of(state, "writers", list):
            envs = _each_once(array_of(of, "envs", np.int64, (None,)), n_envs)
            writers[part_of(of, "name", str)] = _Writer(envs, number_of(of, "n"))
        inserted = sampled = None
        if self.limiter is not None and "limiter" in state:
            of_limiter = part_of(state, "limiter", dict)
            inserted, sampled = number_of(of_limiter, "n_inserted"), number_of(of_limiter, "n_sampled")
        if self._priorities is not None and state["priorities"] is not None:
            saved, mine = part_of(state["priorities"], "arguments", dict), self._priorities.arguments()
            if {**saved, "beta": None} != {**mine, "beta": None}:  # it changes while a learner trains
                raise SnapshotError(f"the folder has priorities with {saved}, these have {mine}: pass equal ones")
            self._priorities.restore(part_of(state["priorities"], "state", dict))
        if self.limiter is not None and inserted is not None and sampled is not None:
            self.limiter.n_inserted, self.limiter.n_sampled = inserted, sampled
        self._writers, self._turns = writers, turns

    def answered(self, message: bytes, sent: Sent) -> bytes:
        """The answer to a message, possibly of a stranger; only what is in it counts as sent."""
        try:
            told = sent.copy()
            answer = as_message(self.answer(of_message(message), told))
            sent.take_over(told)
        except Exception as error:
            return as_message(as_answer(error))
        return answer

    def answer(self, call: State, sent: Sent) -> State:
        """The answer to a call; ``sent`` gets what is in it."""
        answers = {
            "join": self._join,
            "append": self._append,
            "acknowledge": self._acknowledged,
            "draw": lambda call: self._draw(call, sent),
            "update": self._update,
        }
        name = part_of(call, "call", str)
        if name not in answers:
            raise SpecError(f"there is no call {name!r} in this version of obscodec")
        return answers[name](call)

    def _join(self, call: State) -> State:
        """A writer, for some environments; another one that has one of these is no longer heard.

        Nor when it connects again: its turn, which it got when it joined first, is over. Else its changes would count
        from 0, and come twice.
        """
        name, given, turn = part_of(call, "writer", str), call.get("envs"), number_of(call, "turn")
        envs = _each_once(given, self._buffer.n_envs)
        if "envs" in self._buffer.fields and len(envs) < self._buffer.n_envs:
            raise FieldError("a field has the name 'envs', so that all environments step together: leave envs out")
        with self.lock:
            known = self._writers.get(name)
            if known is None or not same_values(known.envs, envs):
                if turn and turn < self._turns[envs].max():
                    raise Unreachable(_TAKEN_OVER)
                others = {of: w for of, w in self._writers.items() if of == name or np.isin(w.envs, envs).any()}
                self._buffer.end_episodes(np.unique(np.concatenate([envs, *(w.envs for w in others.values())])))
                staying = {of: w for of, w in self._writers.items() if of not in others}
                turns = self._turns.copy()
                turns[envs] = turn or min(max(time_ns(), int(turns.max()) + 1), np.iinfo(np.int64).max)
                self._writers, self._turns = {**staying, name: _Writer(envs, 0)}, turns
            own: State = {"arguments": self._buffer.arguments(), "turn": int(self._turns[envs[0]])}
            own["saves"] = self.saved is not None
            return {**self._acknowledged(call), **own}

    def _known(self, call: State) -> tuple[str, _Writer]:
        name = part_of(call, "writer", str)
        if name not in self._writers:
            raise Unreachable(_TAKEN_OVER)
        return name, self._writers[name]

    def _acknowledged(self, call: State) -> State:
        """How many changes of a writer are done, and how many of them are on the disk."""
        name, writer = self._known(call)
        return {"n": writer.n, "n_saved": writer.n if self.saved is None else self.saved.get(name, 0)}

    def _append(self, call: State) -> State:
        """Do what a writer has sent, except what is done already."""
        first, message, after = number_of(call, "first"), part_of(call, "steps", np.ndarray), call.get("after")
        ring, (name, writer) = self._buffer, self._known(call)
        steps = EncodedBatch.from_bytes(message.data).read() if message.size else {}
        n_envs = len(writer.envs)
        at = {} if same_values(writer.envs, np.arange(ring.n_envs)) else {"envs": writer.envs}
        n = len(next(iter(steps.values()))) // n_envs if steps else 0
        done = self._done_before(name, first)
        for k in range(done - first, n):
            step = dict(_step(ring, steps, k * n_envs, n_envs))
            limiter = self.limiter
            with self.lock if limiter is None else limiter.turn("insert", n_envs, self.lock):
                is_new = self._count(name, first + k, partial(ring.append, **at, **step))
                if limiter is not None and not is_new:
                    limiter.count("insert", -n_envs)
        if after is not None and done <= first + n:
            method, given = part_of(after, "method", str), array_of(after, "envs", np.int64, (None,))
            envs = as_envs(given, ring.n_envs)
            if method not in _AFTER or not np.isin(envs, writer.envs).all():
                raise SpecError(f"a writer can't call {method!r} for these environments")
            with self.lock:
                self._count(name, first + n, partial(_after, ring, method, envs))
        return self._acknowledged(call)

    def _done_before(self, name: str, first: int) -> int:
        """How many changes of a writer are done that sends those from ``first`` on; what lies between is lost."""
        with self.lock:
            _, writer = self._known({"writer": name})
            if first > writer.n:
                self._buffer.end_episodes(writer.envs)
                self._writers[name] = writer = writer._replace(n=first)
            return writer.n

    def _count(self, name: str, n: int, change: Callable[[], None]) -> bool:
        """Make the change number ``n`` of a writer, unless it is done; with the lock. Returns whether it was not."""
        _, writer = self._known({"writer": name})
        if is_new := writer.n == n:
            counted, n_before = writer._replace(n=n + 1), self._buffer.n_appended
            try:
                change()
            except MemoryError:
                if self._buffer.n_appended == n_before:
                    raise  # else it came when the step was stored
            self._writers[name] = counted  # no failed allocation comes between
        return is_new

    def _draw(self, call: State, sent: Sent) -> State:
        """A batch of this shard, encoded; and what it has, by which learners divide the next one."""
        n, method = number_of(call, "n"), part_of(call, "method", str)
        how, by_priority = part_of(call, "how", dict), part_of(call, "by_priority", bool)
        if method not in _DRAWS or not how.keys() <= _DRAWS[method]:
            raise SpecError(f"a learner can't call {method!r} with {[*how]} in this version of obscodec")
        p = self._priorities if by_priority else None
        if by_priority and p is None:
            raise SpecError("this owner has no priorities: pass a Prioritized to Owner, or draw uniformly")
        answer: State = {"life": self._life}
        length, *more = (of if type(of) is int and of > 0 else 0 for of in map(how.get, _LENGTHS))
        n_steps, n_longest = n * (length or 1), n * max(1, length + sum(more))
        if n_longest * max(_LEAST_NBYTES, sum(of.layout.nbytes for of in self._buffer.fields.values())) > MAX_BYTES:
            raise ShapeError(
                f"{n} rows take more than {MAX_BYTES >> 20} MiB, which no learner reads: draw fewer at once"
            )
        limiter = self.limiter if n else None
        turn = _NO_LOCK if limiter is None else limiter.turn("sample", n_steps)
        with turn, _NO_LOCK if p is None else self._drawing:
            if n:
                answer |= self._encoded(method, n, call, {**how, "p": p}, sent)
            if p is None:
                return {**answer, "mass": float(self._buffer.n_stored)}
            if n:
                answer["probabilities"] = p.probabilities(answer["indices"])
            else:
                self._tell(p)
            return {**answer, "mass": p.total}

    def _tell(self, priorities: Prioritized) -> None:
        """Tell the priorities which steps there are."""
        if len(self._buffer):
            self._buffer.sample(0, p=priorities)

    def _encoded(self, method: str, n: int, call: State, how: dict[str, Any], sent: Sent) -> State:
        draw = getattr(self._buffer, method)
        batch, indices = draw(n, rng=number_of(call, "seed"), to="encoded", return_indices=True, **how)
        return {"batch": np.frombuffer(batch.to_bytes(sent), np.uint8), "indices": indices}

    def _update(self, call: State) -> State:
        if self._priorities is None:
            raise SpecError("this owner has no priorities: pass a Prioritized to Owner")
        if number_of(call, "life") == self._life:
            indices, priorities = (part_of(call, name, np.ndarray) for name in ("indices", "priorities"))
            with self._drawing:
                self._tell(self._priorities)
                self._priorities.update(indices, priorities)
            self._n_updates += 1
        return {}


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
