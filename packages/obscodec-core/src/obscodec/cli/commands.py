"""What ``obscodec`` can do."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from obscodec.cli.doctor import compact_table, doctor
from obscodec.cli.page import page_of, target_of, write_page
from obscodec.cli.warm import run_warm
from obscodec.errors import SnapshotError
from obscodec.snapshots import GenerationReport, find_snapshot, folder_nbytes, inspect_snapshot

app = typer.Typer(help="Look into snapshots, and see how data compress.", add_completion=False, no_args_is_help=True)
app.command()(doctor)
_PATH = "The folder of a snapshot, or one that has a snapshot inside, such as a checkpoint of TorchRL."
_HTML = "Also write a page with frames, rewards and ends of episodes, which a browser shows without a network."
_MOST_DAMAGE = 20  # texts to print for a generation


@app.command()
def inspect(
    path: Annotated[str, typer.Argument(help=_PATH, metavar="PATH")],
    html: Annotated[str | None, typer.Option(help=_HTML, metavar="PAGE")] = None,
) -> None:
    """Print the content of a snapshot: generations, steps, fields, codecs, sizes and damage. Reads every byte.

    Exit code 1 if something is damaged, 2 if there is no snapshot, or PAGE can't be written.
    """
    out, errors = Console(), Console(stderr=True)
    try:
        target = None if html is None else target_of(html)
        folder = find_snapshot(path) or Path(path)
        reports = list(inspect_snapshot(folder))
    except (SnapshotError, OSError) as error:
        errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    out.print(escape(f"{folder}: {decimal(folder_nbytes(folder))}"), soft_wrap=True, highlight=False)
    out.print(_generations(reports))
    last = reports[-1]
    if last.kind:
        out.print(f"\n{escape(_described(last))}", soft_wrap=True, highlight=False)
    if last.fields:
        out.print(_fields(last))
    for report in reports:
        for damage in report.damage[:_MOST_DAMAGE]:
            errors.print(f"generation {report.generation}: {damage}", markup=False, highlight=False, soft_wrap=True)
        if len(report.damage) > _MOST_DAMAGE:
            errors.print(f"generation {report.generation}: {len(report.damage) - _MOST_DAMAGE} places more")
    if target is not None:
        try:
            with redirect_stdout(sys.stderr):  # TorchRL logs to stdout
                page = page_of(folder, reports)
            write_page(page, target)
        except OSError as error:
            errors.print(f"{html} can't be written: {error}", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(2) from None
        nbytes = decimal(target.stat().st_size)
        out.print(escape(f"\nThe page is {html}, {nbytes}."), soft_wrap=True, highlight=False)
    if any(report.damage for report in reports):
        raise typer.Exit(1)


@app.command()
def warm(
    processes: Annotated[
        int | None, typer.Option(min=1, help="How many compile; each usable processor if left out.")
    ] = None,
) -> None:
    """Compile all kernels now, so that no later process waits for them. Prints the folder that keeps them.

    Exit code 1 if numba can write no folder to keep them in.
    """
    raise typer.Exit(run_warm(processes))


def _generations(reports: list[GenerationReport]) -> Table:
    table = compact_table("generation", "class", "written by", "bytes", "checksums", right=("generation", "bytes"))
    for report in reports:
        places = "1 place" if len(report.damage) == 1 else f"{len(report.damage)} places"
        checked = f"[red]{places} damaged" if report.damage else "[green]ok"
        texts = map(escape, (str(report.generation), report.kind, report.written_by, decimal(report.nbytes)))
        table.add_row(*texts, checked)
    return table


def _described(report: GenerationReport) -> str:
    """What a generation has, and what the buffer was made with."""
    counts = "" if report.n_steps is None else f", {report.n_steps:,} steps"
    envs = f" of each of {report.n_envs:,} environments" if counts and (report.n_envs or 1) > 1 else ""
    made_with = ", ".join(f"{name}={value!r}" for name, value in report.arguments.items())
    what = f"Generation {report.generation}: {report.kind}{counts}{envs}"
    return f"{what}, made with {made_with}." if made_with else f"{what}."


def _fields(report: GenerationReport) -> Table:
    table = compact_table("field", "item", "codec", "bytes", right=("bytes",))
    for field in report.fields:
        table.add_row(*map(escape, (field.name, field.item, field.codec or "none")), f"{field.nbytes:,}")
    table.add_row("all else", "", "", f"{report.other_nbytes:,}")
    return table
