"""How much memory this process can still take."""

import re
from collections.abc import Iterator
from pathlib import Path

_MEMINFO, _CGROUPS, _OF_PROCESS = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_AVAILABLE = re.compile(r"MemAvailable:\s*(\d+) kB")
_V2 = "memory.max", "memory.current", "inactive_file"  # the names of the limit, the usage, and of cache that can go
_V1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"


def free_memory() -> int | None:
    """Bytes that this process can still take without swapping; None if nobody knows.

    Of Linux: what the machine has available, or what the control groups of the process allow, whichever is less. Other
    systems need psutil.

    Example:
        >>> free_memory() > 0
        True
    """
    known = [nbytes for nbytes in (_of_machine(_MEMINFO), *_of_cgroups(_CGROUPS, _OF_PROCESS)) if nbytes is not None]
    return max(0, min(known)) if known else None


def _of_machine(meminfo: Path) -> int | None:
    for line in _lines(meminfo):
        if found := _AVAILABLE.fullmatch(line):
            return 1024 * int(found[1])
    try:
        import psutil

        return int(psutil.virtual_memory().available)
    except (ImportError, OSError, ValueError, RuntimeError):  # not installed; or Linux without /proc
        return None


def _of_cgroups(root: Path, of_process: Path) -> Iterator[int]:
    """What each control group leaves: those of the process and all above them, of version 2 and of version 1."""
    for line in _lines(of_process):
        if line.count(":") < 2:
            continue
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top, names = (root / "memory", _V1) if controllers else (root, _V2)
        within = Path(path.lstrip("/"))
        for folder in (within, *within.parents):  # in a container, the paths may begin at the root of another one
            if (left := _left(top / folder, *names)) is not None:
                yield left


def _left(folder: Path, limit: str, usage: str, cache: str) -> int | None:
    """What is left of the limit of one group; None without a limit."""
    most, used = _number(folder / limit), _number(folder / usage)
    if most is None or used is None:
        return None
    for line in _lines(folder / "memory.stat"):
        name, _, number = line.partition(" ")
        if name == cache and number.isdigit():
            used -= int(number)
    return most - used


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None  # "max" is no limit


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
