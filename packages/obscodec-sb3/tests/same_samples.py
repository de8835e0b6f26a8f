"""What two buffers sample of the same random numbers."""

import numpy as np
import torch


def assert_equal(found, expected):
    """Two nested things are equal, and their arrays in dtype and shape, too."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_equal(found[key], expected[key])
    elif isinstance(expected, tuple):
        assert type(found) is type(expected)
        for x, y in zip(found, expected, strict=True):
            assert_equal(x, y)
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.numpy(), expected.numpy(), strict=True)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found[:], expected, strict=True)
    else:
        assert found == expected


def assert_same_samples(stock, ours, n=64, seed=0, **how):
    samples = []
    for buffer in (stock, ours):
        np.random.seed(seed)
        samples.append(buffer.sample(n, **how))
    assert_equal(samples[1], samples[0])
