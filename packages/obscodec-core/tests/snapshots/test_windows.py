"""Files that are open or mapped can't be removed on Windows, and systems put files of their own into folders."""

import errno
import gc
import os
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import obscodec
import pytest
from obscodec import Field, RingBuffer, Snapshot, SnapshotError
from obscodec.snapshots.folder import Folder
from saved import NOISY, array, check_equal_rings, noise, ring


@pytest.fixture
def _refuses_files_in_use(monkeypatch):
    """This system refuses as Windows does: to remove or to replace a file that this process has open or mapped."""
    if sys.platform == "win32":
        return
    if sys.platform != "linux":
        pytest.skip("/proc tells which files are in use")

    def is_in_use(path: object) -> bool:
        opened = []
        for link in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # of the listing itself
                opened.append(str(link.readlink()))
        mapped = (line.partition("/")[1:] for line in Path("/proc/self/maps").read_text().splitlines())
        return os.path.realpath(path) in {*opened, *("".join(of) for of in mapped)}

    def guarded(name: str) -> None:
        call = getattr(os, name)

        def refuses(path, *args, **kwargs):
            if is_in_use(path) or any(is_in_use(of) for of in args if isinstance(of, Path)):
                raise PermissionError(errno.EACCES, "The process cannot access the file because it is being used")
            return call(path, *args, **kwargs)

        monkeypatch.setattr(os, name, refuses)

    for name in ("unlink", "remove", "replace", "rename"):
        guarded(name)


def large(seed: int = 0) -> RingBuffer:
    """A buffer whose blocks stay in their file when it is loaded with mmap."""
    buffer = RingBuffer(4000, {"obs": Field(NOISY.shape, np.uint8, "raw", block_frames=4)})
    buffer.extend(obs=noise(4000, seed))
    return buffer


def check_content(buffer: RingBuffer, seed: int) -> None:
    np.testing.assert_array_equal(buffer[:]["obs"][:, 0], noise(4000, seed)[-len(buffer) :])


@pytest.mark.usefixtures("_refuses_files_in_use")
def test_a_mapped_snapshot_is_saved_in_its_own_folder(tmp_path) -> None:
    obscodec.save(large(), tmp_path)
    (mapped,) = tmp_path.glob("blocks-*")
    loaded = obscodec.load(tmp_path, mmap=True)
    with pytest.raises(PermissionError):
        mapped.unlink()  # so it is mapped
    for _ in range(2):
        obscodec.save(loaded, tmp_path)
        assert mapped.exists()
        check_content(loaded, 0)
        check_content(obscodec.load(tmp_path), 0)
    del loaded
    gc.collect()
    obscodec.save(large(1), tmp_path)
    assert not mapped.exists()
    check_content(obscodec.load(tmp_path), 1)


@pytest.mark.usefixtures("_refuses_files_in_use")
def test_a_mapped_generation_is_replaced(tmp_path) -> None:
    """A training goes on from an earlier generation, while somebody looks at the later one."""
    first, second = large(), large(1)
    with Snapshot(tmp_path) as snapshot:
        snapshot.write(first, generation=10)
    with Snapshot(tmp_path) as snapshot:
        snapshot.write(second, generation=20)
    looked_at = obscodec.load(tmp_path, generation=20, mmap=True)
    (mapped,) = tmp_path.glob("blocks-00000020-*")
    resumed = obscodec.load(tmp_path, generation=10)
    resumed.extend(obs=noise(100, seed=2))
    with Snapshot(tmp_path) as snapshot:
        snapshot.write(resumed, generation=20)
    assert mapped.exists()
    assert snapshot.generations == [10, 20]
    check_content(looked_at, 1)
    check_equal_rings(resumed, obscodec.load(tmp_path, generation=20))
    del looked_at
    gc.collect()
    with Snapshot(tmp_path) as snapshot:
        snapshot.write(large(), generation=30)
    assert not mapped.exists()
    check_equal_rings(resumed, obscodec.load(tmp_path, generation=20))


@pytest.mark.usefixtures("_refuses_files_in_use")
def test_a_generation_whose_manifest_is_read_keeps_its_files(tmp_path) -> None:
    buffer = ring(40)
    snapshot = Snapshot(tmp_path, keep=1)
    snapshot.write(buffer)
    snapshot.wait()
    folder = Folder(tmp_path)
    with folder.opened(folder.generations()[1]):
        snapshot.write(ring(60))
        snapshot.wait()
        assert snapshot.generations == [1, 2]
        check_equal_rings(buffer, obscodec.load(tmp_path, generation=1))
    snapshot.write(ring(70))
    snapshot.wait()
    assert snapshot.generations == [3]
    assert {int(file.name.split("-")[1].split(".")[0]) for file in tmp_path.iterdir()} <= {1, 2, 3}


@pytest.mark.parametrize("name", [".DS_Store", "._.DS_Store", "desktop.ini", "Desktop.ini", "Thumbs.db"])
def test_a_file_of_the_system_makes_no_folder_full(name, tmp_path) -> None:
    (tmp_path / name).write_bytes(b"of the system")
    saved = array(5)
    obscodec.save(saved, tmp_path)
    np.testing.assert_array_equal(obscodec.load(tmp_path)[:], saved[:])
    spilled = RingBuffer(10, {"x": Field((9,), np.uint8)}, max_bytes=1 << 20, spill=tmp_path)
    obscodec.save(spilled, tmp_path / "other")
    assert (tmp_path / name).read_bytes() == b"of the system"


def test_a_file_of_somebody_is_not_of_the_system(tmp_path) -> None:
    for name in (".DS_Store", "notes.ini"):
        (tmp_path / name).touch()
    with pytest.raises(SnapshotError, match=r"has other files, such as 'notes\.ini': name a new or an empty folder"):
        obscodec.save(array(5), tmp_path)
