"""A limit on the address space of this process, as batch systems set it."""

import gc
import resource
from contextlib import contextmanager
from pathlib import Path

from obscodec.runtime import Background


@contextmanager
def limited_memory(nbytes):
    """A context in which this process can take so many bytes more."""
    finish_the_background()  # LLVM would end the process if the limit were set while a thread loads a kernel
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + nbytes, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def finish_the_background():
    """Wait until no thread of a Background has anything to do; a call there may have begun another one elsewhere."""
    threads = [it for it in gc.get_objects() if type(it) is Background]
    for _ in range(3):  # a choice, which begins to compress, and to train
        for thread in threads:
            thread.finish()
