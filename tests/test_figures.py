"""Each figure in a table of the documents is in the results that the table names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"(?:^<!-- source: (?P<sources>[^\n]*) -->\n)?(?P<table>(?:^ *\|.*\n)+)", re.MULTILINE)
FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?")
CELL = re.compile(r"[*<]*\d[\d,.]*(?: to \d[\d,.]*)?[x%*]*")
# What says how to measure, or what is tested, quotes nothing; the notes for developers have their commands in the text.
WITHOUT_RESULTS = {
    "benchmarks.md",
    "compatibility.md",
    "performance.md",
    "architecture.md",
    "gallery.md",
    "releasing.md",
}
DOCUMENTS = [path for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))] if path.name not in WITHOUT_RESULTS]


def gap_of(source: str) -> str:
    """What stands for a comma: between figures in a CSV file, in figures elsewhere."""
    return " " if source.endswith(".csv") else ""


def quoted(path: Path) -> list[tuple[str, str]]:
    """Each table with figures, and the files that it names."""
    tables = TABLE.finditer(path.read_text(encoding="utf-8"))
    return [(match["sources"] or "", match["table"]) for match in tables if figures_of(match["table"])]


def figures_of(table: str) -> list[str]:
    """The figures in cells that have nothing else."""
    cells = [cell.strip() for line in table.splitlines()[2:] for cell in re.split(r"(?<!\\)\|", line)]
    return [figure for cell in cells if CELL.fullmatch(cell) for figure in FIGURE.findall(cell) if figure != "1"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_figures_of_tables_are_in_their_results(path: Path) -> None:
    for sources, table in quoted(path):
        assert sources, f"a table has figures, but no source:\n{table}"
        known = {
            figure
            for source in sources.split()
            for figure in FIGURE.findall((ROOT / source).read_text(encoding="utf-8").replace(",", gap_of(source)))
        }
        assert [figure for figure in figures_of(table) if figure.replace(",", "") not in known] == [], table


def test_there_are_tables() -> None:
    assert sum(len(quoted(path)) for path in DOCUMENTS) > 5
