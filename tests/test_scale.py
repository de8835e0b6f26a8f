"""The benchmark that shows a buffer as it grows: its source, and that it measures."""

import csv
import itertools

import numpy as np
import pytest
import scale


def test_steps_are_stacks_of_frames_that_no_other_lap_has():
    of_envs = np.random.default_rng(0).integers(255, size=(5, 2, 3, 4, 9), dtype=np.uint8)
    source, observations = scale.steps(of_envs), []
    for _ in range(15):
        observations.append(next(source))
    assert len({id(x) for x in observations}) == 15
    for before, after in itertools.pairwise(observations):
        np.testing.assert_array_equal(after[:, :-3], before[:, 3:])
    for i, observation in enumerate(observations):
        newest = observation[:, -3:].copy()
        newest[:, -1, 0, :8] = of_envs[i % 5, :, -1, 0, :8]
        np.testing.assert_array_equal(newest, of_envs[i % 5])
    assert len({observation[0, -3:].tobytes() for observation in observations}) == 15


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
    scale.main("Pong", 1_500, 4, "84x84", 0, tmp_path)
    (path,) = tmp_path.glob("*.csv")
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert all(0 < float(row["transition_bytes"]) < 56_448 for row in csv.DictReader(lines))
