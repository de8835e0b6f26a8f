"""The command ``obscodec inspect``, as a shell runs it."""

import subprocess
import sys

import obscodec
import pytest
from obscodec import Snapshot
from obscodec.snapshots import progress
from saved import append, ring


def run(*arguments, blocked=(), columns=200):
    program = "import sys; " + "".join(f"sys.modules[{name!r}] = None; " for name in blocked)
    program += "from obscodec.cli import main; main()"
    options = {"capture_output": True, "text": True, "env": {"PATH": "", "COLUMNS": str(columns)}}
    return subprocess.run([sys.executable, "-c", program, *map(str, arguments)], **options)


@pytest.fixture
def folder(tmp_path):
    buffer = ring(50)
    with Snapshot(tmp_path) as snapshot:
        snapshot.write(buffer)
        append(buffer, 50, 200)
        snapshot.write(buffer)
    return tmp_path


def test_an_intact_snapshot(folder):
    ran = run("inspect", folder)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = [line.split() for line in ran.stdout.splitlines()]
    rows = [line for line in lines if "RingBuffer" in line]
    assert [(row[1], row[3], row[-2]) for row in rows] == [("1", "RingBuffer", "intact"), ("2", "RingBuffer", "intact")]
    assert "generation 2: RingBuffer(capacity=100, n_envs=2, episode_end='$', spill=False, pad='zeros')" in " ".join(
        ran.stdout.split()
    )
    assert "state/arrays/stores/depth/store" in ran.stdout


def test_a_snapshot_in_a_folder_around_it(folder, tmp_path_factory):
    around = tmp_path_factory.mktemp("checkpoint")
    folder.rename(around / "snapshot")
    ran = run("inspect", around, columns=80)
    assert ran.returncode == 0
    assert f"{around / 'snapshot'}: " in ran.stdout.replace("\n", "").replace("  ", "")
    assert "…" not in ran.stdout  # nothing is cut
    assert max(map(len, ran.stdout.splitlines())) <= 80


def test_damage_is_said_with_its_place(folder):
    file = next(folder.glob("blocks-00000002-*.segment"))
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    ran = run("inspect", folder)
    assert ran.returncode == 1
    assert "3 places damaged" in ran.stdout  # a record, and what three groups of streams had in it, less one
    assert f"generation 2: {file}, record 0 at 24: its checksum is wrong, so it is damaged" in ran.stderr
    manifest = next(folder.glob("generation-00000001-*.json"))
    manifest.write_text("{}")
    ran = run("inspect", folder)
    assert ran.returncode == 1
    assert f"generation 1: {manifest} is damaged" in ran.stderr


def test_no_snapshot(tmp_path):
    ran = run("inspect", tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"{tmp_path} has no snapshot\n"
    assert run("inspect", tmp_path / "nowhere").returncode == 2


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
        'pip install "obscodec[cli]"'
    )


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_bar_appears_where_somebody_looks(is_seen, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_PATIENCE_S", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_seen)
    monkeypatch.setenv("FORCE_COLOR", "1")
    obscodec.save(ring(200), tmp_path)
    assert ("save" in capsys.readouterr().err) == is_seen
    obscodec.load(tmp_path)
    assert ("load" in capsys.readouterr().err) == is_seen
