"""Draw the memory of a million transitions: ``results/memory_table/memory_table.svg``.

uv run --group benchmarks benchmarks/memory_plot.py
"""

import csv
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "results" / "memory_table"
SHOWN = ["Atari Breakout", "Atari Pong", "Atari MsPacman", "Atari Enduro", "CarRacing, 96x96 in colour",
         "VizDoom, a room with textures, 84x84 in colour", "noise, 84x84"]  # fmt: skip
# Each can be read on white and on black, as pages are light or dark.
TEXT, LINE, PLAIN, FLAG, OURS = "#767e86", "#767e8655", "#8a929a", "#b7791f", "#22995a"


def main() -> None:
    """Read the table that ``memory_table.py`` has written, and draw some of its rows."""
    with (FOLDER / "memory_table.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["environment"]: row for row in csv.DictReader(file) if row["policy"] == "random"}
    mpl.rcParams.update(
        {"svg.hashsalt": "obscodec", "text.color": TEXT, "axes.labelcolor": TEXT, "axes.edgecolor": LINE}
    )
    mpl.rcParams.update({"xtick.color": TEXT, "ytick.color": TEXT, "font.size": 12})
    figure = Figure(figsize=(7.2, 4), layout="constrained", facecolor="none")
    axes = figure.subplots()
    axes.set_facecolor("none")
    for place, name in enumerate(reversed(SHOWN)):
        raw, flag, packed = (float(rows[name][column] or "nan") / 1000 for column in ("raw_mb", "flag_mb", "mb"))
        axes.plot([packed, raw], [place, place], color=LINE, linewidth=2, zorder=1)
        labels = ("uncompressed", "SB3, optimize_memory_usage", "obscodec")
        for x, colour, label in zip((raw, flag, packed), (PLAIN, FLAG, OURS), labels, strict=True):
            axes.scatter(x, place, s=60, color=colour, label=label if place == 0 else None, zorder=2)
        text = f"{packed:.2g} GB, {float(rows[name]['ratio']):.0f} times less"
        axes.annotate(text, (packed, place), (0, 8), textcoords="offset points", fontsize=11, color=OURS)
    axes.set(xscale="log", xlim=(0.04, 100), ylim=(-0.6, len(SHOWN) - 0.2), xlabel="GB for a million transitions")
    axes.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.set_yticks(range(len(SHOWN)), [name.split(", ")[0] for name in reversed(SHOWN)])
    axes.grid(axis="x", color=LINE, linewidth=0.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.4, 1.17), ncols=3, frameon=False, handletextpad=0, columnspacing=1
    )
    figure.savefig(FOLDER / "memory_table.svg", metadata={"Date": None}, transparent=True)


if __name__ == "__main__":
    main()
