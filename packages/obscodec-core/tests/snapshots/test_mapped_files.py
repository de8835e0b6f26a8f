"""Blocks that are left in their files: files that are shortened meanwhile are an error, and no end of the process."""

import os
import re
import sys
import textwrap

import numpy as np
import obscodec
import pytest
from new_python import run_python
from obscodec import Field, FrameStore, RingBuffer, SnapshotError
from obscodec.runtime import MappedFile
from saved import NOISY, array, flip, frames, noise


def test_small_files_are_read_and_checked_at_once(tmp_path):
    saved = array(40)
    obscodec.save(saved, tmp_path)
    (file,) = tmp_path.glob("blocks-*")
    loaded = obscodec.load(tmp_path, mmap=True)
    os.truncate(file, 100)
    np.testing.assert_array_equal(loaded[:40], frames(80).reshape(40, 2, *frames(1).shape[1:]))
    flip(file, 50)
    with pytest.raises(SnapshotError):
        obscodec.load(tmp_path, mmap=True)


def ring():
    buffer = RingBuffer(4000, {"obs": Field(NOISY.shape, np.uint8, "raw", block_frames=4)})
    buffer.extend(obs=noise(4000))
    return buffer


def store():
    made = FrameStore(NOISY, codec="raw", block_frames=4)
    made.append(noise(4000))
    return made


# What is called after the file was shortened, in a process that a bus error may end.
CALLS = {
    "sample": (ring, "loaded.sample(32, 0)"),
    "slice": (ring, "loaded[:]"),
    "save": (ring, "obscodec.save(loaded, folder + '-again')"),
    "read": (store, "loaded.read(ids)"),
    "pickle": (store, "pickle.dumps(loaded)"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows shortens no file that is mapped")
@pytest.mark.parametrize("call", CALLS)
def test_a_file_that_is_shortened_is_an_error(call, tmp_path):
    make, what = CALLS[call]
    made = make()
    obscodec.save(made, tmp_path / "saved")
    code = f"""
        import glob, os, pickle, sys
        import numpy as np, obscodec
        folder = sys.argv[1]
        loaded, ids = obscodec.load(folder, mmap=True), np.arange(4, 4000)
        (file,) = glob.glob(folder + "/blocks-*")
        os.truncate(file, 8192)
        for k in range(2):
            try:
                {what}
            except obscodec.SnapshotError as error:
                print(error)
    """
    text = (
        r".*blocks-00000001-0000\.segment has 8192 bytes of the \d+ that load\(mmap=True\) reads in place: somebody "
        r"has shortened it, and what it had is lost\. Load a whole copy of the snapshot, or load without mmap: then "
        r"nobody needs the files any more"
    )
    said = run_python("-c", textwrap.dedent(code), tmp_path / "saved").splitlines()
    assert len(said) == 2
    for line in said:
        assert re.fullmatch(text, line)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows shortens no file that is mapped")
def test_a_buffer_goes_on_without_what_a_shortened_file_had(tmp_path):
    """New steps overwrite the lost ones; a heap that would move them leaves them where they are."""
    obscodec.save(ring(), tmp_path)
    loaded = obscodec.load(tmp_path, mmap=True)
    (file,) = tmp_path.glob("blocks-*")
    os.truncate(file, 8192)
    for begin in range(0, 4000, 100):
        loaded.extend(obs=noise(4000, seed=1)[begin : begin + 100])
    np.testing.assert_array_equal(loaded[100:]["obs"][:, 0], noise(4000, seed=1)[100:])


def test_only_files_of_what_is_read_are_looked_at(tmp_path, monkeypatch):
    looked_at = []
    monkeypatch.setattr(MappedFile, "check", lambda file: looked_at.append(file.name))
    obscodec.save(store(), tmp_path)
    loaded = obscodec.load(tmp_path, mmap=True)
    looked_at.clear()
    loaded.read(np.arange(4, 3000))
    assert len(looked_at) == 1
    loaded.read(loaded.append(noise(400, seed=1))[:300])
    assert len(looked_at) == 1
