"""Lossless codecs, compressed stores and a ring buffer for the observations of reinforcement learning."""

from obscodec.bytes_codec import BytesCodec
from obscodec.codec import Codec
from obscodec.coding import decode, encode
from obscodec.encoded import EncodedTensor
from obscodec.errors import (
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
from obscodec.field import Field
from obscodec.filter import Filter
from obscodec.heap import HeapStats, SlotHeap
from obscodec.layout import Layout
from obscodec.registry import available, codec, codec_from_config
from obscodec.ring import RingBuffer, RingStats
from obscodec.segments import Segments
from obscodec.stage import Levels
from obscodec.store import Store, StoreStats
from obscodec.tensor_array import TensorArray
from obscodec.tensor_store import TensorStore

__all__ = [
    "BytesCodec",
    "Codec",
    "CorruptStream",
    "DTypeError",
    "DictionaryMissing",
    "EncodedTensor",
    "Field",
    "FieldError",
    "Filter",
    "HeapFull",
    "HeapStats",
    "Layout",
    "LayoutError",
    "LevelError",
    "Levels",
    "MissingPackage",
    "ObscodecError",
    "RingBuffer",
    "RingStats",
    "Segments",
    "ShapeError",
    "SlotError",
    "SlotHeap",
    "SpecError",
    "Store",
    "StoreStats",
    "TensorArray",
    "TensorStore",
    "available",
    "codec",
    "codec_from_config",
    "decode",
    "encode",
]
