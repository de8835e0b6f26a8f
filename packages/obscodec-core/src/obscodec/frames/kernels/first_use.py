"""A warning for users who wait while kernels are compiled."""

import logging
from functools import cache

from obscodec.frames.kernels.append import append_frames
from obscodec.kernels import UNCACHED, is_on_disk

_log = logging.getLogger("obscodec")


@cache
def announce() -> None:
    """Warn, once in a process, if kernels are not in numba's cache and are about to be compiled."""
    if append_frames.signatures:
        return
    if append_frames.stats.cache_path is None:
        _log.warning(f"obscodec compiles its kernels: {UNCACHED}")
    elif not is_on_disk("obscodec.frames", append_frames.py_func.__name__):
        _log.warning("obscodec compiles its kernels for this machine, for 10 to 20 seconds, the first time only")
