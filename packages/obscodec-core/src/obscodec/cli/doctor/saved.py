"""Saved buffers as a source of data: their items in the order of time."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from obscodec.buffers import MIN_COMPRESSED_NBYTES, Array
from obscodec.snapshots import named, opened_steps


class SavedItems(NamedTuple):
    """Items ``[n, *shape]`` by field, and why other fields are not among them."""

    items: dict[str, Array]
    left_out: dict[str, str]


def saved_items(path: Path, n: int) -> SavedItems:
    """The oldest ``n`` items of a snapshot, of the first environment, in the order of time.

    The whole snapshot is read, which finds damage. Large fields that share frames are the observations but for one.

    Raises:
        SnapshotError: the snapshot has no items, a file is damaged, or an item can't be decoded.
        MissingPackage: a package has written it that is not installed.
    """
    with opened_steps(path) as steps, named(path):
        oldest = np.arange(min(n, steps.n))
        own = [x for x, of in steps.layouts.items() if x not in steps.shared or of.nbytes < MIN_COMPRESSED_NBYTES]
        items = {name: steps.read(name, oldest, np.zeros_like(oldest)) for name in own}
        return SavedItems(items, dict(steps.left_out))
