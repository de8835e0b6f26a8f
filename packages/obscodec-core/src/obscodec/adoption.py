"""Adoption: frames of one FrameStore that go to another one as they are encoded, block by block."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from obscodec.blocks import Blocks
from obscodec.errors import CorruptStream
from obscodec.interrupts import uninterrupted
from obscodec.segments import Ints


def adopt(mine: Blocks, others: Blocks, ids: Ints, append: Callable[[Ints], Ints]) -> Ints:
    """Take frames over from the blocks of another store with such a coder.

    A block of which half of the frames are wanted goes as it is, with the others: alone, without the one before it,
    a frame takes several times as much. The frames of other blocks are decoded and appended.

    Args:
        mine: where they go.
        others: where they are.
        ids: ``i64[n]``, their ids there.
        append: called with different ids there, decodes these frames and appends them here; gives their ids here.

    Returns:
        ``i64[n]``, the ids here. The caller owns one reference to each.

    Raises:
        SlotError: an id is of no frame there.
        CorruptStream: a block there is damaged; nothing was stored.
        HeapFull: there is not enough room; nothing was stored.
    """
    frames, which, n_each = np.unique(np.append(0, ids), return_inverse=True, return_counts=True)
    adopted = np.zeros(len(frames), np.int64)
    if len(frames) > 1:
        adopted[1:] = _adopt_each(mine, others, frames[1:], n_each[1:], append)
    return adopted[which[1:]]


def _adopt_each(mine: Blocks, others: Blocks, frames: Ints, n_each: Ints, append: Callable[[Ints], Ints]) -> Ints:
    """Take over different frames, rising and without 0, with so many references to each."""
    try:
        offer, before = others.offer(frames)
        suits = mine.coder.suits(offer)
    except CorruptStream as error:
        raise CorruptStream(f"a block of the other store can't be taken over: {error}") from error
    as_is, ids = suits.repeat(offer.n_wanted), np.empty(len(frames), np.int64)
    rest = np.flatnonzero(~as_is)
    with uninterrupted():
        if len(rest):
            ids[rest] = append(frames[rest])
        try:
            ids[as_is] = mine.take(offer.take(suits), frames[as_is] % mine.block_frames, n_each[as_is])
        except BaseException:
            mine.release(ids[rest])
            raise
        mine.retain(ids[rest].repeat(n_each[rest] - 1))
        at = np.searchsorted(frames, before[as_is]).clip(max=len(frames) - 1)
        mine.set_previous(ids[as_is], np.where(frames[at] == before[as_is], ids[at], 0))
    return ids
