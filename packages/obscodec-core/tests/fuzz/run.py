"""Fuzz what reads bytes of strangers: ``uv run --group fuzz .../fuzz/run.py TARGET|all --executions N --seed S``.

Atheris watches which lines of our Python code an input reaches, and how far a compiled decoder comes with it, and
changes the inputs that reached something new. With ``--plain`` there is no atheris: changes are drawn at random. Each
target runs in a process of its own, which may die, and which has little memory. Prints executions and findings of each
target.
"""

import argparse
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS / folder) for folder in ("fuzz", "codecs", "snapshots", "")]
from limited_memory import limited_memory  # noqa: E402

SIBLINGS = 15
MOST = 6000  # bytes of an input
ROOM = 1 << 29  # bytes of address space that a process may take more than at its start
COUNTS = ("executions", "read", "refused", "skipped", "findings")


class Counts:
    """Numbers that outlive the process that counts."""

    def __init__(self, path: Path) -> None:
        path.touch()
        if path.stat().st_size == 0:
            path.write_bytes(bytes(8 * len(COUNTS)))
        with path.open("r+b") as file:
            self._memory = mmap(file.fileno(), 8 * len(COUNTS))

    def add(self, name: str) -> None:
        """Count one more."""
        at = 8 * COUNTS.index(name)
        self._memory[at : at + 8] = struct.pack("<q", struct.unpack_from("<q", self._memory, at)[0] + 1)

    def all(self) -> dict[str, int]:
        """All numbers, by name."""
        return dict(zip(COUNTS, struct.unpack(f"<{len(COUNTS)}q", self._memory), strict=True))


class Runner:
    """Runs inputs of a target, counts what becomes of them, and keeps findings.

    Each call runs an input and some others that differ from it: to run one takes less time than to choose one.
    """

    def __init__(self, name: str, folder: Path, seed: int, n_siblings: int, reached: Callable[[int], object]) -> None:
        from targets import all_targets

        self.name, self.target = name, all_targets()[name]()
        self.counts = Counts(folder / "counts")
        self.seeds = [content for content in self.target.seeds() if len(content) <= MOST]
        self._folder, self._reached = folder, reached
        self._rng, self._n_siblings = random.Random(seed), n_siblings
        self._known: set[str] = set()
        (folder / "running").write_bytes(bytes(4 + MOST))
        with (folder / "running").open("r+b") as file:
            self._running = mmap(file.fileno(), 4 + MOST)

    def __call__(self, content: bytes) -> None:
        """Run an input and its siblings."""
        self.run(content)
        for _ in range(self._n_siblings):
            self.run(self.target.mutate(content, self._rng)[:MOST])

    def run(self, content: bytes) -> None:
        """Run one input, which is noted first: the process may die of it."""
        self._running[: 4 + len(content)] = len(content).to_bytes(4, "little") + content
        from targets import READ, SKIPPED

        try:
            said = self.target.run(content)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            self._found(error, content)
            return
        if said == SKIPPED:
            self.counts.add("skipped")
            return
        self.counts.add("executions")
        self.counts.add("read" if said == READ else "refused")
        self._reached(hash(said) % N_OUTCOMES)

    def _found(self, error: BaseException, content: bytes) -> None:
        self.counts.add("executions")
        self.counts.add("findings")
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/obscodec/" in frame.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "the target"
        what = f"{type(error).__name__} at {where}"
        if what in self._known:
            return
        self._known.add(what)
        name = "".join(c if c.isalnum() else "-" for c in what)
        (self._folder / f"{name}.case").write_bytes(content)
        text = "".join(traceback.format_exception(error))
        (self._folder / f"{name}.txt").write_text(text)
        print(f"{self.name}: {what}: {str(error)[:200]!r}: {content[:100]!r}", flush=True)


N_OUTCOMES = 1 << 10


def outcome_function() -> Callable[[int], object]:
    """A function with a line for each of so many numbers, for atheris to see which ones occur."""
    import atheris

    parts = []
    for part in range(N_OUTCOMES // 32):
        lines = [f"    if k == {k}:\n        return {k}" for k in range(32 * part, 32 * part + 32)]
        made: dict[str, Any] = {}
        exec("\n".join(["def reached(k):", *lines]), made)
        parts.append(atheris.instrument_func(made["reached"]))
    return lambda k: parts[k // 32](k)


def kernels() -> list[str]:
    """The modules with compiled functions: numba reads their bytecode, which nobody may change."""
    sources = _TESTS.parent / "src"
    found = [
        file for file in sources.rglob("*.py") if re.search(r"^@(compiled|inlined)", file.read_text(), re.MULTILINE)
    ]
    return [".".join(file.relative_to(sources).with_suffix("").parts) for file in found]


def fuzz(name: str, folder: Path, executions: int, seed: int) -> None:
    """Run a target with atheris, in this process, which ends then."""
    import atheris

    with atheris.instrument_imports(include=["obscodec"], exclude=kernels()):
        runner = Runner(name, folder, seed, SIBLINGS, outcome_function())
    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for k, content in enumerate(runner.seeds):
        (corpus / f"seed-{k:04}").write_bytes(content)
        runner.target.run(content)  # compiles

    def mutate(content: bytes, most: int, seed: int) -> bytes:
        if seed % 3 == 0:
            return bytes(atheris.Mutate(content, most))
        return runner.target.mutate(content, random.Random(seed))[:most]

    options = [f"-runs={-(-executions // (1 + SIBLINGS))}", f"-seed={seed or 1}", f"-max_len={MOST}"]
    options += ["-mutate_depth=2", "-timeout=30", "-rss_limit_mb=3000", f"-artifact_prefix={folder}/"]
    options += ["-verbosity=0", "-print_final_stats=0", "-reduce_inputs=0", "-len_control=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], runner, custom_mutator=mutate)
    with limited_memory(ROOM):
        atheris.Fuzz()


def fuzz_plainly(name: str, folder: Path, executions: int, seed: int) -> int:
    """Run a target on kept cases, on its seeds, and on seeds that are changed once or several times.

    Returns:
        How many inputs were findings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    runner, rng = Runner(name, folder, seed, 0, lambda k: None), random.Random(seed)
    for content in [*runner.seeds, *kept_cases(name)]:
        runner.run(content)
    with limited_memory(ROOM):
        for _ in range(executions):
            content = rng.choice(runner.seeds)
            for _ in range(rng.choice((1, 1, 2, 3))):
                content = runner.target.mutate(content, rng)
            runner.run(content[:MOST])
    return runner.counts.all()["findings"]


def kept_cases(name: str) -> list[bytes]:
    """Inputs that were findings once."""
    return [file.read_bytes() for file in sorted((_TESTS / "fuzz" / "cases").glob(f"{name}.*"))]


def run_target(name: str, executions: int, seed: int, folder: Path, *, plain: bool) -> dict[str, int]:
    """Run a target in a process of its own; again with another seed for the rest of the executions, if it dies."""
    folder.mkdir(parents=True, exist_ok=True)
    counts, deaths = Counts(folder / "counts"), 0
    environment = {**os.environ, "MALLOC_PERTURB_": "165", "PYTHONHASHSEED": "0"}
    while (left := executions - counts.all()["executions"]) > executions // 50 and deaths < 5:
        command = [sys.executable, __file__, name, "--executions", str(left), "--seed", str(seed + deaths)]
        command += ["--folder", str(folder.parent if plain else folder), "--child", *["--plain"] * plain]
        before = counts.all()["executions"]
        with (folder / "log").open("ab") as log:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
        print(done.stdout, end="", flush=True)
        if done.returncode or counts.all()["executions"] == before:
            deaths += 1
            running = (folder / "running").read_bytes()
            (folder / f"death-{deaths}.case").write_bytes(running[4 : 4 + int.from_bytes(running[:4], "little")])
            print(f"{name}: the process ended with {done.returncode}: see {folder}", flush=True)
    return {**counts.all(), "deaths": deaths}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--executions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="without atheris")
    parser.add_argument("--folder", type=Path, help="for inputs and findings")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child and not asked.plain:
        fuzz(asked.target, asked.folder, asked.executions, asked.seed)
        return
    from targets import SHARES

    names = list(SHARES) if asked.target == "all" else asked.target.split(",")
    if asked.child:
        warnings.simplefilter("error")
        sys.exit(sum(fuzz_plainly(name, asked.folder / name, asked.executions, asked.seed) for name in names) > 0)
    total = sum(SHARES[name] for name in names)
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="obscodec-fuzz-"))
    bad = 0
    print(f"findings are kept in {folder}", flush=True)
    for name in names:
        begin, n = time.monotonic(), -(-asked.executions * SHARES[name] // total)
        found = run_target(name, n, asked.seed, folder / name, plain=asked.plain)
        bad += found["findings"] + found["deaths"]
        told = ", ".join(f"{number:,} {what}" for what, number in found.items())
        print(f"{name}: {told}, {time.monotonic() - begin:.0f} s", flush=True)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
