"""Snapshots: buffers, arrays and stores in folders, from which they are made again, also by later versions.

A state becomes files and comes back checked. It never knows what a state means: the class that wrote it does.
"""

from obscodec.snapshots.beside import check_beside
from obscodec.snapshots.folder import VERSION, find_snapshot, folder_nbytes
from obscodec.snapshots.inspection import GenerationReport, inspect_snapshot
from obscodec.snapshots.loading import (
    load,
    load_by,
    read_arguments,
    read_snapshot,
    read_values,
    restored,
    written_by,
)
from obscodec.snapshots.saved import Saved, named
from obscodec.snapshots.saving import Snapshot, save, write_snapshot
from obscodec.snapshots.tree import Tree, flatten, unflatten

__all__ = [
    "VERSION",
    "GenerationReport",
    "Saved",
    "Snapshot",
    "Tree",
    "check_beside",
    "find_snapshot",
    "flatten",
    "folder_nbytes",
    "inspect_snapshot",
    "load",
    "load_by",
    "named",
    "read_arguments",
    "read_snapshot",
    "read_values",
    "restored",
    "save",
    "unflatten",
    "write_snapshot",
    "written_by",
]
