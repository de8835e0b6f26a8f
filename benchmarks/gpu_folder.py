"""What the first run on a GPU needs beside the wheels: its parts, the tests, recorded frames, the name of the commit.

uv run just gpu-wheels FOLDER

makes the wheels, then calls this file. FOLDER/gpu_first.py needs nothing but Python and what the wheels depend on.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from atari_frames import frames

ROOT = Path(__file__).resolve().parents[1]
_COPIED = ("benchmarks/gpu_parts", "packages/obscodec-cupy/tests", "packages/obscodec-cupy/README.md")
_MATCHED = ("benchmarks/atari_*.py", "tests/conftest.py", "tests/test_cuda_*.py")
_RECORDED = {"MsPacman": 10_000, "Pong": 320, "Breakout": 320}  # frames of each game; the tests read the first ones


def main(folder: Path) -> None:
    """Fill the folder; files of an earlier call are replaced."""
    for name in _COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            _copy(source, target)
    for source in (path for pattern in _MATCHED for path in ROOT.glob(pattern)):
        _copy(source, folder / source.relative_to(ROOT))
    _copy(ROOT / "benchmarks" / "gpu_first.py", folder / "gpu_first.py")
    recorded = folder / "benchmarks" / "recorded"
    recorded.mkdir(exist_ok=True)
    for game, n in _RECORDED.items():
        np.savez_compressed(recorded / f"{game}-0.npz", frames=frames(game, n, 0))
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, capture_output=True, text=True).stdout.strip()
    (folder / "commit.txt").write_text(f"{commit or 'unknown: made without git'}\n", encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
