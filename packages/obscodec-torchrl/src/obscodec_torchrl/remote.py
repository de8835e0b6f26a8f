"""RemoteStorage: a CompressedStorage as a worker has it."""

from __future__ import annotations

from typing import Any

from obscodec import Calls
from torchrl.data import LazyTensorStorage


class RemoteStorage(LazyTensorStorage):  # type: ignore[misc]
    """What a worker is sent in place of a ``CompressedStorage``: it reads and writes that one, in the process of it.

    Slices are copies: what is written into them is in no storage.
    """

    get, set, _empty, flatten, stats = map(Calls.method, ("get", "set", "_empty", "flatten", "stats"))
    dumps, loads = map(Calls.method, ("dumps", "loads"))
    state_dict, load_state_dict = map(Calls.method, ("state_dict", "load_state_dict"))
    initialized, max_size = map(Calls.attribute, ("initialized", "max_size"))
    device, _total_shape = map(Calls.attribute, ("device", "_total_shape"))

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_rng": None}
