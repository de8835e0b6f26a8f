"""The comparison of the example with the transitions of the environment can fail; `just example` runs it."""

from pathlib import Path

import dqn_atari
import numpy as np
import pytest
import typer
from transitions import TRANSITION, add, count_different, recorded
from typer.testing import CliRunner


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [("--codec", "zstd-5", "has two readings"), ("--game", "Pongg", "Did you mean"), ("--steps", "0", "greater than")],
)
def test_a_wrong_option_is_refused_before_training(option: str, value: str, text: str) -> None:
    app = typer.Typer()
    app.command()(dqn_atari.main)
    done = CliRunner().invoke(app, [option, value])
    assert done.exit_code == 2
    assert text in done.output


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of 40 made-up transitions; every seventh ends an episode, every fourteenth by its time limit."""
    rng = np.random.default_rng(0)
    given = np.zeros(40, TRANSITION)
    for name in ("obs", "next_obs", "action"):
        given[name] = rng.integers(0, 18, given[name].shape)
    given["reward"] = rng.standard_normal(40)
    given["done"][::7] = True
    given["timeout"][::14] = True
    given.tofile(tmp_path / "transitions")
    return tmp_path / "transitions"


@pytest.mark.parametrize("options", [None, {}, {"codec": "zstd:1"}])
@pytest.mark.parametrize("size", [50, 40, 30])
def test_a_buffer_equals_what_was_put_into_it(recording: Path, size: int, options: dqn_atari.Options | None) -> None:
    buffer = dqn_atari.new_buffer(size, options)
    for transition in recorded(recording):
        add(buffer, transition)
    assert count_different(buffer, recording) == (min(size, 40), 0)


@pytest.mark.parametrize("field", ["obs", "next_obs", "action", "reward", "done", "timeout"])
def test_one_altered_transition_is_counted(recording: Path, field: str) -> None:
    buffer = dqn_atari.new_buffer(30, None)
    for transition in recorded(recording):
        add(buffer, transition)
    given = np.fromfile(recording, TRANSITION)
    altered = given[field][28:29]  # this episode ended by its time limit
    altered.reshape(-1).view(np.uint8)[-1] ^= 1
    given.tofile(recording)
    assert count_different(buffer, recording) == (30, 1)
