"""Pages of memory, threads and locks, from the operating system and from Python."""

from obscodec.runtime.lock import PicklableLock
from obscodec.runtime.out_of_memory import says_memory_error
from obscodec.runtime.pages import doubled, give_back_free_memory, new_chunk, new_huge_chunk, new_table
from obscodec.runtime.threads import as_threads, over_ranges

__all__ = [
    "PicklableLock",
    "as_threads",
    "doubled",
    "give_back_free_memory",
    "new_chunk",
    "new_huge_chunk",
    "new_table",
    "over_ranges",
    "says_memory_error",
]
