"""``obscodec warm``, which needs no further package, so that it runs wherever buffers do."""

import sys

from obscodec.kernels import UNCACHED
from obscodec.warming import warm


def run_warm(processes: int | None = None) -> int:
    """Compile all kernels, print how many and where they are, and return the exit code: 1 if they can't be kept."""
    warmed = warm(processes)
    if warmed.folder is None:
        sys.stderr.write(f"nothing was compiled: {UNCACHED}\n")
        return 1
    n = len(warmed.kernels)
    sys.stdout.write(f"compiled {n} kernels in {warmed.seconds:.1f} s, the others were there: {warmed.folder}\n")
    return 0
