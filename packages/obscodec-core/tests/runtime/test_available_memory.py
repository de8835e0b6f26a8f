"""Free memory is what the machine has, or what the control groups leave, whichever is less."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from obscodec import Field, RingBuffer
from obscodec.runtime import available_memory, free_memory

GB = 1 << 30


def write(folder: Path, **numbers: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, number in numbers.items():
        (folder / name.replace("__", ".")).write_text(f"{number}\n")


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Path:
    """A machine with 8 GB available, whose process is in the group /a/b."""
    (tmp_path / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable:   {8 * GB // 1024} kB\n")
    (tmp_path / "cgroup").write_text("4:cpu,memory:/a/b\n3:cpuset:/\n0::/a/b\n")
    monkeypatch.setattr(available_memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(available_memory, "_CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(available_memory, "_OF_PROCESS", tmp_path / "cgroup")
    return tmp_path


def test_it_is_about_what_psutil_finds():
    free, available = free_memory(), psutil.virtual_memory().available
    assert 0 < free <= available * 1.2


def test_without_groups_it_is_what_the_machine_has(machine):
    assert free_memory() == 8 * GB


def test_a_group_limits_it_and_cache_that_can_go_counts_as_free(machine):
    stat = f"anon 5\ninactive_file {GB}"
    write(machine / "groups/a/b", memory__max=3 * GB, memory__current=2 * GB, memory__stat=stat)
    assert free_memory() == 2 * GB


def test_a_group_above_limits_it(machine):
    write(machine / "groups/a/b", memory__max="max", memory__current=2 * GB)
    write(machine / "groups/a", memory__max=4 * GB, memory__current=3 * GB)
    assert free_memory() == GB


def test_a_group_of_version_1_limits_it(machine):
    numbers = {"memory__limit_in_bytes": 3 * GB, "memory__usage_in_bytes": GB}
    write(machine / "groups/memory", **numbers, memory__stat="total_inactive_file 0")  # as in a container: no /a/b
    assert free_memory() == 2 * GB


def test_a_group_above_its_limit_leaves_nothing(machine):
    write(machine / "groups/a/b", memory__max=GB, memory__current=2 * GB)
    assert free_memory() == 0


def test_without_proc_psutil_knows_and_without_psutil_nobody(machine, monkeypatch):
    (machine / "meminfo").unlink()
    (machine / "cgroup").unlink()
    assert free_memory() == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert free_memory() is None


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError, ValueError, RuntimeError])
def test_nobody_knows_where_nothing_can_be_read(machine, monkeypatch, error):
    """A container without /proc: psutil reads the same file. A buffer asks in the middle of an append."""

    def fail():
        raise error("/proc/meminfo")

    (machine / "meminfo").unlink()
    (machine / "cgroup").unlink()
    monkeypatch.setattr(psutil, "virtual_memory", fail)
    assert free_memory() is None
    buffer = RingBuffer(1000, {"frame": Field((8, 8), np.uint8)})
    for _ in range(40):
        buffer.append(frame=np.ones((8, 8), np.uint8))
    assert len(buffer) == 40


@pytest.mark.parametrize("text", ["", "MemAvailable:\n", "MemAvailable: many kB\n", "MemTotal: 5 kB\n"])
def test_a_text_that_says_nothing_is_left_to_psutil(machine, monkeypatch, text):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=7 * GB))
    (machine / "meminfo").write_text(text)
    assert free_memory() == 7 * GB


def test_groups_whose_files_say_nothing_limit_nothing(machine):
    (machine / "cgroup").write_text("\n0\nmemory\n0::/a\n")
    write(machine / "groups/a", memory__max=3 * GB, memory__current=2 * GB, memory__stat="inactive_file\nanon x")
    assert free_memory() == GB
