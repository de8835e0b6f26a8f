"""Real training with sbx, SB3 in JAX, which uses SB3's buffers: the same weights, to the last bit, from either."""

import pytest
import trained_in_jax
from new_python import run_python

FIRST, *OTHERS = trained_in_jax.RUNS


@pytest.mark.slow
@pytest.mark.parametrize("run", [FIRST, *(pytest.param(run, marks=pytest.mark.long) for run in OTHERS)])
def test_training_in_jax_gives_the_same_weights(run: str) -> None:
    run_python(trained_in_jax.__file__, run)
