"""Whatever ends a save, the generation before it stays, and the next save works."""

import errno
import os
from pathlib import Path

import obscodec
import pytest
from new_python import run_python
from obscodec.snapshots.folder import Folder
from saved import check_equal_rings, ring

BEFORE, AFTER = ring(40), ring(130)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_killed_process_leaves_the_last_generation():
    program = Path(__file__).with_name("kill_saves.py")
    assert run_python(program, 12).startswith("12 kills")


@pytest.mark.parametrize("name", ["os.fsync", "pathlib.Path.replace", "pathlib.Path.open"])
def test_a_failed_call_leaves_the_last_generation(name, tmp_path, monkeypatch):
    obscodec.save(BEFORE, tmp_path)
    call, n_calls = eval(name, {"os": os, "pathlib": __import__("pathlib")}), 0

    for failing in range(20):
        n_calls = 0

        def failed(*args, failing=failing, **kwargs):
            nonlocal n_calls
            n_calls += 1
            if n_calls == failing + 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return call(*args, **kwargs)

        monkeypatch.setattr(name, failed)
        try:
            obscodec.save(AFTER, tmp_path)
        except OSError:
            monkeypatch.undo()
            loaded = obscodec.load(tmp_path)
            check_equal_rings(BEFORE if len(loaded) == len(BEFORE) else AFTER, loaded)
            if n_calls <= 2:  # before the manifest
                assert len(loaded) == len(BEFORE)
            obscodec.save(BEFORE, tmp_path)
        else:
            break
        finally:
            monkeypatch.undo()
    assert n_calls <= failing  # each call has failed once
    assert failing > 0
    check_equal_rings(AFTER, obscodec.load(tmp_path))


@pytest.mark.skipif(os.name != "posix", reason="no such limits")
@pytest.mark.parametrize("most", [10, 1000, 20_000, 50_000])
def test_a_full_disk_leaves_the_last_generation(most, tmp_path):
    import resource
    import signal

    obscodec.save(BEFORE, tmp_path)
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            obscodec.save(AFTER, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    check_equal_rings(BEFORE, obscodec.load(tmp_path))
    assert len(Folder(tmp_path).generations()) == 1
    obscodec.save(AFTER, tmp_path)
    check_equal_rings(AFTER, obscodec.load(tmp_path))
