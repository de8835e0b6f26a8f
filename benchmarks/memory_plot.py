"""Draw the memory of a million transitions, uncompressed and in obscodec: ``results/memory_table/memory_table.svg``.

uv run --group benchmarks benchmarks/memory_plot.py
"""

import csv
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "results" / "memory_table"
SHOWN = ["Atari Breakout", "Atari Pong", "Atari MsPacman", "Atari Enduro", "CarRacing, 96x96 in colour",
         "VizDoom, a room with textures, 84x84 in colour", "noise, 84x84"]  # fmt: skip


def main() -> None:
    """Read the table that ``memory_table.py`` has written, and draw some of its rows."""
    with (FOLDER / "memory_table.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["environment"]: row for row in csv.DictReader(file)}
    mpl.rcParams["svg.hashsalt"] = "obscodec"  # the same table gives the same file
    figure = Figure(figsize=(8, 2.8), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(reversed(SHOWN)):
        raw, packed = (float(rows[name][column]) / 1000 for column in ("raw_mb", "mb"))
        axes.plot([packed, raw], [place, place], color="#bbbbbb", linewidth=2, zorder=1)
        axes.scatter(raw, place, color="#888888", label="uncompressed" if place == 0 else None, zorder=2)
        axes.scatter(packed, place, color="#1a7f37", label="obscodec" if place == 0 else None, zorder=2)
        axes.annotate(
            f"{float(rows[name]['ratio']):.0f} times less",
            (packed, place),
            (8, 4),
            textcoords="offset points",
            fontsize=8,
        )
    axes.set(xscale="log", xlim=(0.04, 100), ylim=(-0.6, len(SHOWN) - 0.3), xlabel="GB for a million transitions")
    axes.set_yticks(range(len(SHOWN)), [name.split(", ")[0] for name in reversed(SHOWN)])
    axes.grid(axis="x", color="#eeeeee")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", frameon=False, fontsize=8)
    figure.savefig(FOLDER / "memory_table.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
