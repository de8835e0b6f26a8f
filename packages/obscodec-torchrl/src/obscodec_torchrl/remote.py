"""RemoteStorage: a CompressedStorage as a worker has it."""

from __future__ import annotations

from obscodec import Calls
from torchrl.data import LazyTensorStorage


class RemoteStorage(LazyTensorStorage):  # type: ignore[misc]
    """What a worker is sent in place of a ``CompressedStorage``: it reads and writes that one, in the process of it.

    Slices are copies: what is written into them is in no storage.
    """

    get, set, _empty, flatten, stats = map(Calls.method, ("get", "set", "_empty", "flatten", "stats"))
    dumps, loads, state_dict, load_state_dict = map(Calls.method, ("dumps", "loads", "state_dict", "load_state_dict"))
    initialized, max_size, device = map(Calls.attribute, ("initialized", "max_size", "device"))
    _total_shape = Calls.attribute("_total_shape")
    __getstate__ = object.__getstate__  # that of TorchRL looks for contents
