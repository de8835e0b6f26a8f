"""Results as CSV and as Markdown, with date, command, machine and versions."""

import csv
import os
import platform
import shlex
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path

Row = dict[str, str | float]

_PACKAGES = [
    *("obscodec", "stable-baselines3", "sb3-extra-buffers", "cpprb", "tianshou", "torch", "numpy", "numba"),
    *("zstandard", "lz4", "ale-py", "gymnasium"),
]

# heading -> the column with the figure, its format, and the column with the ratio to SB3's
_COLUMNS = {
    "bytes / transition": ("transition_bytes", ",.0f", "transition_x"),
    "bytes / transition, as a DQN trains": ("learning_bytes", ",.0f", "learning_x"),
    "fixed MB": ("fixed_mb", ",.0f", ""),
    "`add` mean while filling, µs": ("fill_mean_us", ".0f", "fill_mean_x"),
    "`add` mean later, µs": ("add_mean_us", ".0f", "add_mean_x"),
    "`add` median, µs": ("add_median_us", ".0f", "add_median_x"),
    "mean from views, µs": ("views_mean_us", ".0f", "views_mean_x"),
    "`add` p99, µs": ("add_p99_us", ".0f", ""),
    "`add` for each transition, µs": ("add_us", ".2f", "add_x"),
    "`sample(32)`, ms": ("sample32_ms", ".2f", "sample32_x"),
    "`sample(256)`, ms": ("sample256_ms", ".2f", "sample256_x"),
    "CPU ms": ("sample256_cpu_ms", ".2f", ""),
    "10x larger": ("growth_x", ".2f", ""),
    "exact": ("exact", ".1%", ""),
    "DQN steps/s": ("steps_per_s", ".0f", "steps_x"),
    "DQN steps/s, one thread left free": ("free_per_s", ".0f", "free_x"),
    "minutes / million steps": ("minutes", ",.0f", ""),
    "PPO steps/s": ("ppo_per_s", ".0f", "ppo_x"),
    "seconds": ("make_s", ".4f", "plain_x"),
    "MB": ("make_mb", ".1f", ""),
    "resident MB": ("resident_mb", ".1f", ""),
    "of these encoded": ("streams_mb", ".1f", ""),
    "reserved": ("free_mb", ".1f", ""),
    "tables": ("tables_mb", ".1f", ""),
    "ids": ("ids_mb", ".1f", ""),
    "actions, rewards, flags": ("rest_mb", ".1f", ""),
    "first use, empty cache, s": ("empty_s", ".2f", ""),
    "warm cache, s": ("warm_s", ".2f", ""),
}
_MORE_IS_BETTER = {"steps_x", "free_x", "ppo_x"}
MISSING = "missing"  # the column that tells why there are no figures


def circumstances(group: str | None = "benchmarks", packages: Iterable[str] = _PACKAGES) -> dict[str, str]:
    """Date, command, machine and versions; the command installs a group of packages, None for a script's own."""
    versions = []
    for package in packages:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} not installed")
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "command": f"uv run {f'--group {group} ' if group else ''}benchmarks/{command}",
        "machine": f"{_processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at start",
        "versions": f"Python {platform.python_version()}, {', '.join(versions)}",
    }


def as_csv(rows: list[Row], about: dict[str, str]) -> str:
    """All numbers, with four digits."""
    file = StringIO()
    file.writelines(f"# {name}: {text}\n" for name, text in about.items())
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(file, names, lineterminator="\n", restval="")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()})
    return file.getvalue()


def as_markdown(title: str, rows: list[Row], about: dict[str, str]) -> str:
    """A table for each game and number of environments, ratios to SB3's in brackets, bold where SB3's own is better."""
    lines = [f"# {title}", "", *(f"- {name}: {text}" for name, text in about.items())]
    for table in dict.fromkeys(row["table"] for row in rows):
        lines += ["", f"## {table}", "", *_table([row for row in rows if row["table"] == table])]
    return "\n".join(lines) + "\n"


def _table(rows: list[Row]) -> Iterable[str]:
    headings = [heading for heading, (name, _, _) in _COLUMNS.items() if any(name in row for row in rows)]
    yield f"| buffer | {' | '.join(headings)} |"
    yield f"| --- |{' ---: |' * len(headings)}"
    for row in rows:
        buffer = str(row["buffer"]).replace("|", "\\|")
        cells = [_cell(row, heading) for heading in headings]
        if MISSING in row:
            cells[0] = f"not measured: {row[MISSING]}"
        yield f"| {buffer} | {' | '.join(cells)} |"


def _cell(row: Row, heading: str) -> str:
    name, form, ratio_name = _COLUMNS[heading]
    value, ratio = row.get(name), row.get(ratio_name)
    if not isinstance(value, float):
        return ""
    if not isinstance(ratio, float):
        return f"{value:{form}}"
    worse = ratio < 0.995 if ratio_name in _MORE_IS_BETTER else ratio > 1.005
    text = f"{ratio:.2f}x" if ratio > 0.05 else f"{ratio:.4f}x"
    return f"{value:{form}} ({f'**{text}**' if worse else text})"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return models[0].partition(":")[2].strip() if models else platform.processor()
