"""What ``obscodec`` can do."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from obscodec.cli.doctor import doctor
from obscodec.cli.warm import run_warm
from obscodec.errors import SnapshotError
from obscodec.snapshots import GenerationReport, Progress, find_snapshot, folder_nbytes, inspect_snapshot

app = typer.Typer(help="Look into snapshots, and see how data compress.", add_completion=False, no_args_is_help=True)
app.command()(doctor)
_PATH = "The folder of a snapshot, or one that has a snapshot inside, such as a checkpoint of TorchRL."
_MOST_DAMAGE = 20  # texts to print for a generation
_MOST_PARTS = 500  # what is smaller than such a part of the whole is not listed


@app.callback()
def _app() -> None:
    """Have the name of a command be needed, although there is one."""


@app.command()
def inspect(path: Annotated[str, typer.Argument(help=_PATH, metavar="PATH")]) -> None:
    """Print what is in a snapshot: generations, sizes, and what is damaged. Reads every byte.

    Exit code 1 if something is damaged, 2 if there is no snapshot.
    """
    out, errors = Console(), Console(stderr=True)
    try:
        folder = find_snapshot(path)
        with Progress("read", folder_nbytes(folder)) as progress:
            reports = list(inspect_snapshot(folder, progress.advance))
    except SnapshotError as error:
        errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    out.print(_generations(folder, reports))
    last = reports[-1]
    if last.kind:
        out.print(_parts(last))
    for report in reports:
        for damage in report.damage[:_MOST_DAMAGE]:
            errors.print(f"generation {report.generation}: {damage}", markup=False, highlight=False, soft_wrap=True)
        if len(report.damage) > _MOST_DAMAGE:
            errors.print(f"generation {report.generation}: {len(report.damage) - _MOST_DAMAGE} places more")
    if any(report.damage for report in reports):
        raise typer.Exit(1)


@app.command()
def warm(
    processes: Annotated[
        int | None, typer.Option(min=1, help="How many compile; each usable processor if left out.")
    ] = None,
) -> None:
    """Compile the kernels ahead, so that no later process waits for them. Prints the folder that keeps them.

    Exit code 1 if numba can write no folder to keep them in.
    """
    raise typer.Exit(run_warm(processes))


def _generations(path: Path, reports: list[GenerationReport]) -> Table:
    table = Table(title=escape(f"{path}: {decimal(folder_nbytes(path))}"), title_justify="left")
    for column in ("no.", "kind", "written by", "bytes it\nneeds", "integrity"):
        table.add_column(column, justify="right" if column[:2] in ("no", "by") else "left", overflow="fold")
    for report in reports:
        integrity = f"[red]{len(report.damage)} places damaged" if report.damage else "[green]intact"
        texts = map(escape, (str(report.generation), report.kind, report.written_by, decimal(report.nbytes)))
        table.add_row(*texts, integrity)
    return table


def _parts(report: GenerationReport) -> Table:
    made_with = ", ".join(f"{name}={value!r}" for name, value in report.arguments.items())
    title = f"generation {report.generation}: {report.kind}({made_with})"
    table = Table(title=escape(title), title_justify="left")
    table.add_column("part of the state", overflow="fold")
    table.add_column("bytes", justify="right")
    total = sum(report.parts.values())
    large = {name: nbytes for name, nbytes in report.parts.items() if nbytes > total // _MOST_PARTS}
    for name, nbytes in large.items():
        table.add_row(escape(name), f"{nbytes:,}")
    table.add_row("all other parts", f"{total - sum(large.values()):,}")
    return table
