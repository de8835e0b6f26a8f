"""The benchmark of textured images: what it records and measures, on frames that are made here."""

import csv

import numpy as np
import textured
import textured_frames
from textured_frames import Source, measured_frames, training_frames
from textured_peers import Peer

N = 256


def noise(n=N):
    """Frames that nothing makes smaller."""
    return np.random.default_rng(0).integers(256, size=(n, 24, 20, 3), dtype=np.uint8)


def test_what_is_trained_sees_other_frames_than_those_measured():
    numbers = np.arange(3000)
    assert training_frames(numbers).max() < 1500 <= measured_frames(numbers).min()
    assert len(training_frames(numbers)) == 192
    assert len(training_frames(numbers[:300])) == 144


def test_tables_have_each_codec_and_what_auto_chose(monkeypatch, tmp_path):
    views = {"made": lambda frame: frame, "upside-down": lambda frame: frame[::-1]}
    source = Source("", lambda: ((frame, i % 100 == 99) for i, frame in enumerate(noise())), "made here", views, N)
    monkeypatch.setattr(textured_frames, "folder", lambda: tmp_path)
    for module in (textured, textured_frames):
        monkeypatch.setattr(module, "SETS", dict.fromkeys(views, source))
    textured.main("made,upside-down", ["raw"], with_peers=False, out=tmp_path)

    def rows(name):
        lines = (tmp_path / f"{name}.csv").read_text(encoding="utf-8").splitlines()
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))

    assert [(of["set"], of["codec"], of["block_frames"], float(of["frame_bytes"])) for of in rows("sizes")] == [
        (name, "raw", k, 1440.0) for name in ("made", "upside-down") for k in ("1", "4", "16")
    ]
    assert all(float(of[key]) > 0 for of in rows("times") for key in of if key.endswith("mb_s"))
    assert [(of["tensor"], of["codec"]) for of in rows("auto")] == [("24x20x3", "raw"), ("4x24x20x3", "raw")] * 2
    for of in rows("auto"):
        assert 1440 <= float(of["step_bytes"]) < 1500
    table = (tmp_path / "textured.md").read_text(encoding="utf-8")
    assert "| codec | K | made | upside-down |" in table
    assert "| raw | 16 | 1,440 | 1,440 |" in table


def test_a_codec_that_is_not_exact_has_no_figures():
    lossy = Peer("lossy", 1, lambda block: [bytes(10)], lambda streams, like: np.zeros_like(like))
    (row,) = textured.measured(noise(), [], [lossy])
    assert row == {
        "codec": "lossy",
        "block_frames": "1",
        "missing": "AssertionError: lossy does not give back what it took",
    }
