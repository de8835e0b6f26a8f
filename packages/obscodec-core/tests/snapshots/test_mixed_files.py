"""Files of two snapshots, or records in another place, are found: the right bytes in the wrong place are damage."""

import re
import shutil
import struct

import numpy as np
import obscodec
import pytest
from obscodec import Field, RingBuffer, Snapshot, SnapshotError
from obscodec.snapshots import OpenGeneration, reader
from saved import append, array, check_equal_rings, ring

FRAME = (42, 42)
HEAD_NBYTES = 32
MIXED = "is another file than the one that was written with this generation"


def noisy_ring(seed, n_steps=290):
    """A ring whose streams have equal lengths whatever the seed is."""
    buffer = RingBuffer(300, {"obs": Field(FRAME, np.uint8, "raw", block_frames=4), "seed": Field((), np.int64)})
    play(buffer, seed, n_steps)
    return buffer


def play(buffer, seed, n_steps):
    rng = np.random.default_rng(seed)
    for _ in range(n_steps):
        buffer.append(obs=rng.integers(256, size=FRAME, dtype=np.uint8), seed=seed)


def records(content):
    """The records of a segment file."""
    found, at = [], HEAD_NBYTES
    while at < len(content):
        end = at + 16 + struct.unpack_from("<Q", content, at)[0]
        found.append(content[at:end])
        at = end
    return found


def changed_places(content):
    """A segment file whose first two records have changed places."""
    first, second, *rest = records(content)
    assert len(first) == len(second)
    return content[:HEAD_NBYTES] + second + first + b"".join(rest)


def check_all_lost(folder, reason):
    """What is salvaged of a folder has zeros in the place of each frame that is in a file."""
    loaded, lost, damage = obscodec.load(folder, salvage=True)
    assert re.search(reason, damage[0])
    kept = np.delete(np.arange(len(loaded)), lost[:, 0])
    assert len(kept) < 50  # those of the block that is still open, which are in the arrays
    assert not loaded[lost[:, 0], 0]["obs"].any()


@pytest.mark.parametrize("mmap", [False, True])
def test_a_file_of_another_snapshot_is_refused(mmap, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "_MIN_MAPPED_NBYTES", 0)
    for seed, name in enumerate(("one", "other")):
        obscodec.save(noisy_ring(seed), tmp_path / name)
    name = "blocks-00000001-0000.segment"
    assert (tmp_path / "one" / name).stat().st_size == (tmp_path / "other" / name).stat().st_size
    shutil.copy(tmp_path / "other" / name, tmp_path / "one" / name)
    with pytest.raises(SnapshotError, match=f"{re.escape(name)} {MIXED}: it has the number [0-9a-f]{{16}}, the mani"):
        obscodec.load(tmp_path / "one", mmap=mmap)
    check_all_lost(tmp_path / "one", MIXED)


@pytest.mark.parametrize("kind", ["blocks", "pages", "arrays"])
def test_two_copies_that_both_went_on_are_not_mixed(kind, tmp_path):
    buffer = noisy_ring(0)
    for k in range(30):
        buffer.append(obs=np.full(FRAME, k, np.uint8), seed=0)
    large = RingBuffer(30_000, {"x": Field((), np.float64)})
    large.extend(x=np.random.default_rng(0).random(30_000))
    saved = large if kind == "pages" else buffer
    obscodec.save(saved, tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    for seed, name in enumerate(("one", "other"), 1):
        loaded = obscodec.load(tmp_path / name)
        if kind == "pages":
            loaded._arrays["x"][:] = np.random.default_rng(seed).random((30_001, 1))
        else:
            play(loaded, seed, 20)
        with Snapshot(tmp_path / name) as snapshot:
            snapshot.write(loaded)
    (file,) = (tmp_path / "other").glob(f"{kind}-00000002*")
    shutil.copy(file, tmp_path / "one")
    with pytest.raises(SnapshotError, match="has other bytes" if kind == "arrays" else MIXED):
        obscodec.load(tmp_path / "one")
    obscodec.load(tmp_path / "one", generation=1)


def test_the_files_of_a_rerun_do_not_go_with_the_first_manifest(tmp_path):
    """A generation that is written again under its number has other files of the same names."""
    buffer = noisy_ring(0)
    obscodec.save(buffer, tmp_path / "now")
    shutil.copytree(tmp_path / "now", tmp_path / "backup")
    for name in ("now", "backup"):
        loaded = obscodec.load(tmp_path / name)
        play(loaded, 1, 20)  # even the same steps
        with Snapshot(tmp_path / name) as snapshot:
            snapshot.write(loaded, generation=2)
    (manifest,) = (tmp_path / "backup").glob("generation-00000002-*")
    next((tmp_path / "now").glob("generation-00000002-*")).unlink()
    shutil.copy(manifest, tmp_path / "now")
    with pytest.raises(SnapshotError, match=MIXED):
        obscodec.load(tmp_path / "now")


def test_records_that_change_places_are_damage(tmp_path):
    buffer = noisy_ring(0)
    obscodec.save(buffer, tmp_path)
    (file,) = tmp_path.glob("blocks-*")
    file.write_bytes(changed_places(file.read_bytes()))
    with pytest.raises(SnapshotError, match="record 0 at 32: its checksum is wrong"):
        obscodec.load(tmp_path)
    loaded, lost, damage = obscodec.load(tmp_path, salvage=True)
    assert len(damage) == 3  # two records, and the streams in them
    kept = np.delete(np.arange(len(buffer)), lost[:, 0])
    assert 0 < len(lost) < 100
    np.testing.assert_array_equal(loaded[:]["obs"][kept], buffer[:]["obs"][kept])
    assert not loaded[:]["obs"][lost[:, 0]].any()


def test_the_same_record_in_two_files_has_two_checksums(tmp_path):
    """So a record of a file that a disk has mixed up is lost, though the head of the file is right."""
    for name in ("one", "other"):
        obscodec.save(noisy_ring(0), tmp_path / name)
    one, other = (next((tmp_path / name).glob("blocks-*")) for name in ("one", "other"))
    mine, theirs = one.read_bytes(), other.read_bytes()
    assert [record[16:] for record in records(mine)] == [record[16:] for record in records(theirs)]
    one.write_bytes(mine[:HEAD_NBYTES] + theirs[HEAD_NBYTES:])
    with pytest.raises(SnapshotError, match="record 0 at 32: its checksum is wrong"):
        obscodec.load(tmp_path / "one")
    check_all_lost(tmp_path / "one", "record 0 at 32: its checksum is wrong")


def test_a_manifest_under_the_name_of_another_generation_is_refused(tmp_path):
    buffer = ring(50)
    with Snapshot(tmp_path) as snapshot:
        snapshot.write(buffer)
        snapshot.wait()
        append(buffer, 50, 60)
        snapshot.write(buffer)
    (file,) = tmp_path.glob("generation-00000001-*")
    file.rename(file.with_name(file.name.replace("-00000001-", "-00000007-")))
    with pytest.raises(
        SnapshotError, match="is no manifest of a snapshot: it is of generation 1, and somebody has ren"
    ):
        obscodec.load(tmp_path)
    check_equal_rings(buffer, obscodec.load(tmp_path, generation=2))


def test_each_file_has_a_number_of_its_own(tmp_path):
    with Snapshot(tmp_path) as snapshot:
        for seed in range(3):
            snapshot.write(noisy_ring(seed))
    obscodec.save(noisy_ring(0), tmp_path / "elsewhere")
    numbers = [file.read_bytes()[24:HEAD_NBYTES] for file in tmp_path.rglob("*.segment")]
    assert len(set(numbers)) == len(numbers) > 3


def test_files_beside_a_generation_are_the_same_or_refused(tmp_path):
    model, other = tmp_path / "model.zip", tmp_path / "other.zip"
    model.write_bytes(bytes(3_000_000))
    other.write_bytes(bytes(2_999_999) + b"\x01")
    folder = tmp_path / "saved"
    with Snapshot(folder) as snapshot:
        snapshot.write(array(4), beside={"model": model})
        snapshot.write(array(4))
    OpenGeneration(folder, 1).check_beside({"model": model})
    OpenGeneration(folder, 2).check_beside({})
    for number, files, told in (
        (1, {"model": other}, f"{other} is damaged, or was not written with generation 1 in {folder}: restore the one"),
        (1, {"model": model, "more": model}, f"{model} is damaged, or was not written with generation 1 in {folder}"),
        (2, {"model": model}, f"{model} is damaged, or was not written with generation 2 in {folder}"),
        (1, {}, f"generation 1 in {folder} was written with a model, which is missing"),
        (1, {"model": tmp_path / "gone"}, f"{tmp_path}/gone can't be read: No such file or directory"),
        (3, {}, f"{folder} has no generation 3, only generations [1, 2]"),
    ):
        with pytest.raises(SnapshotError, match=f"^{re.escape(told)}"):
            OpenGeneration(folder, number).check_beside(files)


def test_a_file_that_can_not_be_read_begins_no_generation(tmp_path):
    snapshot = Snapshot(tmp_path / "saved")
    with pytest.raises(FileNotFoundError):
        snapshot.write(array(4), beside={"model": tmp_path / "gone"})
    assert snapshot.generations == []
