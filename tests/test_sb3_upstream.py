"""The tests of Stable-Baselines3 and sb3-contrib, with compressed buffers in the places of the stock ones.

They come from the source distribution of the version that is installed; ``compressed_upstream`` puts our classes there.
Each file runs with each codec. Stores decide after 8 tensors, and blocks have 4 frames, so that tests that take a dozen
steps encode and decode them. Each test that gives a store enough for a full block has to do both: what is encoded and
decoded is counted in each, and written down at the end.

Each file is a process with each codec, and as many run at a time as there are processors, each with a single thread,
which for networks of this size is as fast as several.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
from coding_counts import coded

CODECS = ("delta-rle", "zstd:1", "auto")
FILES = {  # those that take longest first
    "stable-baselines3": (
        "test_dict_env.py",
        "test_her.py",
        "test_save_load.py",
        "test_vec_normalize.py",
        "test_n_step_replay.py",
        "test_buffers.py",
    ),
    "sb3-contrib": ("test_save_load.py", "test_invalid_actions.py", "test_dict_env.py", "test_lstm.py"),
}
# Tests of how well an algorithm learns, and of a model with large layers: four minutes with vectors and networks.
LEFT_OUT = "not test_ppo_lstm_performance and not test_save_load_large_model"
# Tests that fail with our buffers, and why: none.
FAIL: dict[str, dict[str, str]] = {distribution: {} for distribution in FILES}


@dataclass
class Run:
    """What the tests of a file, or of several, did with a codec.

    Attributes:
        output: what pytest wrote.
        n_tests: how many tests there are.
        failed: those that failed, by file and name.
        counts: of each, what ``CodingCounts`` counted.
    """

    output: str
    n_tests: int
    failed: set[str]
    counts: dict[str, dict[str, int]]


def upstream_folder(distribution: str) -> Path:
    """The tests in the source distribution of the installed version, fetched once for this machine."""
    name = f"{distribution.replace('-', '_')}-{version(distribution)}"
    folder = Path(tempfile.gettempdir()) / "obscodec-upstream-tests"
    if not (folder / name).is_dir():
        with tempfile.TemporaryDirectory() as fresh:
            wanted = f"{distribution}=={version(distribution)}"
            options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--dest", fresh, wanted]
            done = subprocess.run([sys.executable, "-m", "pip", "download", *options], capture_output=True, text=True)
            if done.returncode and "CI" not in os.environ:
                pytest.skip(f"pip can't fetch {wanted}: {done.stderr}")
            assert done.returncode == 0, done.stderr
            folder.mkdir(exist_ok=True)
            with tarfile.open(Path(fresh) / f"{name}.tar.gz") as archive:
                archive.extractall(fresh, filter="data")
            (Path(fresh) / name / "tests").rename(folder / name)
    return folder / name


def run(distribution: str, codec: str, file: str, folder: Path) -> Run:
    """Run the tests of a file with a codec, in a process of their own."""
    report, counts = folder / "report.xml", folder / "counts.json"
    # our settings, such as the warnings that are errors, are not theirs
    options = ["-p", "no:cacheprovider", "-p", "compressed_upstream", "-q", "-k", LEFT_OUT, f"--junitxml={report}"]
    environment = {
        "PYTHONPATH": str(Path(__file__).parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OBSCODEC_UPSTREAM_CODEC": codec,
        "OBSCODEC_UPSTREAM_COUNTS": str(counts),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", file, *options, "--basetemp", str(folder / "temporary")],
        cwd=upstream_folder(distribution),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert counts.exists(), done.stdout + done.stderr
    cases = list(ET.parse(report).iter("testcase"))
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    failed = {f"{case.get('classname')}.py::{case.get('name')}" for case in bad}
    assert done.returncode == bool(failed), done.stdout[-5000:]
    return Run(done.stdout, len(cases), failed, json.loads(counts.read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], list[Future[Run]]]]:
    """The runs that are asked for, one of each file."""
    asked = [vars(item)["callspec"].params for item in request.session.items if "runs" in vars(item)["fixturenames"]]
    wanted = {(of["distribution"], of["codec"]) for of in asked}
    for distribution, _ in wanted:
        upstream_folder(distribution)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {
            (distribution, codec): [
                pool.submit(run, distribution, codec, file, tmp_path_factory.mktemp(distribution)) for file in files
            ]
            for distribution, files in FILES.items()
            for codec in CODECS
            if (distribution, codec) in wanted
        }


def together(runs: list[Future[Run]]) -> Run:
    """What the tests of all files did."""
    done = [future.result() for future in runs]
    counts = {name: of for one in done for name, of in one.counts.items()}
    failed = set[str]().union(*(one.failed for one in done))
    return Run("\n".join(one.output for one in done), sum(one.n_tests for one in done), failed, counts)


@pytest.mark.upstream
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("distribution", FILES)
def test_their_tests_pass_with_compressed_buffers(runs, distribution, codec):
    done = together(runs[distribution, codec])
    assert done.n_tests > 100
    assert done.failed == FAIL[distribution].keys(), done.output[-5000:]


@pytest.mark.upstream
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("distribution", FILES)
def test_their_tests_encode_and_decode(runs, distribution, codec):
    enough, both, summary = coded(together(runs[distribution, codec]).counts)
    print(f"{distribution}, {codec}: {summary}")
    assert both == enough
    assert len(both) > 60
