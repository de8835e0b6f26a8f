"""Real training with sbx, SB3 in JAX, which uses SB3's buffers: the same weights, to the last bit, from either."""

import subprocess
import sys
from pathlib import Path

import pytest
import trained_in_jax


@pytest.mark.slow
@pytest.mark.parametrize("run", trained_in_jax.RUNS)
def test_training_in_jax_gives_the_same_weights(run: str) -> None:
    done = subprocess.run(
        [sys.executable, Path(trained_in_jax.__file__), run], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
