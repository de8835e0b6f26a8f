"""What the stores are filled with."""

import numpy as np
import numpy.typing as npt

Frames = npt.NDArray[np.uint8]
DEPTH = 4  # frames in an observation


def played(n: int, *, tiny: bool) -> tuple[str, Frames]:
    """Frames ``u8[n, 84, 84]`` of MsPacman and its name; drawn ones where the game is not there.

    With ``tiny``, drawn ones of 12x16.
    """
    if tiny:
        return "drawn", drawn(n, (12, 16))
    try:
        from atari_frames import frames

        return "MsPacman", frames("MsPacman", n, 0)
    except ImportError:
        return "drawn", drawn(n)


def drawn(n: int, shape: tuple[int, int] = (84, 84)) -> Frames:
    """Consecutive frames ``u8[n, *shape]`` in the manner of a game: squares that walk over a background of tiles."""
    rng = np.random.default_rng(0)
    tiles = rng.choice([0, 0, 80, 120], (shape[0] // 6 + 1, shape[1] // 6 + 1)).astype(np.uint8)
    frames = np.repeat([np.kron(tiles, np.ones((6, 6), np.uint8))[: shape[0], : shape[1]]], n, axis=0)
    for _ in range(5):
        steps = rng.integers(-1, 2, (2, n))
        rows, columns = (np.cumsum(step) % (size - 5) for step, size in zip(steps, shape, strict=True))
        for frame, row, column in zip(frames, rows, columns, strict=True):
            frame[row : row + 5, column : column + 5] = 200
    return frames


def noise(n: int) -> Frames:
    """Frames ``u8[n, 84, 84]`` that no codec makes smaller."""
    return np.random.default_rng(0).integers(0, 256, (n, 84, 84), np.uint8)


def observations(frames: Frames, first: int, n: int) -> Frames:
    """``u8[n, 4, *shape]``: the stacks of four frames that end with frame ``first`` and those after it, in a circle."""
    stacked: Frames = frames[(first + np.arange(n)[:, None] + np.arange(1 - DEPTH, 1)) % len(frames)]
    return stacked
