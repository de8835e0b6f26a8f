"""Pages of memory, threads and locks, from the operating system and from Python.

It settles what a fork, an interrupt or a failed allocation does. It never knows what is stored.
"""

from obscodec.runtime.available_memory import free_memory
from obscodec.runtime.background import Background, Job
from obscodec.runtime.disk import folder_path, patiently, sync, temporary_folder
from obscodec.runtime.file_memory import MappedFile, in_file, is_in_file
from obscodec.runtime.in_one_step import assign
from obscodec.runtime.lock import LockOrder, PicklableLock, free_in_forks, holding
from obscodec.runtime.out_of_memory import is_memory_error, raise_memory_error, says_errors, says_memory_error
from obscodec.runtime.pages import doubled, give_back_free_memory, in_pages, new_chunk, new_huge_chunk, new_table
from obscodec.runtime.threads import as_threads, n_processors, over_ranges

__all__ = [
    "Background",
    "Job",
    "LockOrder",
    "MappedFile",
    "PicklableLock",
    "as_threads",
    "assign",
    "doubled",
    "folder_path",
    "free_in_forks",
    "free_memory",
    "give_back_free_memory",
    "holding",
    "in_file",
    "in_pages",
    "is_in_file",
    "is_memory_error",
    "n_processors",
    "new_chunk",
    "new_huge_chunk",
    "new_table",
    "over_ranges",
    "patiently",
    "raise_memory_error",
    "says_errors",
    "says_memory_error",
    "sync",
    "temporary_folder",
]
