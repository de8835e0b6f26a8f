"""Frames whose patches LZ4 compresses well behind a dictionary, until they are of another language."""

from __future__ import annotations

import numpy as np
from obscodec import Layout

SCENE = Layout((24, 10), np.uint8)


def scenes(n: int, n_languages: int) -> np.ndarray:
    """Four frames of each scene: of words of a language, one of which changes from one frame to the next."""
    rng = np.random.default_rng(n)
    words = rng.integers(0, 256, (n_languages, 12, 10), np.uint8)
    which = np.repeat(rng.integers(12, size=(n, 1, 24)), 4, axis=1)
    for i in range(1, 4):
        which[np.arange(n), i:, rng.integers(24, size=n)] = rng.integers(12, size=(n, 1))
    return words[np.arange(n)[:, None, None] % n_languages, which].reshape(4 * n, *SCENE.shape)
