"""A warning for users who wait while kernels are compiled."""

import logging
from functools import cache
from pathlib import Path

from obscodec.frames.kernels.append import append_frames

_log = logging.getLogger("obscodec")


@cache
def announce() -> None:
    """Warn, once in a process, if kernels are not in numba's cache and are about to be compiled."""
    code = append_frames.py_func.__code__
    compiled = Path(append_frames.stats.cache_path or "").glob(f"*.{code.co_name}-{code.co_firstlineno}.*.nbi")
    if not append_frames.signatures and not any(compiled):
        _log.warning("obscodec compiles its kernels for this machine, some seconds, the first time only")
