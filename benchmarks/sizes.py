"""Exact bytes per frame for every codec, on real Atari frames: ``uv run benchmarks/sizes.py``.

Prints a table and writes ``benchmarks/sizes.csv``, which is committed: a change of a size is a change to review.
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import zstandard
from atari_frames import Frames, frames
from obscodec import Layout, codec
from obscodec.codecs import Codec, TailedCodec

GAMES = ("MsPacman", "Pong", "Breakout")
SPECS = (
    "raw",
    "rle",
    "lz4",
    "lz4:-10",
    "lz4:9",
    "lz4:12",
    "zstd:-5",
    "zstd:1",
    "zstd:3",
    "zstd:9",
    "zstd:19",
    "zstd:22",
    "shuffle|zstd:3",
    "delta|zstd:3",
    "rle|lz4",
    "rle|zstd:3",
    "rle|zstd:19",
)
FITTED = ("zstd:1", "zstd:3", "zstd:19", "rle|zstd:3", "lz4")  # with a dictionary
BLOCKS = ("delta-rle", "delta-rle|lz4", "delta-rle|zstd:3", "zstd:3", "zstd:19")  # of consecutive frames, likewise
BLOCK_FRAMES = 16
N_TRAINING = 1000
N_MEASURED = 1000


def sizes(played: Frames) -> Iterator[tuple[str, float]]:
    """Each codec, and its mean bytes per frame on the frames after those that dictionaries are trained on."""
    training, measured = played[:N_TRAINING], played[N_TRAINING:]
    layout = Layout(played.shape[1:], played.dtype)
    for spec in SPECS:
        yield spec, bytes_per_frame(codec(spec, layout), measured)
    for spec in FITTED:
        yield f"{spec} + dictionary", bytes_per_frame(codec(spec, layout).fit(training), measured)
    layout = Layout((BLOCK_FRAMES, *layout.shape), layout.dtype)
    for spec in BLOCKS:
        fitted = fit_blocks(codec(spec, layout), blocks(training))
        yield f"{spec} in blocks + dictionary", bytes_per_frame(fitted, blocks(measured)) / BLOCK_FRAMES


def blocks(played: Frames) -> Frames:
    """``u8[n, 16, 84, 84]``; what does not fill a block is left out."""
    n = len(played) // BLOCK_FRAMES
    return played[: n * BLOCK_FRAMES].reshape(n, BLOCK_FRAMES, *played.shape[1:])


def fit_blocks(plain: Codec, training: Frames) -> Codec:
    """With reference frames for ``delta-rle`` itself, as a frame store finds them, then with a dictionary."""
    if isinstance(plain, TailedCodec):
        plain = replace(plain, inner=plain.inner.fit(training))
    return plain.fit(training)


def bytes_per_frame(measured: Codec, played: Frames) -> float:
    """Mean bytes of a stream; each one is decoded and compared first."""
    rows = measured.layout.rows(played)
    streams = measured.encode_batch(rows, np.empty(len(rows) * measured.bound(), np.uint8))
    decoded = np.empty_like(rows)
    measured.decode_batch(streams, decoded)
    if not np.array_equal(decoded, rows):
        raise AssertionError(f"{measured.spec} does not give back what it took")
    return streams.nbytes / len(streams)


def libraries() -> str:
    """The versions that the sizes depend on."""
    zstd = ".".join(map(str, zstandard.ZSTD_VERSION))
    packages = " ".join(f"{name}={version(name)}" for name in ("lz4", "ale-py", "opencv-python-headless"))
    return f"zstd={zstd} {packages}"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"), help="the CSV to write")
    out = parser.parse_args().out
    columns = [dict(sizes(frames(game, N_TRAINING + N_MEASURED, seed=0))) for game in GAMES]
    table = [(spec, *(f"{column[spec]:.3f}" for column in columns)) for spec in columns[0]]
    print(f"{'codec':40}" + "".join(f"{game:>12}" for game in GAMES))
    for spec, *figures in table:
        print(f"{spec:40}" + "".join(f"{figure:>12}" for figure in figures))
    with out.open("w", newline="") as file:
        file.write(f"# bytes per frame of u8[84, 84]: {N_MEASURED} frames, after {N_TRAINING} for dictionaries\n")
        file.write(f"# {libraries()}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["codec", *GAMES])
        writer.writerows(table)


if __name__ == "__main__":
    main()
