"""A warning for users who wait while kernels are compiled."""

import logging
from functools import cache
from pathlib import Path

from obscodec.frames.kernels.append import append_frames
from obscodec.kernels import UNCACHED

_log = logging.getLogger("obscodec")


@cache
def announce() -> None:
    """Warn, once in a process, if kernels are not in numba's cache and are about to be compiled."""
    folder, code = append_frames.stats.cache_path, append_frames.py_func.__code__
    if append_frames.signatures:
        return
    if folder is None:
        _log.warning(f"obscodec compiles its kernels: {UNCACHED}")
    elif not any(Path(folder).glob(f"*.{code.co_name}-{code.co_firstlineno}.*.nbi")):
        _log.warning("obscodec compiles its kernels for this machine, for 10 to 20 seconds, the first time only")
