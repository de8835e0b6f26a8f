"""Files that belong to a generation are known by their hashes."""

import re

import pytest
from obscodec import Snapshot, SnapshotError
from obscodec.snapshots import check_beside
from saved import array


def test_files_beside_a_generation_are_the_same_or_refused(tmp_path):
    model, other = tmp_path / "model.zip", tmp_path / "other.zip"
    model.write_bytes(bytes(3_000_000))
    other.write_bytes(bytes(2_999_999) + b"\x01")
    folder = tmp_path / "saved"
    with Snapshot(folder) as snapshot:
        snapshot.write(array(4), beside={"model": model})
        snapshot.write(array(4))
    check_beside(folder, 1, {"model": model})
    check_beside(folder, 2, {})
    for number, files, told in (
        (1, {"model": other}, f"{other} is damaged, or was not written with generation 1 in {folder}: restore the one"),
        (1, {"model": model, "more": model}, f"{model} is damaged, or was not written with generation 1 in {folder}"),
        (2, {"model": model}, f"{model} is damaged, or was not written with generation 2 in {folder}"),
        (1, {}, f"generation 1 in {folder} was written with a model, which is missing"),
        (1, {"model": tmp_path / "gone"}, f"{tmp_path}/gone can't be read: No such file or directory"),
        (3, {}, f"{folder} has no generation 3, only generations [1, 2]"),
    ):
        with pytest.raises(SnapshotError, match=f"^{re.escape(told)}"):
            check_beside(folder, number, files)


def test_a_file_that_can_not_be_read_begins_no_generation(tmp_path):
    snapshot = Snapshot(tmp_path / "saved")
    with pytest.raises(FileNotFoundError):
        snapshot.write(array(4), beside={"model": tmp_path / "gone"})
    assert snapshot.generations == []
