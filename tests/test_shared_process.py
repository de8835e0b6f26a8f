"""Tests share one process, and leave it as they found it; see conftest.py and forked.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AT_ONCE = "import jax\n\n\ndef test_it() -> None:\n    pass\n"
LATER = "def test_it() -> None:\n    import jax\n\n\ndef test_another() -> None:\n    pass\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (AT_ONCE, "a file of tests imports jax, which warns of each fork: do so in a process of its own"),
        (LATER, "the test imports jax, which warns of each fork: do so in a process of its own"),
    ],
    ids=["collected", "run"],
)
def test_who_imports_what_changes_the_process_is_told(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "jax.py").touch()
    (tmp_path / "test_it.py").write_text(text, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER")}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])  # pytest tells more than once in CI
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", tmp_path]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert (done.stdout + done.stderr).count(told) == 1, done.stdout + done.stderr


def test_tests_that_fork_end_the_new_process_without_exit_handlers() -> None:
    tests = [file for folder in ("packages/*/tests", "tests") for file in ROOT.glob(f"{folder}/**/*.py")]
    texts = {file.name: file.read_text(encoding="utf-8") for file in tests}
    forking = {name: text for name, text in texts.items() if "os.fork" + "()" in text}
    assert "forked.py" in forking
    assert not [name for name, text in forking.items() if text.count("os._exit" + "(") < text.count("os.fork" + "()")]


def test_no_package_makes_a_folder_that_a_forked_process_removes() -> None:
    for file in ROOT.glob("packages/*/src/**/*.py"):
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        code = [line for line in lines if "TemporaryDirectory(" in line and not line.startswith(">>>")]
        assert code == [], f"{file}: use obscodec.runtime.temporary_folder"
