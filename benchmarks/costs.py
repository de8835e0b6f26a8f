"""The cost of reading a batch with each codec that ``auto`` tries, in units of a gather from uncompressed memory.

uv run --group textured benchmarks/costs.py

Prints the table of ``obscodec/stores/auto/candidates.py``. Codecs of patches are read in stacks of four frames,
the others in single frames of textured images, those of numbers in single depth images of float32, each in a block of
its own. Batches of 256 are read from stores that hold the same frames, one store after the other in random order, with
one thread. A cost is the median over all rounds of the ratio to the gather in the same round, and the median of three
games or sets. The second cost of a codec of
patches is how much more textured images cost than games, divided by how much larger their patches are, in sizes of a
frame.
"""

import time
from collections.abc import Mapping
from itertools import islice

import numpy as np
import numpy.typing as npt
import typer
from depths import mujoco, rays
from obscodec import Layout
from obscodec.segments import Ints
from obscodec.stores import FrameStore
from obscodec.stores.auto.candidates import CANDIDATES, Candidate
from recorded_steps import STACK, read_steps, record
from textured_frames import recorded

_GAMES = ("MsPacman", "Pong", "Breakout")
_SETS = ("doom_home", "doom_corridor", "doom_home_near")
_DEPTHS = ("rays", "Hopper-v5", "HumanoidStandup-v5")
_N_DEPTHS = 1024
_BATCH = 256
_PIECE = 64  # tensors to append at a time

Filled = tuple[FrameStore, Ints]  # with the ids of its tensors
Frames = npt.NDArray[np.generic]
Costs = dict[Candidate, tuple[float, float, float]]  # median ms for a batch, and ratio to a gather; size to raw size


def stacks_of_game(game: str, n_stacks: int) -> npt.NDArray[np.uint8]:
    """``u8[n, 4, 84, 84]``."""
    return np.concatenate([step.obs for step in islice(read_steps(record(game, 1, n_stacks)), n_stacks)])


def stacks_of_frames(name: str) -> npt.NDArray[np.uint8]:
    """``u8[n, 12, 84, 84]``, of a set of textured images."""
    frames = np.ascontiguousarray(np.moveaxis(recorded(name).frames, -1, 1))
    n, depth = len(frames), STACK[0]
    return np.concatenate([frames[at : n - depth + 1 + at] for at in range(depth)], axis=1)


def costs_of_stacks(stacks: npt.NDArray[np.uint8], n_rounds: int) -> Costs:
    """Of the codecs of patches."""
    layout = Layout.of(stacks[0])

    def new_store(candidate: Candidate) -> FrameStore:
        n = candidate.block_frames
        return FrameStore(layout, frame_stack=STACK[0], codec=candidate.spec, block_frames=n, threads=1)

    of_stacks = [candidate for candidate in CANDIDATES if candidate.of_patches]
    return _costs({candidate: _filled(new_store(candidate), stacks) for candidate in of_stacks}, stacks, n_rounds)


def costs_of_images(name: str, n_rounds: int) -> Costs:
    """Of the other codecs, on single frames of a set of textured images."""
    return _costs_of_frames(recorded(name).frames, n_rounds, of_numbers=False)


def costs_of_depths(name: str, n_rounds: int) -> Costs:
    """Of codecs of numbers of several bytes, on single depth images of float32."""
    frames = rays(_N_DEPTHS) if name == "rays" else mujoco(name, _N_DEPTHS, turning=True)
    return _costs_of_frames(frames, n_rounds, of_numbers=True)


def _costs_of_frames(frames: Frames, n_rounds: int, *, of_numbers: bool) -> Costs:
    def new_store(candidate: Candidate) -> FrameStore:
        return FrameStore(Layout.of(frames[0]), codec=candidate.spec, block_frames=1, threads=1)

    single = [candidate for candidate in CANDIDATES if not candidate.of_patches and candidate.block_frames == 1]
    of_frames = [candidate for candidate in single if candidate.of_numbers == of_numbers]
    return _costs({candidate: _filled(new_store(candidate), frames) for candidate in of_frames}, frames, n_rounds)


def _costs(filled: Mapping[Candidate, Filled], uncompressed: Frames, n_rounds: int) -> Costs:
    rng = np.random.default_rng(0)
    out = np.empty((_BATCH, *uncompressed.shape[1:]), uncompressed.dtype)
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
    sizes = [1 / store.stats().ratio for store, _ in filled.values()]
    return {key: (float(ms), float(x), size) for key, (ms, x), size in zip(keys, medians, sizes, strict=True)}


def _filled(store: FrameStore, tensors: Frames) -> Filled:
    pieces = [store.append(tensors[at : at + _PIECE]) for at in range(0, len(tensors), _PIECE)]
    return store, np.concatenate(pieces)


def _print_times(names: tuple[str, ...], of_names: list[Costs]) -> None:
    print(f"{'ms for a batch':24}" + "".join(f"{name:>16}" for name in names))
    for candidate in of_names[0]:
        figures = [f"{of_name[candidate][0]:16.2f}" for of_name in of_names]
        print(f"{candidate.spec:24}" + "".join(figures))


def _cost(candidate: Candidate, of_names: list[Costs]) -> float:
    return float(np.median([of_name[candidate][1] for of_name in of_names]))


def _size_of_patches(of_names: list[Costs]) -> float:
    """In sizes of a frame, which a stack keeps once."""
    patches = next(candidate for candidate in of_names[0] if candidate.spec == "delta-rle")
    return float(np.median([STACK[0] * of_name[patches][2] for of_name in of_names]))


def main(n_stacks: int = 20_000, n_rounds: int = 200) -> None:
    """Measure, and print the milliseconds of each game or set and the lines to paste."""
    games = [costs_of_stacks(stacks_of_game(game, n_stacks), n_rounds) for game in _GAMES]
    textures = [costs_of_stacks(stacks_of_frames(name), n_rounds) for name in _SETS]
    images = [costs_of_images(name, n_rounds) for name in _SETS]
    depths = [costs_of_depths(name, n_rounds) for name in _DEPTHS]
    for names, costs in ((_GAMES, games), (_SETS, textures), (_SETS, images), (_DEPTHS, depths)):
        _print_times(names, costs)
    larger = _size_of_patches(textures) - _size_of_patches(games)
    for candidate in games[0]:
        cost = _cost(candidate, games)
        more = (_cost(candidate, textures) - cost) / larger
        of_patch = "" if candidate.spec == "raw" else f", {more:.2g}"
        print(f'    Candidate("{candidate.spec}", {candidate.block_frames}, {cost:.2g}{of_patch}),')
    for of_names in (images, depths):
        for candidate in of_names[0]:
            print(f'    Candidate("{candidate.spec}", {candidate.block_frames}, {_cost(candidate, of_names):.2g}),')


if __name__ == "__main__":
    typer.run(main)
