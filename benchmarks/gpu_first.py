"""The first run on a GPU, in one command: what is exact, what is fast, what the tests and NVIDIA's tools find.

On a machine with an NVIDIA GPU, in a checkout or in a folder that ``just gpu-wheels`` made:

python gpu_first.py

Each part is a process with a time limit, and writes files of its own; docs/benchmarks.md describes them. This file
needs nothing but Python, since a machine with a GPU may have neither uv nor a network.
"""

import argparse
import hashlib
import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = next(folder for folder in (HERE, HERE.parent) if (folder / "benchmarks" / "gpu_parts").exists())
_TOOL_FOLDERS = ("usr/local/cuda*/bin", "opt/nvidia/nsight-compute/*", "opt/cuda/bin")
# What the tools print where they may not or can't look into the GPU, for example in a virtual machine.
_REFUSED = ("ERR_NVGPUCTRPERM", "Device not supported", "LibraryNotLoaded")
_SANITIZER = ("compute-sanitizer", "--error-exitcode", "99", "--target-processes", "all", "--tool")
_TESTS = "packages/obscodec-cupy/tests"
# The settings of the clock stay as they are: others may use the GPU.
_NCU = ("ncu", "--clock-control", "none", "--kernel-name", "regex:gather")
# How often warps were found at each instruction, and why they waited. A phase lies between two BAR.SYNC.
_SASS = ("--section", "SourceCounters", "--page", "source", "--print-source", "sass", "--csv")


class Part(NamedTuple):
    """One process.

    Attributes:
        name: of the part and of its files.
        limit_s: after so many seconds it is stopped.
        arguments: for ``python -m gpu_parts``.
        tool: the program that runs this process, with its options; none if empty.
    """

    name: str
    limit_s: float
    arguments: tuple[str, ...]
    tool: tuple[str, ...] = ()


# In the order in which they run, the most telling first. The parts of one tuple run side by side, as nothing is timed.
_PARTS = (
    (Part("versions", 60, ("versions",)),),
    (Part("codecs", 150, ("codecs",)),),
    (Part("gather", 150, ("gather",)),),
    (Part("times", 150, ("times",)),),
    (Part("adapters", 150, ("adapters",)),),
    (Part("ncu", 100, ("profiled",), (*_NCU, "--set", "full", "--launch-count", "8")),),
    (Part("ncu-sass", 60, ("profiled",), (*_NCU, *_SASS, "--launch-count", "2")),),
    (Part("phases", 60, ("phases",)),),
    (Part("memory", 60, ("memory",)),),
    (
        Part("suite-codecs", 540, ("suite", f"{_TESTS}/codecs", f"{_TESTS}/device")),
        Part("suite-gather", 540, ("suite", f"{_TESTS}/frames/test_gather*.py")),
        Part("suite-frames", 540, ("suite", f"{_TESTS}/frames/test_[!g]*.py")),
        Part("suite-contract", 540, ("suite", f"{_TESTS}/test_*.py")),
        Part("suite-adapters", 540, ("suite", "tests/test_cuda_*.py", "tests/test_torch_ring.py")),
        Part("memcheck", 540, ("codecs", "gather", "--tiny", "--no-pool"), (*_SANITIZER, "memcheck")),
        Part("racecheck", 540, ("codecs", "gather", "--tiny", "--no-pool"), (*_SANITIZER, "racecheck")),
    ),
)
_MEASURED = "versions", "times", "adapters", "memory"  # of which the table is made
_TOLD = "card", "date", "commit", "Python", "CuPy", "torch", "numpy", "CUDA of the driver"
_NAMES = [part.name for group in _PARTS for part in group]
SUITES = [path for group in _PARTS for part in group if part.arguments[0] == "suite" for path in part.arguments[1:]]


class Running:
    """A part that has started.

    Args:
        part: what runs.
        results: the folder for its files.
        environment: of its process.
        simulated: whether the GPU is simulated.
    """

    def __init__(self, part: Part, results: Path, environment: dict[str, str], *, simulated: bool) -> None:
        self._part = part
        self._simulated = simulated
        self._file = results / f"{part.name}.json"
        self._log = results / f"{part.name}.log"
        self._begin = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        self._skipped = ""
        tool = _found(part.tool[0]) if part.tool else None
        if part.tool and tool is None:
            self._skipped = f"{part.tool[0]} is not installed"
            return
        python = [sys.executable, "-u", "-m", "gpu_parts", *part.arguments, "--file", str(self._file)]
        command = [*([tool, *part.tool[1:]] if tool else []), *python, *["--simulated"] * simulated]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=ROOT, start_new_session=True
            )

    def ended(self) -> dict[str, Any] | None:
        """None while the part runs; once it ends or reaches its limit, how that went, which is added to its file."""
        code = None if self._process is None else self._process.poll()
        seconds = time.monotonic() - self._begin
        if self._process is not None and code is None and seconds < self._part.limit_s:
            return None
        self.stop()
        content: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            content = json.loads(self._file.read_text(encoding="utf-8"))
        self._note_refusal()
        if code == 0 and content.get("left_out") and not content["rows"]:
            self._skipped = "nothing ran. {what}: {why}".format(**content["left_out"][0])
        about = {
            "part": self._part.name,
            "status": "skipped" if self._skipped else _status(code),
            "seconds": round(seconds, 1),
            "limit_s": self._part.limit_s,
            "exit_code": code,
            "reason": self._skipped or self._reason(code),
            "simulated": self._simulated,
        }
        self._file.write_text(json.dumps(about | content, indent=1) + "\n", encoding="utf-8")
        return about

    def stop(self) -> None:
        """End the process, and those that it has started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _note_refusal(self) -> None:
        if self._part.tool and not self._skipped:
            log = self._log.read_text(encoding="utf-8", errors="replace")
            refusals = [text for text in _REFUSED if text in log]
            self._skipped = f"{self._part.tool[0]} can't look into this GPU: {refusals[0]}" if refusals else ""

    def _reason(self, code: int | None) -> str:
        if code == 0:
            return ""
        if code is None:
            return f"stopped after its limit of {self._part.limit_s:g} s"
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = [line.strip() for line in lines if line.strip()]
        return last[-1][:300] if last else "it printed nothing"


def _endings(running: list[Running]) -> Iterator[dict[str, Any]]:
    """How parts that run side by side have ended, in that order."""
    left = list(running)
    while left:
        for one in list(left):
            if about := one.ended():
                left.remove(one)
                yield about
        time.sleep(0.05)


def _status(code: int | None) -> str:
    return {0: "passed", None: "stopped"}.get(code, "failed")


def _found(tool: str) -> str | None:
    folders = [str(folder) for pattern in _TOOL_FOLDERS for folder in sorted(Path("/").glob(pattern), reverse=True)]
    return shutil.which(tool) or shutil.which(tool, path=os.pathsep.join(folders))


def _site(wheels: list[Path]) -> Path:
    """A folder with the content of the wheels, entry points included; the same one for the same wheels."""
    digest = hashlib.sha256(b"".join(hashlib.sha256(wheel.read_bytes()).digest() for wheel in wheels)).hexdigest()
    site = ROOT / "site" / digest[:12]
    if not site.exists():
        part = site.with_suffix(".part")
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(part)
        part.rename(site)
    return site


def _environment() -> dict[str, str]:
    """The environment of all parts, in which obscodec and its backend for GPUs are found."""
    paths = [str(ROOT / "benchmarks")]
    wheels = sorted(ROOT.glob("wheels/*.whl"))
    if wheels:
        paths.insert(0, str(_site(wheels)))
    elif importlib.util.find_spec("obscodec_cupy") is None:
        sys.exit(
            "obscodec-cupy is not installed, and there are no wheels beside this file: install it as its README.md "
            "says, or carry the folder that `just gpu-wheels FOLDER` makes"
        )
    before = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([*paths, before] if before else paths)}


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--results",
        type=Path,
        help="the folder to write; benchmarks/results/gpu, or gpu-simulated there, if left out. Results that it has "
        "move to RESULTS/before-1 and so on",
    )
    parser.add_argument(
        "--archive",
        type=Path,
        help="a zip file with all results, written anew after each part; RESULTS.zip if left out",
    )
    parser.add_argument("--parts", default=",".join(_NAMES), help="these only, of %(default)s")
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        type=_limit,
        metavar="PART=SECONDS",
        help="another time limit for one part",
    )
    parser.add_argument(
        "--simulated", action="store_true", help="for tests of this file only: tiny sizes on a simulated GPU"
    )
    return parser.parse_args()


def _limit(text: str) -> tuple[str, float]:
    name, _, seconds = text.partition("=")
    with suppress(ValueError):
        if 0 < float(seconds) < math.inf:
            return name, float(seconds)
    raise argparse.ArgumentTypeError(f"expected PART=SECONDS, such as codecs=400, got {text!r}")


def main() -> int:
    """Run the parts. The exit code is 1 if one of them failed or was stopped."""
    arguments = _parsed()
    limits = dict(arguments.limit)
    chosen = arguments.parts.split(",")
    if unknown := sorted({*chosen, *limits} - {*_NAMES}):
        sys.exit(f"there is no part {', '.join(unknown)}: the parts are {', '.join(_NAMES)}")
    usual = ROOT / "benchmarks" / "results" / ("gpu-simulated" if arguments.simulated else "gpu")
    results: Path = (arguments.results or usual).resolve()
    archive: Path = (arguments.archive or results.with_name(f"{results.name}.zip")).resolve()
    environment = _environment()
    results.mkdir(parents=True, exist_ok=True)
    _set_aside(results)
    summary: list[dict[str, Any]] = []
    for group in _PARTS:
        parts = [part._replace(limit_s=limits.get(part.name, part.limit_s)) for part in group if part.name in chosen]
        running = [Running(part, results, environment, simulated=arguments.simulated) for part in parts]
        try:
            for about in _endings(running):
                summary.append(about)
                print("{part}: {status} after {seconds} s. {reason}".format(**about).rstrip(), flush=True)
                (results / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
                if measured := table(results):
                    (results / "table.md").write_text(measured, encoding="utf-8")
                _pack(results, archive)
        finally:
            for one in running:
                one.stop()
        if parts and parts[0].name == "versions" and summary[-1]["status"] != "passed":
            print(f"`versions` failed, so nothing else runs: see {results / 'versions.log'}")
            break
    print(f"The results are in {results}, all of them also in {archive}")
    return int(any(about["status"] in ("failed", "stopped") for about in summary))


def table(results: Path) -> str:
    """The measurements in a folder as Markdown, with the card and the versions; empty if there are none."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for name in _MEASURED:
        with suppress(OSError, ValueError):
            rows[name] = json.loads((results / f"{name}.json").read_text(encoding="utf-8")).get("rows", [])
    about = {row["what"]: row["value"] for row in rows.pop("versions", []) if "what" in row}
    told = ", ".join(f"{what} {about[what]}" for what in _TOLD if what in about)
    lines = [
        f"| {row['data']} | {_what(row)} | {row['median_us']:,.1f} |"
        for row in chain(*rows.values())
        if "median_us" in row
    ]
    memory = [row for row in rows.get("memory", []) if "bytes_per_transition" in row]
    lines += [
        f"| {row['data']} | GPU memory a transition, heap {row['heap']} | {row['bytes_per_transition']:,} B |"
        for row in memory
    ]
    return "\n".join([told, "", "| data | what | median, µs |", "| --- | --- | ---: |", *lines, ""]) if lines else ""


def _what(row: dict[str, Any]) -> str:
    names = [row.get("library"), row["way"], row.get("what"), row.get("until")]
    reads = [f"graph of {row['reads_in_graph']}"] if "reads_in_graph" in row else []
    frames = [f"{row['frames']:,} frames"] if "frames" in row else []
    return "; ".join([*filter(None, names), *reads, *frames])


def _files(results: Path) -> list[Path]:
    """The files of results that are there."""
    names = ["summary.json", "table.md", *(f"{name}{end}" for name in _NAMES for end in (".json", ".log"))]
    return [results / name for name in names if (results / name).exists()]


def _set_aside(results: Path) -> None:
    """Move the results of an earlier run to a folder of their own, so that the folder and the archive have one run."""
    if older := _files(results):
        folder = next(path for n in count(1) if not (path := results / f"before-{n}").exists())
        folder.mkdir()
        for path in older:
            path.rename(folder / path.name)


def _pack(results: Path, archive: Path) -> None:
    part = archive.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as file:
        for path in _files(results):
            file.write(path, path.name)
    part.replace(archive)


if __name__ == "__main__":
    sys.exit(main())
