"""The tests of Stable-Baselines3 and sb3-contrib, with compressed buffers in the places of the stock ones.

They come from the source distribution of the version that is installed; ``compressed_upstream`` puts our classes there.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path

import pytest

FILES = {
    "stable-baselines3": (
        "test_buffers.py",
        "test_dict_env.py",
        "test_her.py",
        "test_n_step_replay.py",
        "test_save_load.py",
        "test_vec_normalize.py",
    ),
    "sb3-contrib": ("test_dict_env.py", "test_invalid_actions.py", "test_lstm.py", "test_save_load.py"),
}
EXCEPTIONS: dict[tuple[str, str], dict[str, str]] = {}  # of a file: the tests that fail with our buffers, and why


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


@pytest.mark.upstream
@pytest.mark.parametrize(("distribution", "file"), [(name, file) for name, files in FILES.items() for file in files])
def test_their_tests_pass_with_compressed_buffers(distribution, file, tmp_path):
    report = tmp_path / "report.xml"
    # our settings, such as the warnings that are errors, are not theirs
    options = ["-p", "no:cacheprovider", "-p", "compressed_upstream", "-q", f"--junitxml={report}", "--basetemp"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", file, *options, str(tmp_path / "temporary")],
        cwd=upstream_folder(distribution),
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert report.exists(), done.stdout + done.stderr
    cases = list(ET.parse(report).iter("testcase"))
    assert len(cases) > 3
    failed = {case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None}
    assert failed == EXCEPTIONS.get((distribution, file), {}).keys(), done.stdout[-5000:]
    assert done.returncode == (1 if failed else 0), done.stdout[-5000:]
