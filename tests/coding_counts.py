"""Counts what stores are given, encode and decode, in suites of others that run with our classes.

It looks on: what it wraps does what it did, except that full blocks don't wait for others, and that no thread in the
background compresses them. What a store tries while it decides is not counted.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from obscodec import SlotError
from obscodec.frames import FrameLog, StepWriter, block_queue, sealer
from obscodec.frames.block_coder import BlockCoder
from obscodec.segments import Segments
from obscodec.stores import AutoStore
from obscodec.stores.auto import auto_store, looks, move


class CodingCounts:
    """Counts in this process, from when it is made.

    Args:
        decide_after: after how many tensors stores decide.
        block_frames: how many frames a block has.

    Attributes:
        given: tensors that stores were given.
        enough: those of them that came when there was enough for a full block: the store was given as many tensors as
            it decides after, and in one stream more different ones than a block has frames.
        encoded: blocks that were encoded.
        decoded: how often frames were read of a block that is encoded.
        compressed: how often of one that is made of patches, or that the codec made smaller.
    """

    def __init__(self, *, decide_after: int, block_frames: int) -> None:
        self.given = self.enough = self.encoded = self.decoded = self.compressed = 0
        self._decide_after, self._block_frames = decide_after, block_frames
        self._n_given: WeakKeyDictionary[AutoStore, int] = WeakKeyDictionary()
        self._different: WeakKeyDictionary[AutoStore, dict[int, set[int]]] = WeakKeyDictionary()
        self._callers = threading.local()
        self._stores: WeakKeyDictionary[StepWriter, AutoStore] = WeakKeyDictionary()
        block_queue._MANY_BLOCKS = 1, 1
        sealer.n_processors = lambda: 1  # none in the background
        move.MOVER.put = looks.LOOKER.put = sealer.TRAINER.put = _no_thread
        self._watch(
            AutoStore, "take_in", lambda store, tensors, which, streams, ids: self._give(store, tensors, streams)
        )
        self._watch(AutoStore, "step_writer", lambda *_: None, self._note_writer)
        self._watch(StepWriter, "write", lambda *_: None, self._give_step)
        self._watch(StepWriter, "write_both", lambda *_: None, self._give_step)
        self._watch(auto_store, "find_plan", lambda *_, **__: None)
        self._watch(BlockCoder, "seal", self._encode)
        self._watch(FrameLog, "read", self._decode)

    def taken(self) -> dict[str, int]:
        """All counts, which begin anew."""
        taken = {name: n for name, n in vars(self).items() if not name.startswith("_")}
        vars(self).update(dict.fromkeys(taken, 0))
        return taken

    def _watch(
        self, owner: Any, name: str, note: Callable[..., None], note_done: Callable[..., None] | None = None
    ) -> None:
        """Note each call of a function, unless another one of its owner makes it, or one that finds a plan.

        ``note`` gets the arguments before the call, ``note_done`` the result and the arguments after it.
        """
        function = getattr(owner, name)

        @wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            callers = vars(self._callers).setdefault("owners", [])
            if owner not in callers and auto_store not in callers:
                note(*args, **kwargs)
            callers.append(owner)
            try:
                result = function(*args, **kwargs)
            finally:
                callers.pop()
            if note_done is not None and owner not in callers:
                note_done(result, *args)
            return result

        setattr(owner, name, watched)

    def _give(self, store: AutoStore, tensors: Any, streams: Any) -> None:
        if (n := len(tensors)) == 0:
            return
        rows = np.ascontiguousarray(store._to_host(tensors)).reshape(n, -1)
        self.given += n
        self._n_given[store] = self._n_given.get(store, 0) + n
        different = self._different.setdefault(store, {})
        for stream, row in zip(np.resize(streams, n).tolist(), rows, strict=True):
            different.setdefault(stream, set()).add(hash(row.tobytes()))
        if self._n_given[store] >= self._decide_after:
            self.enough += n * any(len(of) > self._block_frames for of in different.values())

    def _note_writer(self, writer: StepWriter | None, store: AutoStore, n: int) -> None:
        if writer is not None:
            self._stores[writer] = store

    def _give_step(self, done: bool, writer: StepWriter, step: int, ids: object, *tensors: Any) -> None:
        if done and writer in self._stores:
            for of_array in tensors:
                self._give(self._stores[writer], of_array, np.arange(len(of_array)))

    def _encode(self, coder: object, blocks: Segments) -> None:
        self.encoded += len(blocks)

    def _decode(self, log: FrameLog, ids: Any, rows: object, threads: int) -> None:
        with suppress(SlotError):  # ``read`` will raise it
            ids = log.check(ids)
        numbers = np.unique(ids // log.block_frames)
        numbers = numbers[(numbers >= 0) & (numbers < log.n)]
        streams = log.heap.locate(numbers)
        self.decoded += int(np.count_nonzero(streams.lengths))
        self.compressed += sum(bool(len(block) and (log.coder.patches or block[0])) for block in streams)


def _no_thread(job: object) -> None:
    raise RuntimeError("can't start new thread")


def coded(counts: Mapping[str, Mapping[str, int]]) -> tuple[set[str], set[str], str]:
    """What some tests did.

    Args:
        counts: of each test, what :meth:`CodingCounts.taken` gave.

    Returns:
        The tests that give a store enough for a full block; those of them that encode such blocks, and decode them; all
        that in words.
    """
    enough = {test for test, of in counts.items() if of["enough"]}
    both = {test for test in enough if counts[test]["encoded"] and counts[test]["decoded"]}
    writing, compressing = (sum(of[name] > 0 for of in counts.values()) for name in ("given", "compressed"))
    encoded, decoded, smaller = (
        sum(of[name] for of in counts.values()) for name in ("encoded", "decoded", "compressed")
    )
    tests = (
        f"{writing} of {len(counts)} tests write, {len(enough)} enough for a block; {len(both)} of these encode blocks"
    )
    blocks = f"{encoded} blocks encoded, {decoded} decoded, {smaller} of which had become smaller"
    return enough, both, f"{tests} and decode some, {compressing} some that became smaller; {blocks}"
