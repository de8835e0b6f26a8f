"""Writes the page ``docs/gallery.md``: what a buffer makes of the images of each environment.

    uv run benchmarks/gallery.py

It reads ``benchmarks/results/textured``. ``benchmarks/textured.py`` records and measures all of it, and calls this.
"""

import csv
from itertools import groupby
from math import prod
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "gallery.md"
_RESULTS = Path(__file__).with_name("results") / "textured"
_PEER = "WebP lossless"
_N_RANDOM = 256
_HEAD = """# Gallery of images

What `codec="auto"` makes of images of 3D games, other games and cameras. A random agent played each environment.
Observations are stacks of four frames; "uncompressed" is such a stack, and "stored" what a buffer takes for it, once
it is full. A buffer without compression keeps the next observation, too, which takes the same again; obscodec stores
it only where an episode ends. Times are of one thread on {machine}.

- **Resize to the nearest pixel**, or take the native size, where an environment draws with few colours, as ViZDoom
  does. The mean of an area mixes colours that were not there, and frames become some three to four times larger.
- **Grey** images have a third of the bytes of colours to begin with, and take more than a third of the memory in the
  end.
- Reading costs time: 256 random frames take that of the last column but one, which `prefetch=True` hides behind the
  learner.
- If you name a codec yourself, pass its number of frames, too: `block_frames=16`.

`uv run --group textured benchmarks/textured.py` records and measures all of this, and writes this page. Its other
results, with more codecs and formats, are in `benchmarks/results/textured`.

"""
_COLUMNS = {
    "images": "---",
    "uncompressed, B": "---:",
    "stored, B": "---:",
    "times smaller": "---:",
    "codec": "---",
    "frames in a block": "---:",
    "encode a frame, µs": "---:",
    "256 frames, ms": "---:",
    "a frame as WebP, B": "---:",
}

Row = dict[str, str]


def write_gallery() -> None:
    """Write the page."""
    by_codec = {(row["set"], row["codec"], row["block_frames"]): row for row in _rows("times")}
    peers = {row["set"]: row for row in _rows("sizes") if row["codec"] == _PEER}
    lines, title = [f"| {' | '.join(row)} |" for row in (_COLUMNS, _COLUMNS.values())], ""
    for name, depths in groupby(_rows("auto"), key=lambda row: row["set"]):
        single, stacked = depths
        if single["title"] != title:
            title = single["title"]
            lines.append(f"| **{title}** |" + (len(_COLUMNS) - 1) * " |")
        frame_nbytes, raw_nbytes = (prod(map(int, row["tensor"].split("x"))) for row in (single, stacked))
        chosen = by_codec.get((name, stacked["codec"], stacked["block_frames"]), {})
        columns = (
            f"{stacked['view']}, {single['tensor']}",
            f"{raw_nbytes:,}",
            f"{float(stacked['step_bytes']):,.0f}",
            f"{float(stacked['ratio']):.1f}",
            f"`{stacked['codec']}`".replace("|", "\\|"),
            stacked["block_frames"],
            _spent(frame_nbytes * 1e6, chosen.get("encode_mb_s", "")),
            _spent(_N_RANDOM * frame_nbytes * 1e3, chosen.get("random_mb_s", "")),
            f"{float(peers[name]['frame_bytes']):,.0f}",
        )
        lines.append(f"| {' | '.join(columns)} |")
    head = _HEAD.format(machine=_about("times", "machine").partition(", load")[0])
    PAGE.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def _spent(bytes_by_unit: float, mb_s: str) -> str:
    """How long so many bytes take, in the unit by which they were multiplied."""
    return f"{bytes_by_unit / (float(mb_s) * 1e6):,.1f}" if mb_s else ""


def _rows(name: str) -> list[Row]:
    with (_RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def _about(name: str, what: str) -> str:
    begin = f"# {what}: "
    lines = (_RESULTS / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix(begin) for line in lines if line.startswith(begin))


if __name__ == "__main__":
    write_gallery()
