"""A line for whoever waits while kernels are compiled."""

import logging
from functools import cache
from pathlib import Path

from obscodec.frames.kernels.append import append_frames

_log = logging.getLogger("obscodec")


@cache
def announce() -> None:
    """Say that kernels are about to be compiled, if they are not in numba's cache. Does so once for each process."""
    code = append_frames.py_func.__code__
    compiled = Path(append_frames.stats.cache_path or "").glob(f"*.{code.co_name}-{code.co_firstlineno}.*.nbi")
    if not append_frames.signatures and not any(compiled):
        _log.warning("obscodec compiles its kernels for this machine, some seconds, the first time only")
