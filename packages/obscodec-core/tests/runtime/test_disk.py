"""Files where systems differ: simulated here, for none of these systems runs all tests."""

import errno
import os
import shutil
import types
from pathlib import Path

import obscodec
import pytest
from obscodec.runtime import disk, patiently, sync, temporary_folder
from saved import check_equal_rings, ring


class FullSync:
    """Stands for fcntl of macOS; ``error`` is what it says."""

    def __init__(self, monkeypatch, error: int | None = None) -> None:
        self.n_files = self.n_folders = 0
        self.error = error
        monkeypatch.setattr(disk, "_FULL_SYNC", 51)
        monkeypatch.setattr(disk, "fcntl", types.SimpleNamespace(fcntl=self.fcntl))

    def fcntl(self, descriptor: int, command: int) -> None:
        assert command == 51
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        is_folder = Path(f"/dev/fd/{descriptor}").is_dir()
        self.n_folders, self.n_files = self.n_folders + is_folder, self.n_files + (not is_folder)


def refused(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "The process cannot access the file because it is being used")


def test_a_snapshot_waits_for_the_disk_itself_where_fsync_does_not(tmp_path, monkeypatch) -> None:
    full, buffer = FullSync(monkeypatch), ring(40)
    monkeypatch.setattr(os, "fsync", lambda descriptor: pytest.fail("fsync leaves data in the cache of the disk"))
    obscodec.save(buffer, tmp_path)
    assert full.n_files == len([*tmp_path.iterdir()])
    assert full.n_folders == (2 if os.name == "posix" else 0)
    check_equal_rings(buffer, obscodec.load(tmp_path))


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_without_a_full_sync_takes_fsync(error, tmp_path, monkeypatch) -> None:
    FullSync(monkeypatch, error)
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with (tmp_path / "file").open("wb") as file:
        sync(file.fileno())
        assert synced == [file.fileno()]


def test_an_error_of_a_full_sync_is_raised(tmp_path, monkeypatch) -> None:
    FullSync(monkeypatch, errno.EIO)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    with pytest.raises(OSError, match="Input/output error"):
        obscodec.save(ring(40), tmp_path)
    with pytest.raises(obscodec.SnapshotError, match="has no snapshot"):
        obscodec.load(tmp_path)


def test_a_file_that_somebody_reads_is_renamed_when_he_is_done(tmp_path, monkeypatch) -> None:
    waits, n_refused, replace = [], 0, os.replace

    def while_it_is_read(*args: object) -> None:
        nonlocal n_refused
        n_refused += 1
        refused() if n_refused < 3 else replace(*args)

    monkeypatch.setattr(os, "replace", while_it_is_read)
    with pytest.raises(PermissionError):  # of this system: it stays refused
        obscodec.save(ring(40), tmp_path / "other")
    monkeypatch.setattr(disk, "_WAITS_S", (0.25, 0.5))
    monkeypatch.setattr(disk.time, "sleep", waits.append)
    n_refused, buffer = 0, ring(40)
    obscodec.save(buffer, tmp_path / "saved")
    assert waits == [0.25, 0.5]
    check_equal_rings(buffer, obscodec.load(tmp_path / "saved"))
    with pytest.raises(PermissionError, match="being used"):
        patiently(refused)


def test_a_temporary_folder_with_a_file_that_is_mapped_ends_without_an_error(monkeypatch) -> None:
    with monkeypatch.context() as patched, temporary_folder() as folder:
        (folder / "file").write_bytes(b"mapped")
        patched.setattr(os, "unlink", refused)
        patched.setattr(os, "rmdir", refused)
    with temporary_folder() as empty:
        pass
    assert not empty.exists()
    shutil.rmtree(folder, ignore_errors=True)


def test_long_paths_of_windows_have_a_prefix() -> None:
    deep = "\\".join(["", *30 * ["folder"]])
    assert disk.prefixed("C:\\runs") == "C:\\runs"
    assert disk.prefixed("C:" + deep) == "\\\\?\\C:" + deep
    assert disk.prefixed("\\\\host\\share" + deep) == "\\\\?\\UNC\\host\\share" + deep
    assert disk.prefixed("\\\\?\\C:" + deep) == "\\\\?\\C:" + deep


def test_folders_of_snapshots_and_of_spilled_blocks_may_be_long(tmp_path, monkeypatch) -> None:
    """Names of both go through one function, which is another one on Windows."""
    monkeypatch.setattr(disk, "_IS_WINDOWS", True)
    monkeypatch.setattr(disk, "prefixed", lambda path: path.replace("told", "taken"))
    buffer = obscodec.RingBuffer(10, {"x": obscodec.Field((9,), "u1")}, max_bytes=1 << 20, spill=tmp_path / "told")
    assert (tmp_path / "taken").is_dir()
    assert Path(buffer.spill) == tmp_path / "told"
    disk_copy = obscodec.runtime.in_file(obscodec.runtime.new_chunk(5), tmp_path / "told")
    assert len(disk_copy) == 5
    obscodec.save(buffer, tmp_path / "told" / "saved")
    assert [*tmp_path.iterdir()] == [tmp_path / "taken"]
