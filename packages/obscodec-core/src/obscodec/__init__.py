"""Lossless codecs, compressed stores and a ring buffer for the observations of reinforcement learning."""

from importlib import import_module
from typing import TYPE_CHECKING

from obscodec.arguments import as_count, as_flag, check_kind
from obscodec.array_stats import ArrayStats
from obscodec.arrays import as_array, as_numbers, check_assignable
from obscodec.backends import Backend
from obscodec.batch_memory import BATCH_MEMORY, BatchMemory
from obscodec.bytes_codec import BytesCodec
from obscodec.codec import Codec
from obscodec.coding import decode, encode
from obscodec.drawn_array import DrawnArray, drawn, drawn_together
from obscodec.encoded import EncodedTensor
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
from obscodec.filter import Filter
from obscodec.frame_reader import FrameChanges, FrameForm, FrameReader, ListedChanges
from obscodec.frame_stack import FrameStack
from obscodec.geometry import strided_view, strides_of
from obscodec.heap import HeapStats, SlotHeap
from obscodec.heap_memory import HOST, HeapMemory, Places, Streams
from obscodec.hollow import hollow_layouts
from obscodec.indexing import steps_of
from obscodec.layout import Layout
from obscodec.lent import Lent
from obscodec.narrow import Narrow, find_narrow
from obscodec.new_array import NewArray
from obscodec.out_of_memory import says_memory_error
from obscodec.packing import pack, unpack
from obscodec.packing_together import note_of, pack_together, unpack_together
from obscodec.part_array import PartArray
from obscodec.picklable_lock import PicklableLock, locked
from obscodec.pinned_store import Pin, PinnedStore
from obscodec.reading import ReadAhead, Reading, Selected, open_reading
from obscodec.registry import available, codec, codec_from_config
from obscodec.segments import Segments
from obscodec.stage import Levels
from obscodec.store import Store, StoreStats
from obscodec.tensor_array import TensorArray
from obscodec.tensor_coder import TensorCoder
from obscodec.tensor_store import TensorStore

if TYPE_CHECKING:
    from obscodec.array_set import ArraySet, RingStats
    from obscodec.auto_store import AutoStats, AutoStore
    from obscodec.buffer_options import BufferOptions
    from obscodec.calls import Calls
    from obscodec.checks import check_items
    from obscodec.choice import Choice, Trial
    from obscodec.field import Field
    from obscodec.frame_store import FrameStore
    from obscodec.narrow_store import NarrowStore
    from obscodec.ring import RingBuffer
    from obscodec.sharing import append_together, by_store, read_together, shared_stores, stats_of
    from obscodec.stack_store import StackStore
    from obscodec.staging import Staging

# What needs numba, which takes half a second to import, or multiprocessing: loaded when it is first asked for.
_LAZY = {
    "ArraySet": "obscodec.array_set",
    "AutoStats": "obscodec.auto_store",
    "AutoStore": "obscodec.auto_store",
    "BufferOptions": "obscodec.buffer_options",
    "Calls": "obscodec.calls",
    "Choice": "obscodec.choice",
    "Field": "obscodec.field",
    "FrameStore": "obscodec.frame_store",
    "NarrowStore": "obscodec.narrow_store",
    "RingBuffer": "obscodec.ring",
    "RingStats": "obscodec.array_set",
    "StackStore": "obscodec.stack_store",
    "Staging": "obscodec.staging",
    "Trial": "obscodec.choice",
    "append_together": "obscodec.sharing",
    "by_store": "obscodec.sharing",
    "check_items": "obscodec.checks",
    "read_together": "obscodec.sharing",
    "shared_stores": "obscodec.sharing",
    "stats_of": "obscodec.sharing",
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
