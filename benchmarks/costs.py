"""The cost of reading a batch with each codec that ``auto`` tries, in units of a gather from uncompressed memory.

uv run --group textured benchmarks/costs.py

Prints the table of costs in ``obscodec/stores/auto/choice.py``. Codecs of patches are read in stacks of four frames of
games, the others in single frames of textured images, each in a block of its own. Batches of 256 are read from stores
that hold the same frames, one store after the other in random order, with one thread. A cost is the median over all
rounds of the ratio to the gather in the same round, and the median of three games or sets.
"""

import time
from collections.abc import Mapping
from itertools import islice

import numpy as np
import numpy.typing as npt
import typer
from obscodec import FrameStack, Layout
from obscodec.segments import Ints
from obscodec.stores import FrameStore, StackStore
from obscodec.stores.auto.choice import CANDIDATES, Candidate
from recorded_steps import STACK, read_steps, record
from textured_frames import recorded

_GAMES = ("MsPacman", "Pong", "Breakout")
_SETS = ("doom_home", "doom_corridor", "doom_home_near")
_BATCH = 256
_PIECE = 64  # tensors to append at a time

Filled = tuple[FrameStore | StackStore, Ints]  # with the ids of its tensors
Costs = dict[Candidate, tuple[float, float]]  # the median ms for a batch, and its median ratio to a gather


def costs_of_stacks(game: str, n_stacks: int, n_rounds: int) -> Costs:
    """Of the codecs of patches, on stacks of a game."""
    steps = islice(read_steps(record(game, 1, n_stacks)), n_stacks)
    stacks, layout, stack = np.concatenate([step.obs for step in steps]), Layout(STACK, np.uint8), FrameStack(STACK[0])

    def new_store(candidate: Candidate) -> StackStore:
        frame, n = stack.frame_layout(layout), candidate.block_frames
        frames = FrameStore(frame, codec=candidate.spec, block_frames=n, stack=stack.depth, threads=1)
        return StackStore(frames, layout, stack)

    of_stacks = [candidate for candidate in CANDIDATES if candidate.of_patches]
    return _costs({candidate: _filled(new_store(candidate), stacks) for candidate in of_stacks}, stacks, n_rounds)


def costs_of_frames(name: str, n_rounds: int) -> Costs:
    """Of the other codecs, on single frames of a set of textured images."""
    frames = recorded(name).frames

    def new_store(candidate: Candidate) -> FrameStore:
        return FrameStore(Layout.of(frames[0]), codec=candidate.spec, block_frames=1, threads=1)

    of_frames = [candidate for candidate in CANDIDATES if not candidate.of_patches and candidate.block_frames == 1]
    return _costs({candidate: _filled(new_store(candidate), frames) for candidate in of_frames}, frames, n_rounds)


def _costs(filled: Mapping[Candidate, Filled], uncompressed: npt.NDArray[np.uint8], n_rounds: int) -> Costs:
    rng = np.random.default_rng(0)
    out = np.empty((_BATCH, *uncompressed.shape[1:]), np.uint8)
    keys = list(filled)
    times_s = np.empty((len(keys) + 1, n_rounds + 1))
    for round_ in range(n_rounds + 1):  # the first one compiles
        wanted = rng.integers(len(uncompressed), size=_BATCH)
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


def _filled(store: FrameStore | StackStore, tensors: npt.NDArray[np.uint8]) -> Filled:
    pieces = [store.append(tensors[at : at + _PIECE]) for at in range(0, len(tensors), _PIECE)]
    return store, np.concatenate(pieces)


def _print(names: tuple[str, ...], of_names: list[Costs]) -> None:
    print(f"{'ms for a batch':24}" + "".join(f"{name:>16}" for name in names))
    for candidate in of_names[0]:
        figures = [f"{of_name[candidate][0]:16.2f}" for of_name in of_names]
        print(f"{candidate.spec:24}" + "".join(figures))
    for candidate in of_names[0]:
        cost = float(np.median([of_name[candidate][1] for of_name in of_names]))
        print(f'    Candidate("{candidate.spec}", {candidate.block_frames}, {cost:.2g}),')


def main(n_stacks: int = 20_000, n_rounds: int = 200) -> None:
    """Measure, and print the milliseconds of each game or set and the lines to paste."""
    _print(_GAMES, [costs_of_stacks(game, n_stacks, n_rounds) for game in _GAMES])
    _print(_SETS, [costs_of_frames(name, n_rounds) for name in _SETS])


if __name__ == "__main__":
    typer.run(main)
