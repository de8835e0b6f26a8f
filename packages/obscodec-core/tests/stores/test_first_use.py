"""Who waits for a compiler is told, and only then."""

import os
import subprocess
import sys
import textwrap

from obscodec.kernels.compiler import compiled

PROGRAM = textwrap.dedent(
    """
    import numpy as np
    from obscodec import FrameStore, Layout

    for _ in range(2):
        FrameStore(Layout((8, 8), np.uint8)).append(np.ones((1, 8, 8), np.uint8))
    """
)
LINE = "obscodec compiles its kernels for this machine, some seconds, the first time only\n"


def test_the_first_use_says_why_it_takes_long(tmp_path):
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(done.stderr)
    assert said == [LINE, ""]


def test_kernels_work_where_nothing_can_be_cached():
    """Numba finds no place to cache a function that comes from no file, as in a read-only installation."""
    namespace = {}
    exec("def double(x):\n    return 2 * x", namespace)
    assert compiled(namespace["double"])(21) == 42
