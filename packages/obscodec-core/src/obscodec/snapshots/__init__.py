"""Snapshots: buffers, arrays and stores in folders, from which they are made again, also by later versions.

A state becomes files and comes back checked. It never knows what a state means: the class that wrote it does.
"""

from obscodec.snapshots.folder import VERSION, find_snapshot, folder_nbytes
from obscodec.snapshots.folder_lock import FolderLock
from obscodec.snapshots.inspection import GenerationReport, inspect_snapshot
from obscodec.snapshots.loading import OpenGeneration, Salvaged, load
from obscodec.snapshots.saved import Saved, named
from obscodec.snapshots.saving import Snapshot, save, write_snapshot
from obscodec.snapshots.steps import opened_steps

__all__ = [
    "VERSION",
    "FolderLock",
    "GenerationReport",
    "OpenGeneration",
    "Salvaged",
    "Saved",
    "Snapshot",
    "find_snapshot",
    "folder_nbytes",
    "inspect_snapshot",
    "load",
    "named",
    "opened_steps",
    "save",
    "write_snapshot",
]
