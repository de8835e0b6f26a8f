"""The mutants of ``just mutants`` are up to date: each line still stands where the list says, and can be broken."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KINDS = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text(encoding="utf-8"))
MUTANTS = {name: mutant for named in KINDS.values() for name, mutant in named.items()}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_breaks_a_line_that_is_there(mutant: dict) -> None:
    text = (ROOT / mutant["file"]).read_text(encoding="utf-8")
    assert text.count(mutant["line"]) == 1
    broken = text.replace(mutant["line"], mutant["change"])
    assert broken != text
    if mutant["file"].endswith(".py"):
        compile(broken, mutant["file"], "exec")


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_tests_of_a_mutant_are_there(mutant: dict) -> None:
    assert mutant["tests"]
    for test in mutant["tests"]:
        file, *names = test.partition("[")[0].split("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert all(re.search(rf"^(class|def) {name}\(|^{name} = ", text, re.MULTILINE) for name in names)


def test_the_tests_of_all_mutants_of_a_package_are_listed_once() -> None:
    command = [sys.executable, ROOT / "tests" / "mutants.py", "--ids", "packages/obscodec-core"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    assert len(listed) == len(set(listed))
    assert not any(" " in test for test in listed)  # for shells
    assert all(test.startswith("packages/obscodec-core/tests/") for test in listed)
    for mutant in MUTANTS.values():
        for test in mutant["tests"]:
            is_listed = test in listed or test.partition("::")[0] in listed
            assert is_listed == test.startswith("packages/obscodec-core/")
