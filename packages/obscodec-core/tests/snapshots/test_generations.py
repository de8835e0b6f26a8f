"""A snapshot that is written again and again: each generation is whole, and costs what is new."""

import os
import re
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import obscodec
import pytest
from forked import exit_status, forked
from new_python import run_python
from obscodec import FrameStore, Layout, RingBuffer, ShapeError, Snapshot, SnapshotError, TensorArray
from obscodec.snapshots import reader, writer
from obscodec.snapshots.folder import Folder
from saved import NOISY, append, array, check_equal_rings, frames, noise, ring
from together import meanwhile


def new_bytes(folder, generation):
    """Bytes of the segment files that a generation has written."""
    return sum(file.stat().st_size for file in folder.glob(f"*-{generation:08}-*.segment"))


def written_files(folder, generation):
    manifest = Folder(folder).read_manifest(Folder(folder).generations()[generation])
    return [of["file"] for of in manifest["segments"] if of]


def test_each_generation_has_its_own_steps(tmp_path):
    buffer, plain = ring(0), {}
    with Snapshot(tmp_path, keep=3) as snapshot:
        for begin in range(0, 500, 50):
            append(buffer, begin, begin + 50)
            generation = snapshot.write(buffer)
            plain[generation] = {name: values.copy() for name, values in buffer[:].items()}
    assert snapshot.generations == [8, 9, 10] == sorted(plain)[-3:]
    for generation in snapshot.generations:
        loaded = obscodec.load(tmp_path, generation=generation)
        for name, expected in plain[generation].items():
            np.testing.assert_array_equal(loaded[:][name], expected, name)
    check_equal_rings(buffer, obscodec.load(tmp_path))
    with pytest.raises(SnapshotError, match=r"has no generation 2, only generations \[8, 9, 10\]"):
        obscodec.load(tmp_path, generation=2)
    (tmp_path / "empty").mkdir()
    for number in (None, 2):
        with pytest.raises(SnapshotError, match=f"^{re.escape(str(tmp_path))}/empty has no snapshot$"):
            obscodec.load(tmp_path / "empty", generation=number)


def test_a_generation_writes_what_is_new(tmp_path):
    store = FrameStore(NOISY, codec="raw", block_frames=4)
    first = store.append(noise(400))
    with Snapshot(tmp_path) as snapshot:
        snapshot.write(store)
        for k in range(1, 20):
            ids = store.append(noise(8, seed=k))
            snapshot.write(store)
            snapshot.wait()
            assert new_bytes(tmp_path, k + 1) < 14 * NOISY.nbytes  # what is new, and what was open
    loaded = obscodec.load(tmp_path)
    np.testing.assert_array_equal(loaded.read(first), noise(400))
    np.testing.assert_array_equal(loaded.read(ids), noise(8, seed=19))


def test_pages_of_arrays_that_stay_are_not_written_again(tmp_path):
    buffer = RingBuffer(200_000, {"x": obscodec.Field((), np.float64)})
    for k in range(60_000):
        buffer.append(x=float(k))
    with Snapshot(tmp_path) as snapshot:
        snapshot.write(buffer)
        buffer.append(x=-1.0)
        snapshot.write(buffer)
    assert new_bytes(tmp_path, 1) > 8 * 60_000
    assert new_bytes(tmp_path, 2) < 1 << 17
    np.testing.assert_array_equal(obscodec.load(tmp_path)[:]["x"][:, 0], [*range(60_000), -1])


def test_dead_records_go(tmp_path):
    store = FrameStore(NOISY, codec="raw", block_frames=1)
    first = store.append(noise(100))
    with Snapshot(tmp_path, keep=1) as snapshot:
        snapshot.write(store)
        snapshot.wait()
        store.release(first[:60])  # more than half of the file is dead
        second = snapshot.write(store)
        snapshot.wait()
        assert written_files(tmp_path, second) == [f"blocks-{second:08}-0000.segment"]
        assert sum(file.stat().st_size for file in tmp_path.glob("*.segment")) < 45 * NOISY.nbytes
        store.release(first[60:62])  # few
        third = snapshot.write(store)
    assert written_files(tmp_path, third) == [f"blocks-{second:08}-0000.segment"]
    np.testing.assert_array_equal(obscodec.load(tmp_path).read(first[62:]), noise(100)[62:])


def test_many_files_become_one(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_MOST_FILES", 8)
    store, ids = FrameStore(NOISY, codec="raw", block_frames=1), []
    with Snapshot(tmp_path, keep=1) as snapshot:
        for k in range(40):
            ids.append(store.append(noise(3, seed=k)))
            snapshot.write(store)
            snapshot.wait()
            assert len(list(tmp_path.glob("blocks-*"))) <= 9
    loaded = obscodec.load(tmp_path)
    for k, of in enumerate(ids):
        np.testing.assert_array_equal(loaded.read(of), noise(3, seed=k))


@pytest.mark.parametrize("mmap", [False, True])
def test_a_loaded_buffer_goes_on_in_the_same_folder(mmap, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "_MIN_MAPPED_NBYTES", 0)
    store = FrameStore(NOISY, codec="raw", block_frames=4)
    ids = store.append(noise(400))
    with Snapshot(tmp_path) as snapshot:
        snapshot.write(store)
    loaded = obscodec.load(tmp_path, mmap=mmap)
    more = loaded.append(noise(8, seed=1))
    with Snapshot(tmp_path, keep=1) as snapshot:
        snapshot.write(loaded)
    assert new_bytes(tmp_path, 2) < 14 * NOISY.nbytes
    again = obscodec.load(tmp_path)
    np.testing.assert_array_equal(again.read(ids), noise(400))
    np.testing.assert_array_equal(again.read(more), noise(8, seed=1))
    np.testing.assert_array_equal(loaded.read(ids), noise(400))  # its file may be gone


def test_another_buffer_writes_all_of_it(tmp_path):
    one, other = array(40), array(20)
    with Snapshot(tmp_path) as snapshot:
        for saved in (one, other, one, one):
            snapshot.write(saved)
    for generation, saved in zip(snapshot.generations, (other, one, one), strict=True):
        np.testing.assert_array_equal(obscodec.load(tmp_path, generation=generation)[:], saved[:])


def test_somebody_else_may_write_between(tmp_path):
    saved = array(40)
    with Snapshot(tmp_path) as snapshot:
        snapshot.write(saved)
        snapshot.wait()
        obscodec.save(array(3), tmp_path)
        snapshot.write(saved)
    np.testing.assert_array_equal(obscodec.load(tmp_path)[:], saved[:])


def test_numbers_rise(tmp_path):
    saved = array(4)
    with Snapshot(tmp_path, keep=9) as snapshot:
        assert [snapshot.write(saved, generation=n) for n in (1000, 5000)] == [1000, 5000]
        assert snapshot.write(saved) == 5001
    assert snapshot.generations == [1000, 5000, 5001]
    with pytest.raises(SnapshotError) as caught:
        Snapshot(tmp_path).write(array(3), generation=5000)
    assert str(caught.value) == (
        f"{tmp_path} has generation 5001 already, and what is written as generation 5000 was not loaded from an "
        "earlier one there: load that, or name another folder"
    )
    assert snapshot.generations == [1000, 5000, 5001]
    with pytest.raises(ShapeError, match="keep must be 1 or more, got 0"):
        Snapshot(tmp_path, keep=0)


def test_write_returns_before_the_files_are_written(tmp_path, monkeypatch):
    may_go, fsync = threading.Event(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (may_go.wait(), fsync(descriptor)))
    buffer = ring(60)
    snapshot = Snapshot(tmp_path)
    snapshot.write(buffer)
    assert snapshot.generations == []
    expected = {name: values.copy() for name, values in buffer[:].items()}
    append(buffer, 60, 300)  # overwrites all steps meanwhile
    may_go.set()
    snapshot.wait()
    for name, values in obscodec.load(tmp_path)[:].items():
        np.testing.assert_array_equal(values, expected[name], name)


def test_an_error_of_the_disk_is_raised_later_and_the_last_generation_stays(tmp_path, monkeypatch):
    buffer = ring(60)
    snapshot = Snapshot(tmp_path)
    snapshot.write(buffer)
    snapshot.wait()

    def fails(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        append(buffer, 60, 70)
        snapshot.write(buffer)
        with pytest.raises(OSError, match="No space left"):
            snapshot.wait()
    assert snapshot.generations == [1]
    check_equal_rings(ring(60), obscodec.load(tmp_path))
    snapshot.write(buffer)
    snapshot.wait()
    check_equal_rings(buffer, obscodec.load(tmp_path))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_a_generation_is_written(tmp_path):
    buffer = ring(90)
    snapshot = Snapshot(tmp_path / "parent")

    def write_anew(folder):
        snapshot.wait()  # of the parent's job it has nothing
        with Snapshot(folder) as own:
            own.write(buffer)

    for k in range(5):
        snapshot.write(buffer)
        child = forked(partial(write_anew, tmp_path / f"child-{k}"))
        snapshot.wait()
        assert exit_status(child) == 0
        check_equal_rings(buffer, obscodec.load(tmp_path / f"child-{k}"))
    assert snapshot.generations == [3, 4, 5]
    check_equal_rings(buffer, obscodec.load(tmp_path / "parent"))


def test_python_exits_when_the_last_generation_is_finished(tmp_path):
    """In a process of its own, since others have exit handlers of much else."""
    script = "import sys; from obscodec import Snapshot; from saved import ring; Snapshot(sys.argv[1]).write(ring(90))"
    run_python("-c", script, tmp_path)
    check_equal_rings(ring(90), obscodec.load(tmp_path))


@pytest.mark.slow
def test_a_thread_appends_to_a_store_while_it_is_written(tmp_path):
    store, ids, n_read = FrameStore(NOISY, block_frames=4), [], []

    def play():
        if len(ids) < 10_000:
            ids.append(store.append(frames_of(len(ids))))
        time.sleep(0)

    with meanwhile(play), Snapshot(tmp_path) as snapshot:
        for _ in range(14):
            n_before = len(ids)
            snapshot.write(store)
            snapshot.wait()
            loaded = obscodec.load(tmp_path)
            for k in range(n_before):
                np.testing.assert_array_equal(loaded.read(ids[k]), frames_of(k))
            n_read.append(n_before)
    assert n_read[-1] > n_read[0]


def frames_of(k):
    made = np.zeros((2, *NOISY.shape), np.uint8)
    made[:, k % 42] = k % 255 + 1
    made[1, 0, 0] = k // 255 % 255
    return made


def test_mapped_blocks_stay_in_their_file(tmp_path):
    store = FrameStore(NOISY, codec="raw", block_frames=4)
    ids = store.append(noise(4000))  # 7 MB
    obscodec.save(store, tmp_path)

    def resident():
        of_files = maps.read_text().split(str(tmp_path))[1:]
        return sum(int(of_file.split("Rss:")[1].split()[0]) for of_file in of_files)

    maps = Path("/proc/self/smaps")
    if not maps.exists():
        pytest.skip("this system does not tell what is resident")
    loaded = obscodec.load(tmp_path, mmap=True)
    assert resident() < 400  # KiB
    np.testing.assert_array_equal(loaded.read(ids), noise(4000))
    assert resident() > 6000


def test_what_only_memory_holds_of_a_codec_comes_back(tmp_path, monkeypatch):
    """Dictionaries by version, reference frames, the choice of ``auto``, over generations."""
    monkeypatch.setattr(reader, "_MIN_MAPPED_NBYTES", 0)
    array_of = TensorArray.zeros((900, 1), obscodec.AutoStore(Layout((12, 16), np.uint8), codec="delta-rle|zstd:3"))
    played = frames(900)
    with Snapshot(tmp_path) as snapshot:
        for begin in range(0, 900, 300):
            for k in range(begin, begin + 300):
                array_of[k] = played[k][None]
            snapshot.write(array_of)
    for generation in snapshot.generations:
        loaded = obscodec.load(tmp_path, generation=generation, mmap=True)
        np.testing.assert_array_equal(loaded[: 300 * generation, 0], played[: 300 * generation])
        assert loaded.store.stats().dictionary_bytes > 0
    before, after = array_of.store.stats(), loaded.store.stats()
    assert (after.n_tensors, after.live_bytes, after.choice) == (before.n_tensors, before.live_bytes, before.choice)


def test_generations_that_cut_off_writes_have_left_do_not_pile_up(tmp_path, monkeypatch):
    """A write that ends between its manifest and the removal of the oldest generation leaves one more."""
    saved = array(4)
    obscodec.save(saved, tmp_path)
    remove_all_but, n_calls = Folder.remove_all_but, 0

    def fails_at_the_end(folder, manifests):
        nonlocal n_calls
        n_calls += 1
        if n_calls % 2 == 0:
            raise MemoryError
        remove_all_but(folder, manifests)

    monkeypatch.setattr(Folder, "remove_all_but", fails_at_the_end)
    for _ in range(5):
        with pytest.raises(MemoryError):
            obscodec.save(saved, tmp_path)
        assert len(Folder(tmp_path).generations()) == 2
    np.testing.assert_array_equal(obscodec.load(tmp_path)[:], saved[:])


def test_only_what_was_loaded_removes_later_generations(tmp_path):
    """As a training that goes on from an earlier generation."""
    saved = array(4)
    with Snapshot(tmp_path, keep=9) as snapshot:
        for n in (10, 20, 30, 40):
            saved[n // 10] = 7
            snapshot.write(saved, generation=n)
    loaded = obscodec.load(tmp_path, generation=20)
    loaded[40] = 9
    other = Snapshot(tmp_path, keep=9)
    with pytest.raises(SnapshotError, match="has generation 40 already, and what is written as generation 25"):
        other.write(array(3), generation=25)
    assert other.generations == [10, 20, 30, 40]
    Snapshot(tmp_path)  # only a look
    with Snapshot(tmp_path.with_name("elsewhere")) as elsewhere:
        elsewhere.write(loaded)
    with Snapshot(tmp_path, keep=9) as snapshot:
        snapshot.write(loaded, generation=25)
    assert snapshot.generations == [10, 20, 25]
    np.testing.assert_array_equal(obscodec.load(tmp_path)[:], loaded[:])
    assert loaded[40].min() == 9


def test_full_files_are_not_written_again(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_SEGMENT_NBYTES", 8 * NOISY.nbytes)
    monkeypatch.setattr(writer, "_MOST_FILES", 8)
    store = FrameStore(NOISY, codec="raw", block_frames=1)
    store.append(noise(400))
    with Snapshot(tmp_path, keep=1) as snapshot:
        for k in range(1, 30):
            generation = snapshot.write(store)
            snapshot.wait()
            assert k == 1 or new_bytes(tmp_path, generation) < 50 * NOISY.nbytes
            store.append(noise(2, seed=k))


def test_numbers_have_a_limit(tmp_path):
    snapshot = Snapshot(tmp_path)
    with pytest.raises(SnapshotError, match="the number of a generation is less than 1000000000000, got 1000000000000"):
        snapshot.write(array(1), generation=10**12)
    snapshot.write(array(1), generation=10**12 - 1)
    snapshot.wait()
    assert snapshot.generations == [10**12 - 1]


def test_what_a_killed_writer_left_is_no_obstacle_beside_a_damaged_manifest(tmp_path):
    saved = array(4)
    with Snapshot(tmp_path, keep=9) as snapshot:
        for n in (10, 20):
            snapshot.write(saved, generation=n)
    next(tmp_path.glob("generation-00000010-*")).write_text("{}")
    for name in ("arrays-00000030.safetensors", "unfinished-00000030.json", "blocks-00000030-0000.segment"):
        (tmp_path / name).write_text("left")
    with Snapshot(tmp_path, keep=9) as snapshot:
        snapshot.write(saved, generation=30)
    np.testing.assert_array_equal(obscodec.load(tmp_path, generation=30)[:], saved[:])


def test_a_folder_stays_where_it_is(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Snapshot("here") as snapshot:
        monkeypatch.chdir(tmp_path / "elsewhere")
        snapshot.write(array(1))
    assert len(Snapshot(tmp_path / "here").generations) == 1
