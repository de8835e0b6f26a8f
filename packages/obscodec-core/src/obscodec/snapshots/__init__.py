"""Snapshots: buffers, arrays and stores in folders, from which they are made again, also by later versions.

A state becomes files and comes back checked. It never knows what a state means: the class that wrote it does.
"""

from obscodec.snapshots.beside import check_beside
from obscodec.snapshots.contents import NoSnapshot, find_snapshot, first_items, takes_memory
from obscodec.snapshots.folder import folder_nbytes
from obscodec.snapshots.inspection import GenerationReport, inspect_snapshot
from obscodec.snapshots.snapshot import (
    Salvaged,
    Saved,
    Snapshot,
    load,
    load_by,
    named,
    read_arguments,
    read_snapshot,
    restored,
    save,
    write_snapshot,
)
from obscodec.snapshots.summary import SavedField, Summary

__all__ = [
    "GenerationReport",
    "NoSnapshot",
    "Salvaged",
    "Saved",
    "SavedField",
    "Snapshot",
    "Summary",
    "check_beside",
    "find_snapshot",
    "first_items",
    "folder_nbytes",
    "inspect_snapshot",
    "load",
    "load_by",
    "named",
    "read_arguments",
    "read_snapshot",
    "restored",
    "save",
    "takes_memory",
    "write_snapshot",
]
