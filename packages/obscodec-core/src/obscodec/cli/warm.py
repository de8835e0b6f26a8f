"""``obscodec warm``, which needs no further package, so that it runs wherever buffers do."""

import sys

from obscodec.kernels import UNCACHED
from obscodec.warming import warm


def run_warm(processes: int | None = None) -> int:
    """Compile all kernels, print how many and where they are, and return the exit code: 1 if one can't be kept."""
    warmed = warm(processes, _show)
    if warmed.folder is None:
        sys.stderr.write(f"nothing was compiled: {UNCACHED}\n")
        return 1
    compiled, loaded, unkept = map(len, warmed.kernels)
    if unkept:
        sys.stderr.write(f"compiled {compiled} kernels, and could not write {unkept} of them to {warmed.folder}\n")
        return 1
    if compiled:
        done = f"compiled {compiled} kernels in {warmed.seconds:.1f} s, the others were there"
    else:
        done = f"all {loaded} kernels that buffers call are compiled already"
    sys.stdout.write(f"{done}: {warmed.folder}\n")
    return 0


def _show(n: int, n_parts: int, seconds: float) -> None:
    sys.stderr.write(f"obscodec compiles: {n} of {n_parts} parts, {seconds:.0f} s\n")
    sys.stderr.flush()
