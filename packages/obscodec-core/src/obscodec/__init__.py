"""Lossless codecs, compressed stores and a ring buffer for the observations of reinforcement learning.

These are the names for users. What adapters, backends and codecs of other packages build on is in the rooms, such as
``obscodec.codecs``, ``obscodec.stores``, ``obscodec.arrays`` and ``obscodec.buffers``.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from obscodec.codecs import EncodedTensor, available, decode, encode, pack, unpack
from obscodec.devices import codec
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
    RateLimited,
    ShapeError,
    SlotError,
    SnapshotError,
    SourceError,
    SpecError,
    Unreachable,
)
from obscodec.layout import FrameStack, Layout

if TYPE_CHECKING:
    from obscodec.arrays import TensorArray
    from obscodec.buffers import Field, Mixture, Prioritized, RateLimiter, RingBuffer, estimate
    from obscodec.recordings import episodes
    from obscodec.snapshots import Snapshot, load, save
    from obscodec.stores import AutoStore, FrameStore

# Loaded at first use: these rooms need numba, which takes half a second to import.
_ROOMS = {
    "arrays": ("TensorArray",),
    "buffers": ("Field", "Mixture", "Prioritized", "RateLimiter", "RingBuffer", "estimate"),
    "recordings": ("episodes",),
    "snapshots": ("Snapshot", "load", "save"),
    "stores": ("AutoStore", "FrameStore"),
}
_LAZY = {name: f"obscodec.{room}" for room, names in _ROOMS.items() for name in names}

__version__ = "0.1.0"

__all__ = [
    "AutoStore",
    "BackendUnavailable",
    "CorruptStream",
    "DTypeError",
    "DictionaryMissing",
    "EncodedTensor",
    "Field",
    "FieldError",
    "FrameStack",
    "FrameStore",
    "HeapFull",
    "Layout",
    "LayoutError",
    "LevelError",
    "MissingPackage",
    "Mixture",
    "ObscodecError",
    "Prioritized",
    "RateLimited",
    "RateLimiter",
    "RingBuffer",
    "ShapeError",
    "SlotError",
    "Snapshot",
    "SnapshotError",
    "SourceError",
    "SpecError",
    "TensorArray",
    "Unreachable",
    "available",
    "codec",
    "decode",
    "encode",
    "episodes",
    "estimate",
    "load",
    "pack",
    "save",
    "unpack",
]


if not TYPE_CHECKING:  # a type checker shall see names that do not exist

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value  # the next access finds it there
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
