"""Textured and camera images: what codecs, other formats and ``auto`` make of them.

    uv run --group textured benchmarks/textured.py

records the sets of ``textured_frames`` once, and measures 96 frames of the second half of each: six blocks of 16. What
a codec learns, it learns from the first half. Sizes are exact; times are processor time, the best of several. Writes
``benchmarks/results/textured``, and ``docs/gallery.md``.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from gallery import write_gallery
from obscodec import Field, FrameStore, Layout, RingBuffer, available, codec
from obscodec.codecs import Codec, parse
from obscodec.stats import StoreStats
from obscodec.stores import Shown
from result_tables import MISSING, Row, as_csv, circumstances
from sizes import fit_blocks
from textured_frames import SETS, Frame, Recorded, measured_frames, recorded, training_frames
from textured_peers import Peer, peers

RESULTS = Path(__file__).with_name("results") / "textured"
SPECS = ("delta-rle", "delta-rle|lz4:6", "delta-rle|zstd:3", "zstd:3", "pred", "palette")
BLOCK_FRAMES = (1, 4, 16)
STACK = 4
_N_RANDOM = {1: 256, STACK: 64}  # single frames, and stacks
_IN_ORDER = 64  # frames of a call
_ENOUGH_S = 0.3  # of repetitions
_PACKAGES = (
    *("obscodec", "numpy", "numba", "zstandard", "imagecodecs", "pillow", "av"),
    *("vizdoom", "crafter", "minigrid", "envpool", "mujoco", "gymnasium", "opencv-python-headless", "scikit-video"),
)
_SIZES = ("set", "codec", "block_frames", "frame_bytes", "ratio", "untrained_bytes", MISSING)
_TIMES = ("set", "codec", "block_frames", "encode_mb_s", "random_mb_s", "stacks_mb_s", "in_order_mb_s")
_SPEEDS = {
    "encode": "encode_mb_s",
    "256 random frames": "random_mb_s",
    "64 random stacks of 4": "stacks_mb_s",
    "in order": "in_order_mb_s",
}
_AUTO = (
    "set",
    "title",
    "view",
    "tensor",
    "step_bytes",
    "total_bytes",
    "ratio",
    "codec",
    "block_frames",
    "reason",
    "trials",
)

Ints = npt.NDArray[np.int64]


def known_specs() -> list[str]:
    """Those of ``SPECS`` whose codecs are registered."""
    known = {*available()}
    return [spec for spec in SPECS if {stage.name for stage in parse(spec)} <= known]


def of_codec(spec: str, frames: Frame, block_frames: int) -> Row:
    """Bytes and speeds of a codec on the frames ``u8[n, ...]`` of a set."""
    layout = Layout((block_frames, *frames.shape[1:]), np.uint8)
    measured = layout.rows(_blocks(measured_frames(frames), block_frames))
    untrained = codec(spec, layout)
    trained = fit_blocks(untrained, _blocks(training_frames(frames), block_frames))
    out = np.empty(len(measured) * trained.bound(), np.uint8)
    n, nbytes = len(measured) * block_frames, measured.nbytes
    frame_bytes = [_exact_nbytes(one, measured, out) / n for one in (untrained, trained)]
    encode_s = _best_s(lambda: trained.encode_batch(measured, out))
    return {
        **_sizes(spec, block_frames, frame_bytes[1], nbytes / n),
        "untrained_bytes": f"{frame_bytes[0]:.1f}",
        "encode_mb_s": nbytes / 1e6 / encode_s,
        **_read_speeds(spec, frames[len(frames) // 2 :], block_frames),
    }


def of_peer(peer: Peer, frames: Frame) -> Row:
    """Bytes and speeds of another codec. In order is all that videos are decoded."""
    blocks = _blocks(measured_frames(frames), peer.block_frames)
    streams = [peer.encode(block) for block in blocks]
    for block, of_block in zip(blocks, streams, strict=True):
        if not np.array_equal(peer.decode(of_block, block), block):
            raise AssertionError(f"{peer.name} does not give back what it took")
    encode_s = _best_s(lambda: [peer.encode(block) for block in blocks])
    decode_s = _best_s(lambda: [peer.decode(of, block) for of, block in zip(streams, blocks, strict=True)])
    n = len(blocks) * peer.block_frames
    row = _sizes(
        peer.name, peer.block_frames, sum(len(stream) for of in streams for stream in of) / n, blocks.nbytes / n
    )
    row |= {"encode_mb_s": blocks.nbytes / 1e6 / encode_s, "in_order_mb_s": blocks.nbytes / 1e6 / decode_s}
    if peer.block_frames == 1:
        row |= {"random_mb_s": row["in_order_mb_s"], "stacks_mb_s": row["in_order_mb_s"]}
    return row


def of_auto(played: Recorded, depth: int) -> Row:
    """What a buffer takes whose field has the default codec; observations are stacks if ``depth`` is not 1."""
    frames = played.frames
    shape = frames.shape[1:] if depth == 1 else (depth, *frames.shape[1:])
    buffer = RingBuffer(len(frames), {"obs": Field(shape, np.uint8)}, threads=1)
    n_first = Shown.of(buffer.fields["obs"].layout).n
    for _ in range(-(-n_first // len(frames))):  # a short film is played again, until the buffer has seen enough
        for observation in observations(played, depth):
            buffer.append(obs=observation.reshape(shape))
    buffer.decide()
    stats = buffer.stats().fields["obs"]
    assert isinstance(stats, StoreStats)
    choice = stats.choice
    assert choice is not None
    nbytes = stats.growing_bytes / len(frames)
    trials = "; ".join(f"{of.spec} {of.frame_bytes:.0f}" for of in choice.trials)
    return {
        "tensor": "x".join(map(str, shape)),
        "step_bytes": f"{nbytes:.1f}",
        "total_bytes": f"{stats.total_bytes / len(frames):.1f}",
        "ratio": f"{frames.nbytes / len(frames) * depth / nbytes:.2f}",
        "codec": choice.chosen.spec,
        "block_frames": str(choice.chosen.block_frames),
        "reason": choice.reason,
        "trials": trials,
    }


def observations(played: Recorded, depth: int) -> Iterator[Frame]:
    """The last ``depth`` frames after each step, ``u8[depth, ...]``, the first of an episode repeated."""
    first = 0
    for i, ends in enumerate(played.ends):
        yield played.frames[np.maximum(np.arange(i - depth + 1, i + 1), first)]
        first = i + 1 if ends else first


def as_table(rows: Sequence[Row], columns: dict[str, Callable[[list[Row]], str]]) -> list[str]:
    """A line of Markdown for each codec and number of frames in a block, with a figure of its rows in each column."""
    lines = [f"| codec | K | {' | '.join(columns)} |", f"| --- | ---: |{' ---: |' * len(columns)}"]
    for name, block_frames in dict.fromkeys((row["codec"], row["block_frames"]) for row in rows):
        of_codec = [row for row in rows if (row["codec"], row["block_frames"]) == (name, block_frames)]
        cells = " | ".join(figure(of_codec) for figure in columns.values())
        lines.append(f"| {str(name).replace('|', chr(92) + '|')} | {block_frames} | {cells} |")
    return lines


def as_markdown(rows: Sequence[Row], choices: Sequence[Row], about: dict[str, str]) -> str:
    """Bytes of each set, median speeds, and what ``auto`` chose."""
    sets = list(dict.fromkeys(str(row["set"]) for row in rows))
    lines = ["# Textured images", "", *(f"- {name}: {text}" for name, text in about.items())]
    lines += ["", "## Bytes per frame", "", "K frames in a block; `sizes.csv` has the reason of an empty cell.", ""]
    lines += as_table(rows, {name: partial(_bytes_of, name) for name in sets})
    lines += ["", "## MB/s of frames, median of the sets", ""]
    lines += as_table(rows, {heading: partial(_median, key) for heading, key in _SPEEDS.items()})
    lines += ["", "## What `auto` chose", ""]
    lines += [
        "| set | tensor | bytes per step | times smaller | codec | reason |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    for row in choices:
        spec = str(row["codec"]).replace("|", "\\|")
        lines.append(
            f"| {row['set']} | {row['tensor']} | {float(row['step_bytes']):,.0f} | {row['ratio']} "
            f"| `{spec}`, {row['block_frames']} | {row['reason']} |"
        )
    return "\n".join(lines) + "\n"


def main(
    sets: Annotated[str, typer.Option(help="names with commas between them, empty for all")] = "",
    specs: Annotated[list[str] | None, typer.Option("--codec", help="a spec; several times for several")] = None,
    with_peers: Annotated[bool, typer.Option("--peers/--no-peers", help="measure other codecs, too")] = True,
    out: Annotated[Path, typer.Option(help="folder for the results")] = RESULTS,
) -> None:
    """Measure, print, and write tables."""
    about = circumstances("textured", _PACKAGES)
    rows: list[Row] = []
    choices: list[Row] = []
    for name in sets.split(",") if sets else SETS:
        try:
            played = recorded(name)
        except Exception as error:  # of any environment and renderer
            print(f"{name}: not recorded, {type(error).__name__}: {error}")
            continue
        for row in measured(played.frames, specs or known_specs(), peers() if with_peers else []):
            rows.append({"set": name, **row})
            print(
                *(f"{value:.0f}" if isinstance(value, float) else value for value in rows[-1].values()),
                sep="\t",
                flush=True,
            )
        for depth in (1, STACK):
            choices.append({"set": name, **_told(name), **of_auto(played, depth)})
            _print(choices[-1])
    out.mkdir(parents=True, exist_ok=True)
    exact = {"versions": about["versions"]}  # sizes depend on nothing else
    for file, kept, keys, told in (
        ("sizes", rows, _SIZES, exact),
        ("times", rows, _TIMES, about),
        ("auto", choices, _AUTO, about),
    ):
        text = as_csv([{key: row[key] for key in keys if key in row} for row in kept], told)
        (out / f"{file}.csv").write_text(text, encoding="utf-8")
    (out / "textured.md").write_text(as_markdown(rows, choices, about), encoding="utf-8")
    if out == RESULTS:
        write_gallery()


def _told(name: str) -> Row:
    """The environment of a set, and what is done with its frames."""
    source = SETS[name]
    return {"title": source.title, "view": str(source.views[name].__doc__).rstrip(".")}


def measured(frames: Frame, specs: Iterable[str], others: Iterable[Peer]) -> Iterator[Row]:
    """A row for each codec; if one can't be measured, the row has the reason in the column ``missing``."""
    trials = [(spec, k, partial(of_codec, spec, frames, k)) for spec in specs for k in BLOCK_FRAMES]
    trials += [(peer.name, peer.block_frames, partial(of_peer, peer, frames)) for peer in others]
    for name, block_frames, measure in trials:
        try:
            yield measure()
        except Exception as error:  # of any library
            why = f"{type(error).__name__}: {error}"
            yield {"codec": name, "block_frames": str(block_frames), MISSING: why}


def _read_speeds(spec: str, frames: Frame, block_frames: int) -> Row:
    """MB/s of frames that a FrameStore reads."""
    store = FrameStore(Layout(frames.shape[1:], np.uint8), codec=spec, block_frames=block_frames, threads=1)
    frames = frames[: len(frames) // block_frames * block_frames]
    ids = store.append(frames)
    store.stats()  # no block waits
    if not np.array_equal(store.read(ids), frames):
        raise AssertionError(f"a store with {spec} does not give back what it took")
    rng = np.random.default_rng(0)
    calls = {
        "random_mb_s": _draws(ids, 1, block_frames, rng),
        "stacks_mb_s": _draws(ids, STACK, block_frames, rng),
        "in_order_mb_s": [ids[i : i + _IN_ORDER] for i in range(0, len(ids), _IN_ORDER)],
    }
    return {name: _read_mb_s(store, of) for name, of in calls.items()}


def _draws(ids: Ints, depth: int, block_frames: int, rng: np.random.Generator) -> list[Ints]:
    """The ids of calls that read random stacks of ``depth``.

    No call draws twice from a block, as there are many more blocks in a buffer than stacks in a batch.
    """
    span = max(depth, block_frames)
    calls, n = [], _N_RANDOM[depth]
    while n:
        drawn = 1 + rng.permutation(len(ids) // span - 1)[:n]
        last = drawn * span + rng.integers(span, size=len(drawn))
        calls.append(ids[last[:, None] + np.arange(1 - depth, 1)].ravel())
        n -= len(drawn)
    return calls


def _read_mb_s(store: FrameStore, calls: list[Ints]) -> float:
    outs = [np.empty((len(ids), *store.layout.shape), np.uint8) for ids in calls]

    def read() -> None:
        for ids, out in zip(calls, outs, strict=True):
            store.read(ids, out)

    return sum(out.nbytes for out in outs) / 1e6 / _best_s(read)


def _blocks(frames: Frame, block_frames: int) -> Frame:
    """``u8[n, block_frames, ...]``."""
    return frames.reshape(-1, block_frames, *frames.shape[1:])


def _exact_nbytes(one: Codec, rows: Frame, out: Frame) -> int:
    """Bytes of all streams, which are decoded and compared."""
    streams = one.encode_batch(rows, out)
    decoded = np.empty_like(rows)
    one.decode_batch(streams, decoded)
    if not np.array_equal(decoded, rows):
        raise AssertionError(f"{one.spec} does not give back what it took")
    return streams.nbytes


def _sizes(name: str, block_frames: int, frame_bytes: float, raw_bytes: float) -> Row:
    return {
        "codec": name,
        "block_frames": str(block_frames),
        "frame_bytes": f"{frame_bytes:.1f}",
        "ratio": f"{raw_bytes / frame_bytes:.2f}",
    }


def _best_s(call: Callable[[], object]) -> float:
    """Processor time of the process, in which nothing else runs."""
    times: list[float] = []
    while not times or (sum(times) < _ENOUGH_S and len(times) < 7):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def _print(row: Row) -> None:
    print(*(f"{value:.0f}" if isinstance(value, float) else value for value in row.values()), sep="\t", flush=True)


def _bytes_of(name: str, rows: list[Row]) -> str:
    return "".join(f"{float(row['frame_bytes']):,.0f}" for row in rows if row["set"] == name and "frame_bytes" in row)


def _median(key: str, rows: list[Row]) -> str:
    found = [float(row[key]) for row in rows if key in row]
    return f"{median(found):,.0f}" if found else ""


if __name__ == "__main__":
    typer.run(main)
