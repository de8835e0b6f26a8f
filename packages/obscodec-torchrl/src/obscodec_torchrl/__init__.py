"""Compressed storage for TorchRL's replay buffers."""

from obscodec_torchrl.checkpointer import CompressedStorageCheckpointer
from obscodec_torchrl.hook import SnapshotHook
from obscodec_torchrl.storage import CompressedStorage

__version__ = "0.1.0"

__all__ = ["CompressedStorage", "CompressedStorageCheckpointer", "SnapshotHook"]
