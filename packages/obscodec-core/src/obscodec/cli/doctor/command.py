"""The command ``obscodec doctor``."""

import json
import sys
from contextlib import redirect_stdout
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from obscodec.cli.doctor.report import TABLE_OF_COSTS, Report
from obscodec.cli.doctor.sources import LEAST_ITEMS, Content, Request, read
from obscodec.cli.doctor.trials import examine
from obscodec.errors import ObscodecError, SourceError
from obscodec.stores import StoreOptions

_SOURCE = (
    "An environment of Gymnasium, such as ALE/Pong-v5 or module:Id; module:function, which makes one or a vector of "
    "Stable-Baselines3; a file .npy, .npz, .hdf5 or .zarr.zip, or a folder of zarr, "
    "whose arrays have time along axis 0, maybe in a group for each episode, such as demo_0, demo_1; a folder "
    "with a file for each episode; minari:ID; or a folder with a snapshot, such as a saved buffer of Stable-Baselines3 "
    "or a checkpoint of TorchRL."
)
_WRAPPER = (
    "A wrapper of the environment: atari, pixels (its rendered image), a class of gymnasium.wrappers, module:Class, or "
    "module:function, which takes an environment and returns it wrapped. Several are applied in their order. "
    "python -m obscodec doctor finds a module in this folder."
)
_BUDGET = "'fast': try only codecs that read as fast as plain arrays, by a fixed table."


def doctor(
    source: Annotated[str, typer.Argument(help=_SOURCE, metavar="SOURCE")],
    wrapper: Annotated[list[str] | None, typer.Option(help=_WRAPPER, metavar="NAME")] = None,
    stack: Annotated[int, typer.Option(help="How many frames of an environment to stack.", min=1)] = 1,
    n_envs: Annotated[int, typer.Option(help="How many environments the code to paste plays in.", min=1)] = 1,
    steps: Annotated[int, typer.Option(help="How many steps or items to look at.", min=LEAST_ITEMS)] = 2000,
    seed: Annotated[int, typer.Option(help="Of the environment and its random actions.")] = 0,
    budget: Annotated[str | None, typer.Option(help=_BUDGET)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
) -> None:
    """Try the codecs on real data: memory, time, and whether each bit comes back.

    Exit code 1 if an item comes back changed, 2 if the source can't be read.
    """
    out, errors = Console(), Console(stderr=True)
    bar = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    try:
        StoreOptions(budget=budget)  # refuses a bad one
        with Progress(*bar, console=errors, transient=True, disable=not errors.is_terminal) as progress:
            task = progress.add_task("read", total=steps)
            advance = partial(progress.advance, task)
            request = Request(source, steps, tuple(wrapper or ()), stack, seed, advance, n_envs)
            with redirect_stdout(sys.stderr):  # TorchRL logs to stdout, and environments print there
                content = read(request)
            report = _report(source, content, budget, progress)
    except (ObscodecError, OSError) as error:
        errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        report.print(out)
    if not report.is_lossless:
        raise typer.Exit(1)


def _report(source: str, content: Content, budget: str | None, progress: Progress) -> Report:
    fields, left_out = [], dict(content.left_out)
    for name, array in content.items.items():
        task = progress.add_task(f"try {name}", total=None)
        try:
            show = partial(progress.update, task)
            fields.append(examine(name, array, budget, show, content.following.get(name)))
        except ObscodecError as error:  # others can be tried
            left_out[name] = str(error)
    if not fields:
        raise SourceError(f"{source} has no field to try, {'; '.join(map(': '.join, left_out.items()))}")
    said = [f"Left out: {name}, {reason}." for name, reason in left_out.items()]
    if any(field.measured for field in fields):
        said.append(TABLE_OF_COSTS)
    return Report(source, tuple(fields), (*content.presumed, *said), content.has_episodes, content.played)
