"""Kills processes that save, at random moments: ``uv run python .../kill_saves.py [KILLS] [SEED]``.

The processes write generation after generation of a buffer that grows, and go on in the folder that the last process
left. After each kill, all generations that were finished load, with every step.
"""

import copy
import os
import random
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import obscodec
from obscodec import Snapshot
from saved import append, check_equal_rings, ring

sys.path.insert(0, str(Path(__file__).parents[1]))
from forked import exit_status, forked

STEP, MOST = 10, 200


def play(path: Path, keep: int) -> None:
    """Write to a folder for ever, from its last generation on; now and then everything anew."""
    loaded = obscodec.load(path, continue_episodes=True)
    snapshot = Snapshot(path, keep=keep)
    while True:
        for n in range(loaded._clock.appended, MOST, STEP):
            append(loaded, n, n + STEP)
            snapshot.write(loaded)
        snapshot.wait()
        loaded = ring(STEP)
        obscodec.save(loaded, path)


def kill_saves(n_kills: int, seed: int, path: Path) -> int:
    """Kill so many processes; how many generations were finished meanwhile.

    Raises:
        AssertionError: a generation was lost, or had other steps.
    """
    rng = random.Random(seed)
    rings = {STEP: ring(STEP)}
    for n in range(STEP, MOST, STEP):
        rings[n + STEP] = copy.deepcopy(rings[n])
        append(rings[n + STEP], n, n + STEP)
    obscodec.save(rings[STEP], path)
    begin = last = Snapshot(path).generations[-1]
    for _ in range(n_kills):
        child = forked(partial(play, path, keep=rng.randint(1, 3)))
        time.sleep(0.2 * rng.random())
        os.kill(child, signal.SIGKILL)
        assert exit_status(child) == -signal.SIGKILL
        generations = Snapshot(path).generations
        assert generations[-1] >= last
        for generation in generations:
            loaded = obscodec.load(path, generation=generation, mmap=rng.random() < 0.3, continue_episodes=True)
            check_equal_rings(rings[loaded._clock.appended], loaded)
        last = generations[-1]
    return last - begin


if __name__ == "__main__":
    n_kills, seed = map(int, (sys.argv[1:] + ["1000", "0"][len(sys.argv) - 1 :])[:2])
    with tempfile.TemporaryDirectory() as folder:
        n_finished = kill_saves(n_kills, seed, Path(folder))
    of_all = f"{n_kills} kills, {n_finished} generations finished"
    sys.stdout.write(f"{of_all}: each time, all generations loaded with all of their steps\n")
