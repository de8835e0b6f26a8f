"""What the first run on a GPU needs beside the wheels: its parts, the tests, recorded frames, the name of the commit.

uv run just gpu-wheels FOLDER

makes the wheels, then calls this file. FOLDER/gpu_first.py needs nothing but Python and what the wheels depend on.
"""

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from atari_frames import frames
from gpu_first import SUITES
from gpu_parts.suite import PATHS

ROOT = Path(__file__).resolve().parents[1]
_COPIED = ("benchmarks/gpu_parts", "packages/obscodec-cupy/tests", "packages/obscodec-cupy/README.md")
_MATCHED = ("benchmarks/gpu_first.py", "benchmarks/atari_*.py", "conftest.py", "tests/conftest.py", *SUITES)
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
    for source in _with_imported(file for pattern in (*_COPIED, *_MATCHED) for file in _python_files(pattern)):
        _copy(source, folder / source.relative_to(ROOT))
    _copy(ROOT / "benchmarks" / "gpu_first.py", folder / "gpu_first.py")
    recorded = folder / "benchmarks" / "recorded"
    recorded.mkdir(exist_ok=True)
    for game, n in _RECORDED.items():
        np.savez_compressed(recorded / f"{game}-0.npz", frames=frames(game, n, 0))
    (folder / "commit.txt").write_text(f"{_commit()}\n", encoding="utf-8")


def _python_files(pattern: str) -> Iterator[Path]:
    for path in ROOT.glob(pattern):
        yield from path.rglob("*.py") if path.is_dir() else [path] if path.suffix == ".py" else []


def _with_imported(files: Iterator[Path]) -> set[Path]:
    """Files, and all files beside the packages that these import, directly or not."""
    found: set[Path] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += [path for name in _imports(file) for path in _located(name)]
    return found


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def _located(module: str) -> list[Path]:
    """The file of a module that the tests find by one of their paths."""
    name = module.replace(".", "/")
    files = (ROOT / path / f"{name}{end}" for path in PATHS for end in (".py", "/__init__.py"))
    return [file for file in files if file.exists()]


def _commit() -> str:
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"unknown: {error}"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
