"""A limit on the address space of this process, as batch systems set it."""

import resource
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def limited_memory(nbytes):
    """A context in which this process can take so many bytes more."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + nbytes, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
