"""Snapshots: buffers, arrays and stores in folders, from which they are made again, also by later versions."""

from obscodec.snapshots.snapshot import Saved, load, made_again, read_snapshot, save, write_snapshot

__all__ = ["Saved", "load", "made_again", "read_snapshot", "save", "write_snapshot"]
