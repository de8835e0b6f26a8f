"""What ``auto`` chooses, and what it says about it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from atari_frames import frames
from obscodec import Layout, SpecError, codec
from obscodec.stores.auto.choice import choose, parse_budget

STREAMS = np.zeros(300, np.int64)


@pytest.mark.parametrize("game", ["MsPacman", "Pong", "Breakout"])
def test_games_are_stored_as_patches(game):
    choice = choose(frames(game, 320, 0)[:300], STREAMS, None)
    assert choice.chosen.spec.startswith("delta-rle")
    raw = next(trial for trial in choice.trials if trial.spec == "raw")
    assert choice.chosen.frame_bytes < raw.frame_bytes / 10


def test_the_same_frames_give_the_same_choice():
    played = frames("MsPacman", 320, 0)[:300]
    assert choose(played, STREAMS, None) == choose(played.copy(), STREAMS, None)


@pytest.mark.parametrize("n", [17, 40, 300])
def test_noise_stays_raw(n):
    """Although the first frame of each block costs nothing where it becomes a reference."""
    noise = np.random.default_rng(0).integers(256, size=(n, 84, 84), dtype=np.uint8)
    choice = choose(noise, STREAMS[:n], None)
    assert choice.chosen.spec == "raw"
    assert choice.chosen.frame_bytes <= 84 * 84 + 1


def test_the_smallest_of_the_fast_ones_is_chosen():
    choice = choose(frames("Breakout", 320, 0)[:300], STREAMS, None)
    fast = [trial for trial in choice.trials if trial.fits]
    assert choice.chosen in fast
    assert choice.chosen.frame_bytes == min(trial.frame_bytes for trial in fast)
    why = "the smallest that the table of costs counts as fast as uncompressed"
    assert choice.reason == f"{why}, on the first 300 frames"
    assert all(trial.batch_s is None for trial in choice.trials)
    layout = Layout((84, 84), np.uint8)
    assert [codec(trial.spec, layout).spec for trial in choice.trials] == [trial.spec for trial in choice.trials]


def test_frames_that_only_a_slow_codec_shrinks_get_one():
    """They have eight values, at random: three bits each."""
    choice = choose(np.random.default_rng(0).integers(8, size=(300, 84, 84), dtype=np.uint8), STREAMS, None)
    assert choice.chosen.frame_bytes < 84 * 84 / 2
    why = "the smallest, since none that the table of costs counts as fast as uncompressed halves the memory"
    assert choice.reason == f"{why}, on the first 300 frames"
    assert not choice.chosen.fits


def test_with_a_large_budget_the_smallest_of_all_is_chosen():
    choice = choose(frames("Breakout", 320, 0)[:300], STREAMS, "10 s/batch")
    assert choice.chosen.frame_bytes == min(trial.frame_bytes for trial in choice.trials)
    assert choice.reason == "the smallest within 10 s/batch, on the first 300 frames"
    assert all(trial.fits and trial.batch_s > 0 for trial in choice.trials)


def test_with_an_impossible_budget_the_fastest_is_chosen():
    choice = choose(frames("Breakout", 320, 0)[:300], STREAMS, "0.0001 us/batch")
    assert choice.chosen.batch_s == min(trial.batch_s for trial in choice.trials)
    assert choice.reason == "the fastest, since none is within 0.0001 us/batch, on the first 300 frames"
    assert not any(trial.fits for trial in choice.trials)


@pytest.mark.parametrize(
    ("budget", "seconds"),
    [("1 ms/batch", 1e-3), ("1ms/batch", 1e-3), ("0.5 s/batch", 0.5), ("250 us/batch", 250e-6), ("0 s/batch", 0)],
)
def test_budgets(budget, seconds):
    assert parse_budget(budget) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "budget", ["", "1", "1 ms", "ms/batch", "-1 ms/batch", "1 h/batch", "1 ms / batch", "nan s/batch", "1 ms/batch\n"]
)
def test_a_malformed_budget(budget):
    text = f"a budget is a time for each batch of 256 such as '1 ms/batch', got {budget!r}"
    with pytest.raises(SpecError, match=f"^{re.escape(text)}$"):
        choose(np.zeros((300, 2, 2), np.uint8), STREAMS, budget)
