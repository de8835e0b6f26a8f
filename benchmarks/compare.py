"""Compare replay buffers, obscodec's and others', on the same frames: memory, time, and exactness of samples.

uv run --group benchmarks benchmarks/compare.py

docs/benchmarks.md describes what is measured, and how. Games are played once, and kept in the system's temporary
folder.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from buffer_times import latencies
from first_use import first_use
from processes import in_fresh_process
from recorded_steps import NOISE, folder, record
from replay_buffers import BASELINE, KINDS, missing
from resident_memory import resident
from result_plot import plot
from result_tables import MISSING, Row, as_csv, as_markdown, circumstances
from rich.console import Console
from training import training

_RESULTS = Path(__file__).with_name("results")
_QUICK = 2_000
_NOISE_SHARE = 10  # noise takes more memory than any game
console = Console(stderr=True)


def buffer_rows(game: str, n_envs: int, names: list[str], size: int, rounds: int, threads: int | None) -> Iterator[Row]:
    """Memory of each buffer, and times of all of them."""
    size = max(size // _NOISE_SHARE, 1_000) if game == NOISE else size
    console.log(f"{game}, n_envs {n_envs}: playing")
    paths = record(game, n_envs, 2 * size // n_envs)
    console.log("timing")
    times = in_fresh_process(latencies, names, paths, size, rounds, threads)
    memory = {}
    for name in names:
        console.log(f"memory of {name}")
        memory[name] = in_fresh_process(resident, name, paths, size)
    stock_bytes = memory[BASELINE.name].transition_bytes
    for name in names:
        row: Row = {"table": f"{game}, n_envs {n_envs}, {size:,} transitions", "buffer": name}
        ratio = {"transition_x": memory[name].transition_bytes / stock_bytes}
        yield row | memory[name]._asdict() | ratio | times[name]._asdict()


def training_rows(game: str, names: list[str], size: int, n_steps: int, threads: int | None) -> Iterator[Row]:
    """DQN with each buffer of SB3's interface."""
    console.log(f"{game}: training")
    names = [name for name in names if KINDS[name].sb3 is not None]
    for name, result in in_fresh_process(training, names, game, size, n_steps, threads).items():
        yield {"table": f"{game}, DQN", "buffer": name, **result._asdict()}


def first_use_rows(names: list[str]) -> Iterator[Row]:
    """The first use of each buffer."""
    paths = record("Pong", 1, 2 * _QUICK)
    for name in names:
        console.log(f"first use of {name}")
        yield {"table": "First use", "buffer": name, **first_use(name, paths)._asdict()}


def main(
    games: Annotated[str, typer.Option(help="names such as Pong, and Noise")] = f"MsPacman,Pong,Breakout,{NOISE}",
    transitions: Annotated[int, typer.Option(min=1_000, help="in each buffer; each game is twice as long")] = 50_000,
    envs: Annotated[str, typer.Option(help="numbers of environments")] = "1,4",
    buffers: Annotated[str, typer.Option(help="words: only buffers with one of them in their name; all if empty")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="batches of each size")] = 200,
    threads: Annotated[int, typer.Option(min=0, help="of torch and obscodec while timing; 0: their defaults")] = 1,
    train: Annotated[int, typer.Option(min=0, help="also train DQN on each game, for so many steps")] = 0,
    measure_first_use: Annotated[bool, typer.Option("--first-use", help="also time the first use")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="2,000 transitions of one game, to try the command")] = False,
    out: Annotated[Path | None, typer.Option(help="folder for compare.csv, .md, .svg")] = None,
) -> None:
    """Measure, and write tables and a plot into benchmarks/results, or into the temporary folder if --quick."""
    about = circumstances()
    names = [name for name in KINDS if name == BASELINE.name or any(word in name for word in buffers.split(","))]
    absent = {module: in_fresh_process(missing, module) for module in {KINDS[name].module for name in names}}
    reasons = {name: absent[KINDS[name].module] for name in names}
    usable = [name for name in names if not reasons[name]]
    limit = threads or None
    if quick:
        games, transitions, envs, rounds = games.split(",")[0], _QUICK, envs.split(",")[0], 30
    target = out or (folder() if quick else _RESULTS)
    target.mkdir(exist_ok=True, parents=True)

    def measured() -> Iterator[Iterator[Row]]:
        for n_envs in map(int, envs.split(",")):
            for game in games.split(","):
                yield buffer_rows(game, n_envs, usable, transitions, rounds, limit)
        for game in games.split(",") if train else ():
            if game != NOISE:
                yield training_rows(game, usable, min(transitions, 10_000), train, limit)
        if measure_first_use:
            yield first_use_rows(usable)

    rows: list[Row] = []
    for table in map(list, measured()):
        absent_rows = [{"table": table[0]["table"], "buffer": name, MISSING: reasons[name]} for name in names]
        rows += table + [row for row in absent_rows if row[MISSING]]
        write(rows, about, target)  # now, so that it is not lost if something fails later
    print((target / "compare.md").read_text(encoding="utf-8"))
    console.log(f"written to {target}")


def write(rows: list[Row], about: dict[str, str], target: Path) -> None:
    """Write tables and a plot of the measurements so far."""
    (target / "compare.md").write_text(as_markdown("Replay buffers compared", rows, about), encoding="utf-8")
    (target / "compare.csv").write_text(as_csv(rows, about), encoding="utf-8")
    plot(rows, target / "compare.svg")


if __name__ == "__main__":
    typer.run(main)
