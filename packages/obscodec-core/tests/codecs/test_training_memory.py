"""What training takes of the memory of ``malloc``, which keeps some of it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from obscodec import Layout, codec


@pytest.mark.parametrize("spec", ["pred", "palette"])
def test_training_takes_little_memory_beside_its_samples(spec: str) -> None:
    """A mapping, which goes back to the operating system at once, is not counted by tracemalloc."""
    rng = np.random.default_rng(0)
    colours, places = rng.integers(256, size=(100, 3), dtype=np.uint8), rng.integers(100, size=(50, 4, 84, 84))
    samples = colours[np.sort(places)]
    tested = codec(spec, Layout(samples.shape[1:], np.uint8))
    assert tested.fit(samples).dictionary  # compiles
    tracemalloc.start()
    try:
        assert tested.fit(samples).dictionary
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * samples.nbytes
