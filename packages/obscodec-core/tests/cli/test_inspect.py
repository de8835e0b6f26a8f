"""The command ``obscodec inspect``, as a shell runs it."""

import re
import sys
import threading

import obscodec
import pytest
from new_python import run_obscodec
from obscodec import Field, RingBuffer, Snapshot, SnapshotError
from obscodec.installing import install_command
from obscodec.snapshots import find_snapshot, inspect_snapshot, write_snapshot
from saved import append, array, flip, priorities, ring, stores


@pytest.fixture
def folder(tmp_path):
    buffer = ring(50)
    with Snapshot(tmp_path) as snapshot:
        snapshot.write(buffer)
        append(buffer, 50, 200)
        snapshot.write(buffer)
    return tmp_path


def test_an_intact_snapshot(folder):
    ran = run_obscodec("inspect", folder)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    rows = [line.split() for line in lines if line.rstrip().endswith(" ok")]
    assert [row[:2] for row in rows] == [["1", "RingBuffer"], ["2", "RingBuffer"]]
    options = "capacity=100, n_envs=2, episode_end='$', spill=False, pad='zeros'"
    assert f"Generation 2: RingBuffer, 100 steps of each of 2 environments, made with {options}." in lines
    assert [line.split()[:-1] for line in lines[-7:]] == [
        ["obs", "uint8[4,", "12,", "16]", "delta-rle|lz4:6"],
        ["next", "uint8[4,", "12,", "16]", "shares", "obs"],
        ["depth", "float16[12,", "16]", "shuffle|zstd:1"],
        ["vector", "float64[3]", "none"],
        ["time", "datetime64[ns][]", "none"],
        ["$", "bool[]", "none"],
        ["all", "else"],
    ]
    assert "state/" not in ran.stdout


@pytest.mark.parametrize(
    ("saved", "said", "fields"),
    [
        (lambda: array(40), "TensorArray, 50 steps", [("array", "uint8[12, 16]", "delta-rle")]),
        (lambda: stores()["auto stacks"], "AutoStore, made with", [("tensors", "uint8[4, 12, 16]", "auto")]),
        (lambda: stores()["rle"], "FrameStore, made with", [("tensors", "uint8[12, 16]", "rle")]),
        (lambda: priorities(20), "Prioritized, made with", []),
    ],
    ids=["array", "undecided", "store", "priorities"],
)
def test_what_else_can_be_saved(saved, said, fields, tmp_path):
    obscodec.save(saved(), tmp_path)
    (report,) = inspect_snapshot(tmp_path)
    assert [field[:3] for field in report.fields] == fields
    assert f"Generation 1: {said}" in run_obscodec("inspect", tmp_path).stdout


def test_the_bytes_of_a_field_are_those_of_its_store_and_arrays(tmp_path):
    buffer = ring(50)
    obscodec.save(buffer, tmp_path)
    (report,) = inspect_snapshot(tmp_path)
    found, stats = {field.name: field.nbytes for field in report.fields}, buffer.stats()
    assert found["obs"] == stats.fields["obs"].live_bytes > 0 == found["next"]
    assert found["vector"] == stats.fields["vector"] == 50 * 2 * 24
    assert report.other_nbytes == report.nbytes - sum(found.values()) > stats.id_bytes


@pytest.mark.parametrize(
    "said",
    [None, 5, {}, {"fields": [{}]}, {"fields": 5}, {"n_steps": "many", "n_envs": 1, "fields": []}],
)
def test_a_writer_may_say_anything_of_what_it_wrote(said, tmp_path):
    class Odd(RingBuffer):
        written_by = "odd 1"

        def manifest(self):
            return said

    write_snapshot(Odd(5, {"reward": Field((), "float32")}), tmp_path)
    (report,) = inspect_snapshot(tmp_path)
    assert (report.kind, report.n_steps, report.fields, report.damage) == ("RingBuffer", None, (), [])
    ran = run_obscodec("inspect", tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_snapshot_is_found_in_a_folder_around_it(tmp_path):
    inside = tmp_path / "step" / "storage" / "snapshot"
    obscodec.save(array(2), inside)
    assert find_snapshot(tmp_path) == find_snapshot(inside) == inside
    obscodec.save(array(2), tmp_path / "other" / "storage" / "snapshot")
    both = f"{tmp_path / 'other' / 'storage' / 'snapshot'}, {inside}"
    with pytest.raises(SnapshotError, match=f"^{re.escape(f'{tmp_path} has several snapshots, name one: {both}')}$"):
        find_snapshot(tmp_path)
    assert find_snapshot(tmp_path / "nowhere") is None


def test_a_snapshot_in_a_folder_around_it(folder, tmp_path_factory):
    around = tmp_path_factory.mktemp("checkpoint")
    folder.rename(around / "snapshot")
    ran = run_obscodec("inspect", around, columns=60)
    assert ran.returncode == 0
    assert f"{around / 'snapshot'}: " in ran.stdout
    assert "…" not in ran.stdout  # nothing is cut
    sentences = "/", "Generation"
    assert max(len(line) for line in ran.stdout.splitlines() if not line.startswith(sentences)) <= 60


def test_damage_is_said_with_its_place(folder):
    file = next(folder.glob("blocks-00000002-*.segment"))
    flip(file, 100)
    ran = run_obscodec("inspect", folder)
    assert ran.returncode == 1
    assert "3 places damaged" in ran.stdout  # a record, and what three groups of streams had in it, less one
    assert f"generation 2: {file}, record 0 at 32: its checksum is wrong, so it is damaged" in ran.stderr
    manifest = next(folder.glob("generation-00000001-*.json"))
    manifest.write_text("{}")
    ran = run_obscodec("inspect", folder)
    assert ran.returncode == 1
    assert f"generation 1: {manifest} is damaged" in ran.stderr


def test_no_snapshot(tmp_path):
    ran = run_obscodec("inspect", tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"{tmp_path} has no snapshot\n"
    for path in ("nowhere", "x" * 300):
        ran = run_obscodec("inspect", tmp_path / path)
        assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("start", ["from obscodec.cli import main; main()", "import obscodec.__main__ as m; m.main()"])
@pytest.mark.parametrize("arguments", [["--help"], ["warm", "--help"], ["inspect", "folder"], []])
@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_missing_packages_are_named(missing, arguments, start, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(sys, "argv", ["obscodec", *arguments])
    with pytest.raises(SystemExit) as ended:
        exec(start)
    assert ended.value.code == (
        f"{missing} is not installed, which all of the command obscodec but a plain `obscodec warm` needs: "
        f"{install_command('obscodec[cli]')}"
    )


def test_a_report_is_of_what_was_saved_though_a_thread_writes(tmp_path, monkeypatch):
    buffer, state, writers = ring(20), RingBuffer.state, []

    def state_while_a_thread_writes(self):
        taken = state(self)
        writers.append(threading.Thread(target=append, args=(buffer, 20, 40)))
        writers[0].start()
        writers[0].join(0.3)
        return taken

    with monkeypatch.context() as patch:
        patch.setattr(RingBuffer, "state", state_while_a_thread_writes)
        write_snapshot(buffer, tmp_path)
    writers[0].join()
    (report,) = inspect_snapshot(tmp_path)
    assert (report.n_steps, len(buffer)) == (20, 40)
