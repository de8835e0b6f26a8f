"""Kills processes that save, at random moments: ``uv run python .../kill_saves.py [KILLS] [SEED]``.

After each kill, the last generation that was finished loads, with every step.
"""

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import obscodec
from obscodec.snapshots.folder import Folder
from saved import check_equal_rings, ring

N_STEPS = (5, 40, 90, 130)


def kill_saves(n_kills: int, seed: int, path: Path) -> int:
    """Kill so many processes; how many generations were finished meanwhile.

    Raises:
        AssertionError: the last generation was another one than a save had finished, or had other steps.
    """
    rng = random.Random(seed)
    rings = {n: ring(n) for n in N_STEPS}
    obscodec.save(rings[N_STEPS[0]], path)
    begin = last = [*Folder(path).generations()][-1]
    for _ in range(n_kills):
        child = os.fork()
        if child == 0:
            while True:
                for buffer in rings.values():
                    obscodec.save(buffer, path)
        time.sleep(0.03 * rng.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        loaded, generation = obscodec.load(path), [*Folder(path).generations()][-1]
        assert generation >= last
        check_equal_rings(next(buffer for buffer in rings.values() if len(buffer) == len(loaded)), loaded)
        last = generation
    return last - begin


if __name__ == "__main__":
    n_kills, seed = map(int, (sys.argv[1:] + ["1000", "0"][len(sys.argv) - 1 :])[:2])
    with tempfile.TemporaryDirectory() as folder:
        n_finished = kill_saves(n_kills, seed, Path(folder))
    of_all = f"{n_kills} kills, {n_finished} generations finished"
    sys.stdout.write(f"{of_all}: each time, the last one loaded with all of its steps\n")
