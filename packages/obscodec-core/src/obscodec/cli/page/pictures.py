"""Pictures: what of an item is shown as an image, and PNG files."""

import struct
import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from obscodec.layout import Layout

_LEAST_SIDE: Final = 7  # of an image, as MiniGrid has it; less is a matrix of numbers
_MOST_SIDE: Final = 256  # pixels that are shown; of a larger image, every other row and column, or fewer
_MOST_PLANES: Final = 64
_DARK: Final = 16  # numbers below it are labels, or distances, rather than grey values

Pixels = npt.NDArray[np.uint8]


def is_image(layout: Layout) -> bool:
    """Whether an item of this layout, or its last part, has the shape of an image."""
    a, b, c = layout.shape[-3:] if len(layout.shape) > 2 else (1, *layout.shape, 0, 0)[:3]
    n_planes, *sides = (a, b, c) if a < c else (c, a, b)  # as planes_of takes it
    return layout.nbytes > 0 and 0 < n_planes <= _MOST_PLANES and min(sides) >= _LEAST_SIDE


def planes_of(items: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], str]:
    """What is shown of items ``[n, *shape]``, and what that is of an item, "" for all of it.

    A stack is shown as its newest frame: three planes where they divide into colours, else one.

    Returns:
        ``[n, height, width]``, or with three colours behind, and a text.
    """
    said = list[str]()
    while items.ndim > 4:
        said += [f"the last of {items.shape[1]}"] * (items.shape[1] > 1)
        items = items[:, -1]
    if items.ndim == 4:
        items = np.moveaxis(items, 1, -1) if items.shape[1] < items.shape[-1] else items
        n, n_shown = items.shape[-1], 1 if items.shape[-1] % 3 else 3
        said += [f"the last {'three ' * (n_shown == 3)}of {n} planes"] * (n > n_shown)
        items = items[..., -1] if n_shown == 1 else items[..., -3:]
    if (every := -(-max(items.shape[1:3]) // _MOST_SIDE)) > 1:
        said.append(f"1 of {every} rows and columns")
    return items[:, ::every, ::every], "; ".join(said)


def range_of(planes: npt.NDArray[Any]) -> tuple[float, float]:
    """The numbers that are black and white: those of a common range, or the least and the largest."""
    numbers = planes.astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    least, most = float(numbers.min(initial=np.inf)), float(numbers.max(initial=-np.inf))
    if (planes.dtype == np.uint8 and not 0 < most < _DARK) or (least >= 0 and _DARK <= most <= 255):
        return 0, 255
    if planes.dtype.kind not in "iu" and least >= -1 and most <= 1:
        return (0 if least >= 0 else -1), 1
    return (min(0, least) if planes.dtype.kind in "iu" else least, most) if least < most else (0, 1)


def pixels_of(planes: npt.NDArray[Any], black: float, white: float) -> Pixels:
    """Planes as numbers from 0, ``black``, to 255, ``white``; others are cut off, and NaN is black."""
    if planes.dtype != np.uint8 or (black, white) != (0, 255):
        with np.errstate(all="ignore"):
            planes = (planes.astype(np.float64) - black) / (white - black) * 255
        planes = np.rint(np.nan_to_num(planes.clip(0, 255)))
    return planes.astype(np.uint8)


def png(pixels: Pixels) -> bytes:
    """``u8[height, width]`` or ``u8[height, width, 3]`` as a file in the format PNG, https://www.w3.org/TR/png/."""
    height, width = pixels.shape[:2]
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    less_above = np.diff(rows, axis=0, prepend=np.zeros_like(rows[:1]))
    filtered = np.insert(rows, 0, 0, axis=1), np.insert(less_above, 0, 2, axis=1)  # "none" and "up", in each row
    content = min((zlib.compress(of.tobytes()) for of in filtered), key=len)
    chunks = (b"IHDR", head), (b"IDAT", content), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(of)) + kind + of + struct.pack(">I", zlib.crc32(kind + of)) for kind, of in chunks
    )
