"""The plot: memory against latency, a panel for each game, a marker for each buffer."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from result_tables import Row

_MARKERS = {"SB3": "s", "sb3-extra-buffers": "^", "cpprb": "D", "tianshou": "v", "obscodec": "o"}  # by library
_COLORS = mpl.colormaps["tab20"]


def plot(rows: list[Row], path: Path) -> None:
    """Draw the rows that have both numbers."""
    measured = [row for row in rows if "transition_bytes" in row and "sample256_ms" in row]
    tables = list(dict.fromkeys(row["table"] for row in measured))
    names = list(dict.fromkeys(str(row["buffer"]) for row in measured))
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text
    mpl.rcParams["svg.hashsalt"] = "obscodec"  # the same rows give the same file
    columns = min(3, len(tables))
    lines = -(-len(tables) // columns)
    figure = Figure(figsize=(3.6 * columns + 2.8, 3.4 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat
    for panel, table in zip(panels, tables, strict=False):
        panel.set(title=table, xscale="log", yscale="log")
        panel.set(xlabel="resident bytes / transition", ylabel="sample(256), ms")
        panel.xaxis.set_minor_formatter(NullFormatter())  # they would overlap
        panel.grid(which="both", alpha=0.2)
        for row in measured:
            if row["table"] == table:
                name = str(row["buffer"])
                at = row["transition_bytes"], row["sample256_ms"]
                color, marker = _COLORS(names.index(name) % _COLORS.N), _MARKERS[name.split()[0]]
                panel.plot(*at, marker, color=color, label=name, linestyle="none", markeredgecolor="black")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize="small")
    figure.savefig(path, metadata={"Date": None})
