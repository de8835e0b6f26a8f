"""Transfer: copies frames of one FrameStore to another store as they are encoded, block by block."""

from collections.abc import Callable

import numpy as np

from obscodec.errors import CorruptStream
from obscodec.frames.frame_log import FrameLog
from obscodec.segments import Ints

# ``append(frames, which, ids)`` decodes frames of the other store by their ids, all different, and takes them in; see
# ``Store.take_in``.
Append = Callable[[Ints, Ints, Ints], None]


def transfer_frames(mine: FrameLog, others: FrameLog, ids: Ints, append: Append, out: Ints) -> None:
    """Take frames over from another store with an equal coder.

    A block of which half of the frames or more are wanted is copied as a whole, with the other frames: without the
    frame before it, a frame takes several times as much. The frames of other blocks are decoded and appended.

    Args:
        mine: the store that gets the frames.
        others: the other store.
        ids: ``i64[n]``, the ids of the frames in the other store.
        append: decodes and appends frames, see ``Append``.
        out: ``i64[n]`` of zeros, filled in one step with the ids in this store, each with a reference.

    Raises:
        SlotError: an id is of no frame in the other store.
        CorruptStream: a block of the other store is damaged; nothing was stored.
        HeapFull: there is not enough room; nothing was stored.
    """
    order = np.flatnonzero(ids)
    order = order[np.argsort(ids[order], kind="stable")]
    frames, n_each = np.unique(ids[order], return_counts=True)
    if len(frames) == 0:
        return
    try:
        export, before = others.export_blocks(frames)
        accepted = mine.coder.accepts(export)
    except CorruptStream as error:
        raise CorruptStream(f"a block of the other store can't be taken over: {error}") from error
    as_is = accepted.repeat(export.n_wanted)
    held = np.zeros(len(order), np.int64)  # the ids here of ids[order]
    taken, rest = np.zeros(n_each[as_is].sum(), np.int64), np.zeros(n_each[~as_is].sum(), np.int64)
    are_taken = as_is.repeat(n_each)
    try:
        if len(rest):
            append(frames[~as_is], np.arange(np.count_nonzero(~as_is)).repeat(n_each[~as_is]), rest)
        if len(taken):
            mine.take_blocks(export.take(accepted), frames[as_is] % mine.block_frames, n_each[as_is], taken)
        held[are_taken], held[~are_taken] = taken, rest
        here = held[np.cumsum(n_each) - n_each]  # of each frame
        at = np.searchsorted(frames, before[as_is]).clip(max=len(frames) - 1)
        mine.set_previous(here[as_is], np.where(frames[at] == before[as_is], here[at], 0))
        out[order] = held
    finally:
        if not held.any() or not np.array_equal(out[order], held):  # an exception came before the ids were handed over
            mine.give_back(np.concatenate([taken, rest]))
