"""``benchmarks/gpu_first.py`` from beginning to end, on the simulated GPU and with stand-ins for NVIDIA's tools."""

import json
import operator
import os
import re
import subprocess
import sys
import zipfile
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import gpu_first
import gpu_folder
import numpy as np
import pytest
from gpu_parts import phases, suite
from obscodec_cupy.device.sources import source

ROOT = Path(__file__).parents[1]
FAIL, HANGS, SKIPPED = ("ncu", "ncu-sass"), "racecheck", "phases"
TOOLS = {
    "ncu": "echo 'the profiler fails'; exit 3",
    # The process that it starts must end with it.
    "compute-sanitizer": """
        case "$*" in *racecheck*) sleep 1000; esac
        while [ "$1" != -u ]; do python=$1; shift; done
        exec "$python" "$@" """,
}
PARTS = {
    *("versions", "codecs", "gather", "times", "adapters", "ncu", "ncu-sass", "phases"),
    *("memory", "memcheck", "racecheck"),
    *("suite-codecs", "suite-gather", "suite-frames", "suite-contract", "suite-adapters"),
}


def run(results: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "gpu_first.py", "--simulated", "--results", results, *options],
        env=environment | variables,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The whole command; one part fails, and one does not end."""
    folder = tmp_path_factory.mktemp("gpu_first")
    for name, text in TOOLS.items():
        tool = folder / "tools" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f"#!/bin/sh\n{text}\n")
        tool.chmod(0o755)
    for shared in ("kernels", "bytecode"):  # compiled once for all parts
        (folder / shared).mkdir()
    results = folder / "results"
    ended = run(
        results,
        f"--limit={HANGS}=0.5",
        PATH=f"{folder / 'tools'}{os.pathsep}{os.environ['PATH']}",
        CUDA_ON_CPU_FOLDER=str(folder / "kernels"),
        PYTHONPYCACHEPREFIX=str(folder / "bytecode"),
    )
    return ended, results


def content(results: Path, part: str) -> Any:
    return json.loads((results / f"{part}.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.long
def test_every_part_has_its_files_though_one_fails_and_one_hangs(
    whole: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    ended, results = whole
    summary = {about["part"]: about for about in content(results, "summary")}
    assert summary.keys() == PARTS, ended.stderr
    found = {part: content(results, part)["status"] for part in PARTS}
    expected = dict.fromkeys(PARTS, "passed") | dict.fromkeys(FAIL, "failed") | {HANGS: "stopped", SKIPPED: "skipped"}
    assert found == expected, ended.stdout
    assert {part: about["status"] for part, about in summary.items()} == found
    assert all(about["simulated"] for about in summary.values())
    assert all((summary[part]["exit_code"], summary[part]["reason"]) == (3, "the profiler fails") for part in FAIL)
    assert summary[HANGS]["reason"] == "stopped after its limit of 0.5 s"
    assert ended.returncode == 1
    with zipfile.ZipFile(results.with_suffix(".zip")) as archive:
        assert {*archive.namelist()} == {"summary.json", "table.md"} | {
            f"{part}{end}" for part in PARTS for end in (".json", ".log")
        }


@pytest.mark.slow
@pytest.mark.long
def test_the_files_hold_what_was_found(whole: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    results = whole[1]
    facts = {row.get("what"): row.get("value") for row in content(results, "versions")["rows"]}
    assert {"commit", "card", "Python", "numpy", "torch", "obscodec-cupy"} <= facts.keys()
    assert "obscodec_cupy" in facts["backends"]
    for part in ("codecs", "gather", "memcheck"):
        assert all(row["ok"] for row in content(results, part)["rows"])
    assert any("84x84" in row["check"] for row in content(results, "memcheck")["rows"])
    times = content(results, "times")["rows"]
    ways = {"device heap, uint8", "pinned heap, uint8", "device heap, float32 scaled", "device heap, uint8 shifted"}
    graphs = [row for row in times if row.get("table") == "graph"]
    # Two arrays of one store are read by one launch; the simulated GPU counts launches, as it has no clock.
    counted = {(row["way"], row["reads_in_graph"]): row["n_launches"] for row in graphs if row["way"] in ways}
    assert counted == {(way, n): n for way in ways for n in (1, 2)}
    host = [row for row in times if row.get("table") == "host"]
    assert {"sync, nothing new", "read"} <= {row["way"] for row in host}
    buffers = [row for row in content(results, "adapters")["rows"] if "way" in row]
    assert len({(row["library"], row["way"]) for row in buffers}) == 6
    assert {row["what"] for row in buffers} == {"sample(32)", "sample(256)", "add", "extend with 256 items"}
    lines = (results / "table.md").read_text(encoding="utf-8").splitlines()
    assert sum("the batch is on the GPU" in line for line in lines) == 13
    assert all(row["least_us"] <= row["median_us"] for row in host)
    assert {row["heap"] for row in content(results, "memory")["rows"]} == {"device", "pinned"}
    for name in (part for part in PARTS if part.startswith("suite")):
        assert content(results, name)["rows"], name


@pytest.mark.slow
def test_a_carried_folder_runs_from_its_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_folder, "_RECORDED", {"Pong": 20})
    gpu_folder.main(tmp_path)
    (tmp_path / "wheels").mkdir()
    for package, module in (("obscodec-core", "obscodec"), ("obscodec-cupy", "obscodec_cupy")):
        with zipfile.ZipFile(tmp_path / "wheels" / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
            for path in (ROOT / "packages" / package / "src" / module).rglob("*.*"):
                wheel.write(path, path.relative_to(ROOT / "packages" / package / "src"))
            wheel.writestr(f"{module}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    with zipfile.ZipFile(tmp_path / "wheels" / "obscodec_cupy-1.0-py3-none-any.whl", "a") as wheel:
        backend = "[obscodec.backends]\ncuda = obscodec_cupy.backend:CudaBackend\n"
        wheel.writestr("obscodec_cupy-1.0.dist-info/entry_points.txt", backend)
    command = [sys.executable, tmp_path / "gpu_first.py", "--simulated", "--parts", "versions"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = content(tmp_path / "benchmarks" / "results" / "gpu-simulated", "versions")["rows"]
    facts = {row.get("what"): row.get("value") for row in rows}
    assert facts["obscodec_cupy is in"].startswith(str(tmp_path / "site"))
    assert facts["obscodec-cupy"] == "1.0"
    assert facts["commit"] == (tmp_path / "commit.txt").read_text().strip()
    assert len(np.load(tmp_path / "benchmarks" / "recorded" / "Pong-0.npz")["frames"]) == 20


@pytest.mark.slow
def test_a_carried_folder_has_all_that_its_tests_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_folder, "_RECORDED", {})
    gpu_folder.main(tmp_path)
    carried = {file.relative_to(tmp_path) for file in tmp_path.rglob("test_*.py")}
    assert carried == {file.relative_to(ROOT) for file in files_of_suites()}
    found = os.pathsep.join(str(tmp_path / path) for path in suite.PATHS)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", tmp_path, "--import-mode=importlib"]
    ended = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--collect-only", "-q", tmp_path],
        env=os.environ | {"PYTHONPATH": found},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_whole_takes_25_minutes_at_most() -> None:
    assert sum(max(part.limit_s for part in group) for group in gpu_first._PARTS) <= 25 * 60


def test_the_clock_is_noted_at_the_begin_and_behind_each_barrier() -> None:
    text = phases.with_stamps(source("gather.cu"))
    assert re.search(r"scratch\) \{ begin_stamps\(\);\n", text)
    assert all(f'#line 1 "{name}"' in text for name in phases._FILES.values())
    assert {*re.findall(r"__sync(?!warp)\w+\(", text)} == {*re.findall(r"#define (__sync\w+\()", text)}
    with pytest.raises(ValueError, match=r"has 0 kernels"):
        phases.with_stamps(source("rle.cu"))


def test_stamps_become_a_table_of_places_and_of_multiprocessors() -> None:
    # Two thread blocks on multiprocessor 5, one on 7, one that did not run; barriers at lines 10 and 20 of jump.cuh.
    first, second = (ord("j") << 16 | line for line in (10, 20))
    stamps = [
        [5, 4, 0, 100, first, 130, second, 150, first, 190],
        [5, 2, 0, 160, first, 200, 0, 0, 0, 0],
        [7, 2, 0, 7, first, 27, 0, 0, 0, 0],
        [0] * 10,
    ]
    found = phases.rows([np.array(stamps, np.uint64)])
    cycles = "median_cycles", "p90_cycles", "most_cycles"
    assert [{name: value for name, value in row.items() if name != "p90_cycles"} for row in found] == [
        dict(zip(("place", "thread_blocks", "visits_each", *cycles[::2]), row, strict=True))
        for row in [("begin", 3, 1.0, 0, 0), ("jump.cuh:10", 3, 1.33, 30, 40), ("jump.cuh:20", 1, 1.0, 50, 50)]
    ] + [
        {"thread_blocks_of_sm": n, "multiprocessors": 1, "median_cycles": span, "most_cycles": span}
        for n, span in ((1, 20), (2, 100))
    ]


def test_the_profiler_is_told_the_name_of_a_kernel() -> None:
    name = gpu_first._NCU[gpu_first._NCU.index("--kernel-name") + 1].removeprefix("regex:")
    sources = (file.read_text() for file in files("obscodec_cupy").joinpath("kernels").iterdir())
    assert any(re.search(rf"__global__ void (?:__launch_bounds__\([^)]*\) )?\w*{name}\w*\(", text) for text in sources)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_every_name_is_there(library: str) -> None:
    parts = (ROOT / "benchmarks" / "gpu_parts").glob("*.py")
    found = re.findall(rf"\b_?{library}((?:\.[a-zA-Z]\w*)+)", "".join(part.read_text() for part in parts))
    names = {name[1:] for name in found if not name.startswith(".__")}
    assert "cuda.synchronize" in names or "cuda.set_allocator" in names
    for name in names:
        operator.attrgetter(name)(import_module(library))


def test_an_unknown_part_is_named(tmp_path: Path) -> None:
    ended = run(tmp_path, "--parts", "versions,timing")
    assert ended.returncode == 1
    assert ended.stderr.startswith("there is no part timing: the parts are versions, codecs, gather")


def hidden(module: str, folder: Path) -> str:
    """A folder for PYTHONPATH, with which a module seems not to be installed."""
    folder.mkdir()
    (folder / f"{module}.py").write_text(f'raise ModuleNotFoundError("No module named {module!r}", name={module!r})\n')
    return str(folder)


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ("", "BackendUnavailable: device 'cuda' "),
        ("cupy", "BackendUnavailable: device 'cuda' needs CuPy, which is not installed: pip install"),
        ("numpy", "ModuleNotFoundError: No module named 'numpy'"),
    ],
)
def test_without_a_gpu_the_facts_of_the_host_are_there_and_nothing_else_runs(
    missing: str, why: str, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    variables = {"PYTHONPATH": hidden(missing, tmp_path / "hidden")} if missing else {}
    ended = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "gpu_first.py", "--results", results, "--parts", "versions,codecs"],
        env=os.environ | variables | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert ended.stdout.endswith(
        f"`versions` failed, so nothing else runs: see {results}/versions.log\n"
        f"The results are in {results}, all of them also in {results}.zip\n"
    )
    (about,) = content(results, "summary")
    assert about["status"] == "failed"
    assert about["reason"].startswith(f"obscodec finds the GPU and decodes there: {why}")
    found = content(results, "versions")
    assert [failure["why"].startswith(why) for failure in found["failures"]] == [True]
    facts = {row["what"]: row["value"] for row in found["rows"]}
    assert {"commit", "system", "card", "Python", "pytest"} <= facts.keys()
    if not missing:
        assert "CUDARuntimeError" in facts["card, by CUDA"]
        assert facts["CUDA of CuPy"].isdigit()
    assert not (results / "codecs.json").exists()


def test_a_suite_without_pytest_is_skipped(tmp_path: Path) -> None:
    results = tmp_path / "results"
    ended = run(results, "--parts", "suite-contract", PYTHONPATH=hidden("pytest", tmp_path / "hidden"))
    assert ended.returncode == 0, ended.stdout
    (about,) = content(results, "summary")
    assert (about["status"], about["reason"]) == ("skipped", "nothing ran. all tests: No module named 'pytest'")
    assert content(results, "suite-contract")["status"] == "skipped"


def files_of_suites() -> list[Path]:
    run_by: list[Path] = []
    for pattern in gpu_first.SUITES:
        found = list(ROOT.glob(pattern))
        assert found, f"nothing matches {pattern}"
        run_by += [file for path in found for file in (path.rglob("test_*.py") if path.is_dir() else [path])]
    return run_by


def test_each_test_for_gpus_is_in_one_suite() -> None:
    run_by = files_of_suites()
    of_cupy = (ROOT / "packages" / "obscodec-cupy" / "tests").rglob("test_*.py")
    marked = re.compile(r"^@pytest\.mark\.gpu|^def test_\w+\([^)]*\bcuda: ", re.MULTILINE)
    of_all = [file for file in (ROOT / "tests").glob("test_*.py") if marked.search(file.read_text())]
    assert of_all
    assert {*of_cupy, *of_all} <= {*run_by}
    assert len(run_by) == len({*run_by})


def test_the_results_of_an_earlier_run_are_set_aside(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    for name in ("summary.json", "times.json", "times.log", "mine.json"):
        (results / name).write_text("[]")
    hiding = hidden("pytest", tmp_path / "hidden")  # so that this part is over soon
    of_part = {"summary.json", "suite-contract.json", "suite-contract.log"}
    for n in (1, 2):
        ended = run(results, "--parts", "suite-contract", PYTHONPATH=hiding)
        assert [about["part"] for about in content(results, "summary")] == ["suite-contract"]
        assert {path.name for path in results.glob("*.*")} == of_part | {"mine.json"}
        assert (results / f"before-{n}" / "summary.json").exists()
        with zipfile.ZipFile(results.with_suffix(".zip")) as archive:
            assert {*archive.namelist()} == of_part
    assert (results / "before-1" / "times.log").read_text() == "[]"
    assert ended.stdout.endswith(f"The results are in {results}, all of them also in {results}.zip\n")


@pytest.mark.parametrize("limit", ["codecs", "codecs=abc", "codecs=", "codecs=0", "codecs=nan"])
def test_a_limit_that_is_no_time_is_named(tmp_path: Path, limit: str) -> None:
    ended = run(tmp_path, f"--limit={limit}")
    assert ended.returncode == 2
    assert ended.stderr.endswith(f"error: argument --limit: expected PART=SECONDS, such as codecs=400, got {limit!r}\n")
