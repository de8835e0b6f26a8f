"""Stores keep tensors under integer ids.

A store gives an id for a tensor, and the tensor for the id. It never knows arrays of steps, only places of ids in them.
"""

from obscodec.stores.auto.ahead import compile_here, load_ahead
from obscodec.stores.auto.auto_store import AutoStore
from obscodec.stores.auto.candidates import frames_of_block
from obscodec.stores.auto.options import StoreOptions
from obscodec.stores.auto.plan import StoragePlan, find_frame_stack, find_plan
from obscodec.stores.auto.shown import Shown, shown_first
from obscodec.stores.batch_memory import BATCH_MEMORY, BatchMemory, new_batch
from obscodec.stores.exchange import Place
from obscodec.stores.frame_store import FrameStore
from obscodec.stores.narrow.narrow import Narrow
from obscodec.stores.references import Guard
from obscodec.stores.store import Store, store_of
from obscodec.stores.stored_part import StoredPart

__all__ = [
    "BATCH_MEMORY",
    "AutoStore",
    "BatchMemory",
    "FrameStore",
    "Guard",
    "Narrow",
    "Place",
    "Shown",
    "StoragePlan",
    "Store",
    "StoreOptions",
    "StoredPart",
    "compile_here",
    "find_frame_stack",
    "find_plan",
    "frames_of_block",
    "load_ahead",
    "new_batch",
    "shown_first",
    "store_of",
]
