"""Lossless codecs, compressed stores and a ring buffer for the observations of reinforcement learning."""

from importlib import import_module
from typing import TYPE_CHECKING

from obscodec.arguments import as_count, as_flag, check_kind
from obscodec.arrays.deferred_read import ReadAhead, Reading, Selected, open_reading
from obscodec.arrays.drawn_array import DrawnArray, drawn, drawn_together
from obscodec.arrays.geometry import strided_view, strides_of
from obscodec.arrays.indexing import steps_of
from obscodec.arrays.new_array import NewArray
from obscodec.arrays.packing_together import note_of, pack_together, unpack_together
from obscodec.arrays.part_array import PartArray
from obscodec.arrays.tensor_array import TensorArray
from obscodec.buffers.array_stats import ArrayStats
from obscodec.codecs.bytes_codec import BytesCodec
from obscodec.codecs.codec import Codec
from obscodec.codecs.encode import decode, encode
from obscodec.codecs.encoded import EncodedTensor
from obscodec.codecs.filter import Filter
from obscodec.codecs.packing import pack, unpack
from obscodec.codecs.registry import available, codec, codec_from_config
from obscodec.codecs.stage import Levels
from obscodec.devices.backend import Backend
from obscodec.devices.frame_reader import FrameChanges, FrameForm, FrameReader, ListedChanges
from obscodec.devices.tensor_coder import TensorCoder
from obscodec.errors import (
    BackendUnavailable,
    CorruptStream,
    DictionaryMissing,
    DTypeError,
    FieldError,
    HeapFull,
    LayoutError,
    LevelError,
    MissingPackage,
    ObscodecError,
    ShapeError,
    SlotError,
    SpecError,
)
from obscodec.heap.memory import HOST, HeapMemory, Places, Streams
from obscodec.heap.slot_heap import HeapStats, SlotHeap
from obscodec.layout.as_array import as_array, as_numbers, check_assignable
from obscodec.layout.frame_stack import FrameStack
from obscodec.layout.hollow import hollow_layouts
from obscodec.layout.layout import Layout
from obscodec.layout.lent import Lent
from obscodec.runtime.lock import PicklableLock, locked
from obscodec.runtime.out_of_memory import says_memory_error
from obscodec.segments import Segments
from obscodec.stores.batch_memory import BATCH_MEMORY, BatchMemory
from obscodec.stores.guarded_store import Pin, PinnedStore
from obscodec.stores.narrow.narrow import Narrow, find_narrow
from obscodec.stores.store import Store, StoreStats
from obscodec.stores.tensor_store import TensorStore

if TYPE_CHECKING:
    from obscodec.arrays.write_buffer import Staging
    from obscodec.buffers.array_set import ArraySet, RingStats
    from obscodec.buffers.checks import check_items
    from obscodec.buffers.field import Field
    from obscodec.buffers.options import BufferOptions
    from obscodec.buffers.ring import RingBuffer
    from obscodec.buffers.sharing import append_together, by_store, read_together, shared_stores, stats_of
    from obscodec.runtime.calls import Calls
    from obscodec.stores.auto.auto_store import AutoStats, AutoStore
    from obscodec.stores.auto.choice import Choice, Trial
    from obscodec.stores.frame_store import FrameStore
    from obscodec.stores.narrow.narrow_store import NarrowStore
    from obscodec.stores.stack_store import StackStore

# What needs numba, which takes half a second to import, or multiprocessing: loaded when it is first asked for.
_LAZY = {
    "ArraySet": "obscodec.buffers.array_set",
    "AutoStats": "obscodec.stores.auto.auto_store",
    "AutoStore": "obscodec.stores.auto.auto_store",
    "BufferOptions": "obscodec.buffers.options",
    "Calls": "obscodec.runtime.calls",
    "Choice": "obscodec.stores.auto.choice",
    "Field": "obscodec.buffers.field",
    "FrameStore": "obscodec.stores.frame_store",
    "NarrowStore": "obscodec.stores.narrow.narrow_store",
    "RingBuffer": "obscodec.buffers.ring",
    "RingStats": "obscodec.buffers.array_set",
    "StackStore": "obscodec.stores.stack_store",
    "Staging": "obscodec.arrays.write_buffer",
    "Trial": "obscodec.stores.auto.choice",
    "append_together": "obscodec.buffers.sharing",
    "by_store": "obscodec.buffers.sharing",
    "check_items": "obscodec.buffers.checks",
    "read_together": "obscodec.buffers.sharing",
    "shared_stores": "obscodec.buffers.sharing",
    "stats_of": "obscodec.buffers.sharing",
}

__all__ = [
    "BATCH_MEMORY",
    "HOST",
    "ArraySet",
    "ArrayStats",
    "AutoStats",
    "AutoStore",
    "Backend",
    "BackendUnavailable",
    "BatchMemory",
    "BufferOptions",
    "BytesCodec",
    "Calls",
    "Choice",
    "Codec",
    "CorruptStream",
    "DTypeError",
    "DictionaryMissing",
    "DrawnArray",
    "EncodedTensor",
    "Field",
    "FieldError",
    "Filter",
    "FrameChanges",
    "FrameForm",
    "FrameReader",
    "FrameStack",
    "FrameStore",
    "HeapFull",
    "HeapMemory",
    "HeapStats",
    "Layout",
    "LayoutError",
    "Lent",
    "LevelError",
    "Levels",
    "ListedChanges",
    "MissingPackage",
    "Narrow",
    "NarrowStore",
    "NewArray",
    "ObscodecError",
    "PartArray",
    "PicklableLock",
    "Pin",
    "PinnedStore",
    "Places",
    "ReadAhead",
    "Reading",
    "RingBuffer",
    "RingStats",
    "Segments",
    "Selected",
    "ShapeError",
    "SlotError",
    "SlotHeap",
    "SpecError",
    "StackStore",
    "Staging",
    "Store",
    "StoreStats",
    "Streams",
    "TensorArray",
    "TensorCoder",
    "TensorStore",
    "Trial",
    "append_together",
    "as_array",
    "as_count",
    "as_flag",
    "as_numbers",
    "available",
    "by_store",
    "check_assignable",
    "check_items",
    "check_kind",
    "codec",
    "codec_from_config",
    "decode",
    "drawn",
    "drawn_together",
    "encode",
    "find_narrow",
    "hollow_layouts",
    "locked",
    "note_of",
    "open_reading",
    "pack",
    "pack_together",
    "read_together",
    "says_memory_error",
    "shared_stores",
    "stats_of",
    "steps_of",
    "strided_view",
    "strides_of",
    "unpack",
    "unpack_together",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value  # it is not asked for again
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
