"""Snapshots: buffers, arrays and stores in folders, from which they are made again, also by later versions."""

from obscodec.snapshots.snapshot import Saved, load, named, read_snapshot, restored, save, write_snapshot

__all__ = ["Saved", "load", "named", "read_snapshot", "restored", "save", "write_snapshot"]
