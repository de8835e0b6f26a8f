"""How large each room of the source is, beside the last tag: a report, not a limit."""

import ast
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

_LONG_FILE = 250  # lines


class Room(NamedTuple):
    """A folder of the source.

    Attributes:
        lines: of all its files.
        files: how many it has.
        names: how many its face exports.
    """

    lines: int
    files: int
    names: int


def rooms(root: Path) -> dict[str, Room]:
    """The rooms of all packages of a checkout, by name."""
    found = {}
    for face in sorted(root.glob("packages/*/src/**/__init__.py")):
        name = ".".join(face.parent.relative_to(next(p for p in face.parents if p.name == "src")).parts)
        files = sorted(face.parent.glob("*.py"))
        found[name] = Room(sum(len(file.read_text().splitlines()) for file in files), len(files), _n_names(face))
    return found


def _n_names(face: Path) -> int:
    for node in ast.parse(face.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return len(ast.literal_eval(node.value))
    return 0


def longest(root: Path) -> str:
    """Which files and functions of a checkout are the longest."""
    functions, long_files = [], []
    for file in root.glob("packages/*/src/**/*.py"):
        text = file.read_text()
        if (n := len(text.splitlines())) > _LONG_FILE:
            long_files.append((n, file.name))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                begin = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0].lineno
                functions.append(((node.end_lineno or begin) - begin + 1, f"{node.name} of {file.name}"))
    files = ", ".join(f"{name} {n}" for n, name in sorted(long_files, reverse=True))
    n, function = max(functions)
    return f"{len(long_files)} files over {_LONG_FILE} lines: {files}\nlongest function: {n} lines, {function}"


def _at_last_tag(root: Path) -> tuple[str, dict[str, Room]]:
    """The last tag and its rooms; no rooms if there is no tag."""
    tag = subprocess.run(["git", "describe", "--tags", "--abbrev=0"], cwd=root, capture_output=True, text=True)
    if tag.returncode:
        return "no tag", {}
    name = tag.stdout.strip()
    archive = subprocess.run(["git", "archive", name, "packages"], cwd=root, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
        return name, rooms(Path(folder))


def main() -> None:
    """Print a line for each room, one for each package, and what is longest."""
    root = Path(__file__).parents[1]
    now, (tag, before) = rooms(root), _at_last_tag(root)
    print(f"{'lines':>7} {tag:>8}  files  names")
    for room in sorted(now.keys() | before.keys()):
        lines, files, names = now.get(room, Room(0, 0, 0))
        print(f"{lines:7} {before[room].lines if room in before else '':>8} {files:6} {names:6}  {room}")
    for package in sorted({room.split(".")[0] for room in now}):
        lines, files, names = _all_of(package, now)
        print(f"{lines:7} {_all_of(package, before).lines or '':>8} {files:6} {names:6}  all of {package}")
    print(longest(root))


def _all_of(package: str, found: dict[str, Room]) -> Room:
    return Room(
        *map(
            sum,
            zip(Room(0, 0, 0), *(room for name, room in found.items() if name.split(".")[0] == package), strict=True),
        )
    )


if __name__ == "__main__":
    main()
