"""The examples for TorchRL run."""

import re
import subprocess
import sys

import pytest
import torchrl_dqn
import torchrl_epochs


@pytest.mark.parametrize(
    ("script", "options", "says"),
    [
        (torchrl_dqn.__file__, ["--steps", "60"], r"60 transitions, the last loss is \d"),
        (torchrl_epochs.__file__, ["--steps", "200"], "200 transitions were restored"),
    ],
)
def test_an_example_runs(script: str, options: list[str], says: str) -> None:
    command = [sys.executable, script, *options]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(says, done.stdout)
