"""Snapshots: buffers, arrays and stores in folders, from which they are made again, also by later versions."""

from obscodec.snapshots.snapshot import (
    Salvaged,
    Saved,
    Snapshot,
    load,
    load_by,
    named,
    read_snapshot,
    restored,
    save,
    write_snapshot,
)

__all__ = [
    "Salvaged",
    "Saved",
    "Snapshot",
    "load",
    "load_by",
    "named",
    "read_snapshot",
    "restored",
    "save",
    "write_snapshot",
]
