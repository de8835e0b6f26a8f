"""Lossless codecs, compressed stores and a ring buffer for the observations of reinforcement learning."""

from obscodec.bytes_codec import BytesCodec
from obscodec.codec import Codec
from obscodec.coding import decode, encode
from obscodec.encoded import EncodedTensor
from obscodec.errors import (
    CorruptStream,
    DictionaryMissing,
    DTypeError,
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
from obscodec.layout import Layout
from obscodec.registry import available, codec, codec_from_config
from obscodec.segments import Segments
from obscodec.stage import Levels

__all__ = [
    "BytesCodec",
    "Codec",
    "CorruptStream",
    "DTypeError",
    "DictionaryMissing",
    "EncodedTensor",
    "Filter",
    "HeapFull",
    "Layout",
    "LayoutError",
    "LevelError",
    "Levels",
    "MissingPackage",
    "ObscodecError",
    "Segments",
    "ShapeError",
    "SlotError",
    "SpecError",
    "available",
    "codec",
    "codec_from_config",
    "decode",
    "encode",
]
