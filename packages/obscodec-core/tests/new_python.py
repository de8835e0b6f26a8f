"""Programs in a Python process of their own."""

import os
import subprocess
import sys


def run_python(*arguments: object, timeout: float | None = None, **environment: str) -> str:
    """What Python prints, given a program, or ``-c`` and code; it finds modules as this process does.

    Raises:
        AssertionError: it did not end by itself, without an error.
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    command = [sys.executable, *map(str, arguments)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-6000:]
    return ran.stdout


def run_obscodec(
    *arguments: object, blocked: tuple[str, ...] = (), columns: int = 200, locale: str = ""
) -> subprocess.CompletedProcess[str]:
    """The command ``obscodec`` as a shell runs it, in an installation without some packages."""
    program = "import sys; " + "".join(f"sys.modules[{name!r}] = None; " for name in blocked)
    command = [sys.executable, "-c", program + "from obscodec.cli import main; main()", *map(str, arguments)]
    env = {"PATH": "", "COLUMNS": str(columns), "HOME": "/tmp", "LC_ALL": locale}
    return subprocess.run(command, env=env, capture_output=True, text=True)
