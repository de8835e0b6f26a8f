"""Messages that nobody honest wrote are refused, or decode; nothing else happens. See ``fuzz_messages.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = os.environ.get("HOSTILE_CASES", "4000")


@pytest.mark.slow
@pytest.mark.needs("/proc")
def test_messages_that_are_changed_below_their_checksums() -> None:
    """In a process of its own, which may die of it, and which has little memory."""
    fuzzer = Path(__file__).with_name("fuzz_messages.py")
    done = subprocess.run([sys.executable, fuzzer, CASES], capture_output=True, text=True, check=False)
    assert (done.returncode, "BAD" in done.stdout) == (0, False), done.stdout[-3000:] + done.stderr[-3000:]
    assert "'read'" in done.stdout  # some were harmless
