"""The benchmark that shows a buffer as it grows: its source, and that it measures."""

import csv

import pytest
import scale
from new_python import run_python


@pytest.mark.slow
def test_figures_are_written_at_each_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "_RECORDED_NBYTES", 1 << 20)
    monkeypatch.setattr(scale, "_ROUNDS", {32: 2, 256: 2})
    scale.main("Pong", 1_500, 4, "84x84", 500, tmp_path)
    (path,) = tmp_path.glob("*.csv")
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    assert [(row["buffer"], row["table"]) for row in rows][::2] == [
        ("obscodec", f"after {n} transitions") for n in ("1,000", "1,500", "3,000")
    ]
    assert {row["buffer"] for row in rows[1::2]} == {"SB3"}
    for row in rows:
        assert float(row["add_us"]) > 0
        assert float(row["sample256_x"]) > 0
    code = "import scale, pathlib; scale._RECORDED_NBYTES, scale._ROUNDS = 1 << 20, {32: 2, 256: 2}; "
    run_python(
        "-c", f"{code}scale.main('Pong', 1_500, 4, '84x84', 0, pathlib.Path({str(tmp_path)!r}))"
    )  # resident bytes
    (path,) = tmp_path.glob("*.csv")
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert all(0 < float(row["transition_bytes"]) < 56_448 for row in csv.DictReader(lines))
