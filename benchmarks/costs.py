"""The cost of reading a batch with each codec that ``auto`` tries, in units of a gather from uncompressed memory.

uv run benchmarks/costs.py

Prints the table of costs in ``obscodec/stores/auto/choice.py``. Batches of 256 stacks of four frames are read from
stores that hold the same frames, one store after the other in random order, with one thread. A cost is the median over
all rounds of the ratio to the gather in the same round, and the median of three games.
"""

import time
from itertools import islice

import numpy as np
import typer
from obscodec import FrameStack, Layout
from obscodec.segments import Ints
from obscodec.stores import FrameStore, StackStore
from obscodec.stores.auto.choice import _CANDIDATES
from recorded_steps import STACK, read_steps, record

_GAMES = ("MsPacman", "Pong", "Breakout")
_BATCH = 256
_PIECE = 64  # stacks to append at a time


def costs(game: str, n_stacks: int, n_rounds: int) -> dict[tuple[str, int], tuple[float, float]]:
    """For each codec and number of frames in a block: the median ms for a batch, and its median ratio to a gather."""
    filled = {(c.spec, c.block_frames): _filled(c.spec, c.block_frames, game, n_stacks) for c in _CANDIDATES}
    uncompressed = np.concatenate([step.obs for step in islice(read_steps(record(game, 1, n_stacks)), n_stacks)])
    rng = np.random.default_rng(0)
    out = np.empty((_BATCH, *STACK), np.uint8)
    keys = list(filled)
    times_s = np.empty((len(keys) + 1, n_rounds + 1))
    for round_ in range(n_rounds + 1):  # the first one compiles
        wanted = rng.integers(n_stacks, size=_BATCH)
        for i in rng.permutation(len(keys) + 1):
            start = time.perf_counter()
            if i == len(keys):
                np.take(uncompressed, wanted, axis=0, out=out)
            else:
                store, ids = filled[keys[i]]
                store.read(ids[wanted], out)
            times_s[i, round_] = time.perf_counter() - start
    times_s = times_s[:, 1:]
    ratios = times_s[:-1] / times_s[-1]
    medians = zip(np.median(times_s[:-1], axis=1) * 1e3, np.median(ratios, axis=1), strict=True)
    return {key: (float(ms), float(ratio)) for key, (ms, ratio) in zip(keys, medians, strict=True)}


def _filled(spec: str, block_frames: int, game: str, n_stacks: int) -> tuple[StackStore, Ints]:
    stack, layout = FrameStack(STACK[0]), Layout(STACK, np.uint8)
    frames = FrameStore(stack.frame_layout(layout), codec=spec, block_frames=block_frames, stack=stack.depth, threads=1)
    store = StackStore(frames, layout, stack)
    observations = (step.obs for step in islice(read_steps(record(game, 1, n_stacks)), n_stacks))
    ids = []
    while pieces := list(islice(observations, _PIECE)):
        ids.append(store.append(np.concatenate(pieces)))
    return store, np.concatenate(ids)


def main(n_stacks: int = 20_000, n_rounds: int = 200) -> None:
    """Measure, and print the milliseconds of each game and the lines to paste."""
    of_games = [costs(game, n_stacks, n_rounds) for game in _GAMES]
    print(f"{'ms for a batch':24}" + "".join(f"{game:>12}" for game in _GAMES))
    for spec, block_frames in of_games[0]:
        figures = [f"{game[spec, block_frames][0]:12.2f}" for game in of_games]
        print(f"{spec + f', {block_frames}':24}" + "".join(figures))
    for spec, block_frames in of_games[0]:
        cost = float(np.median([game[spec, block_frames][1] for game in of_games]))
        print(f'    _Candidate("{spec}", {block_frames}, {cost:.2g}),')


if __name__ == "__main__":
    typer.run(main)
