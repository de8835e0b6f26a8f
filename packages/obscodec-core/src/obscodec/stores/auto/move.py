"""Move: the choice of an AutoStore, and the move of its first tensors, in the background."""

from functools import partial
from typing import Protocol
from weakref import ref

from obscodec.errors import HeapFull
from obscodec.kernels import release_left_locks
from obscodec.runtime import Background, Job, LockOrder, PicklableLock, give_back_free_memory
from obscodec.stores.auto.plan import StoragePlan

MOVER = Background(None)  # one store after the other


class Choosing(Protocol):
    """An AutoStore, as far as its first tensors are concerned."""

    @property
    def has_moved(self) -> bool:
        """Whether all first tensors are in the chosen store."""

    def choose(self, plan: StoragePlan | None) -> None:
        """Choose the store to which they move."""

    def move_some(self) -> bool:
        """Move some; whether others wait."""


class Move:
    """What an AutoStore does in the background. Safe to use from several threads.

    A forked process does not have the work that is under way, and begins anew. Where there can be no other thread, the
    caller does the work.
    """

    def __init__(self, store: Choosing) -> None:
        self.lock = PicklableLock(LockOrder.MOVING)  # held while some tensors move
        self._store = ref(store)
        self._job: Job[None] | None = None

    def begin(self, plan: StoragePlan | None = None) -> None:
        """Begin to work as ``plan`` says, or else as the first tensors show, unless the work is under way, or done.

        Raises:
            HeapFull: the chosen store has not enough room; raised here if the caller does the work.
        """
        store, job = self._store(), self._job
        if (store is not None and store.has_moved) or (job is not None and job.is_here):
            return
        job = Job(partial(_work, self._store, self.lock, plan))
        try:
            MOVER.put(job)
        except RuntimeError:  # there can be no other thread
            job.run()
            job.result()
        self._job = job

    @property
    def is_under_way(self) -> bool:
        """Whether the work has begun, and has not ended."""
        job = self._job
        return job is not None and job.is_under_way

    def check(self) -> None:
        """Raise the exception that has ended the work, if one has; the work can begin again then."""
        release_left_locks()  # for which the work might wait
        job = self._job
        if job is not None and job.is_done and job.is_here:
            self._job = None
            if (error := job.error) is not None:
                kind = next((kind for kind in (HeapFull, MemoryError) if isinstance(error, kind)), RuntimeError)
                raise kind(f"the first tensors could not be moved to the store that was chosen: {error}") from error

    def wait(self) -> None:
        """Wait until the work, which has begun, is done.

        Raises:
            HeapFull: the chosen store has not enough room.
        """
        release_left_locks()
        job = self._job
        if job is not None and job.is_here:
            job.wait()
            self.check()


def _work(known: ref[Choosing], lock: PicklableLock, plan: StoragePlan | None) -> None:
    """Choose, and move tensors, as long as the store exists and some wait."""
    if (store := known()) is not None:
        store.choose(plan)
    while store is not None:
        with lock:
            goes_on = not store.has_moved and store.move_some()
        del store
        store = known() if goes_on else None
    give_back_free_memory()
