"""Colours to places in a palette and back, for whole frames.

A **key** is the number of a colour: its channels, the first one in the low byte.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.codecs.formats.images.geometry import SIDE, Geometry, Scratch
from obscodec.codecs.formats.images.scratch import N_COLOURS, TABLE_BITS
from obscodec.kernels import compiled, inlined, int64s_at, load_u8, signed, store_u8, store_u16, store_u32, unsigned
from obscodec.segments import Bytes, Ints
from obscodec.statuses import NO_SUCH_COLOUR, OK

Keys = npt.NDArray[np.int64]

_MULTIPLIER: Final = 0x9E3779B1
_EMPTY: Final = -1
_KEY_BITS: Final = 24
_NONE: Final = 1 << 50  # a bit that no key has
_BRIGHTNESS: Final = (3, 6, 1)  # of red, green and blue, roughly


def new_table(keys: Keys) -> Ints:
    """An ``i64[1024]`` in which :func:`find_places` finds the places of colours: an entry is a key above its place."""
    table: Ints = np.full(1 << TABLE_BITS, _EMPTY, np.int64)
    for place, key in enumerate(keys.tolist()):
        slot = _slot.py_func(key)
        while table[slot] != _EMPTY:
            slot = slot + 1 & (1 << TABLE_BITS) - 1
        table[slot] = key << 8 | place
    return table


@inlined
def brightness(key: int) -> int:
    """By what palettes are sorted: all colours differ."""
    bright = _BRIGHTNESS[0] * (key & 0xFF) + _BRIGHTNESS[1] * (key >> 8 & 0xFF) + _BRIGHTNESS[2] * (key >> 16)
    return bright << _KEY_BITS | key


@inlined
def _slot(key: int) -> int:
    return (key * _MULTIPLIER & 0xFFFFFFFF) >> (32 - TABLE_BITS)


@inlined
def load_key(pixel: int, geometry: Geometry) -> int:
    """The key of the pixel at an address."""
    key = signed(load_u8(pixel))
    if geometry.n_channels > 1:
        key |= signed(load_u8(pixel + geometry.channel_step)) << 8
        key |= signed(load_u8(pixel + 2 * geometry.channel_step)) << 16
    return key


@compiled
def find_places(frames: int, n_frames: int, n_known: int, geometry: Geometry, scratch: Scratch) -> tuple[int, int]:
    """Find the place of each pixel of an item, and write it into ``scratch``.

    Colours that are not among the ``n_known`` ones of its table get places behind these, sorted by brightness; the
    table and the colours of ``scratch`` get them, too. Returns the number of colours, 257 if there are more than
    256; and that of pixels whose colours are new.
    """
    table, keys = int64s_at(scratch.table, (1 << TABLE_BITS,)), int64s_at(scratch.colours, (N_COLOURS,))
    n, mask, at, n_new = n_known, (1 << TABLE_BITS) - 1, scratch.places, 0
    for k in range(n_frames):
        for y in range(geometry.height):
            pixel = frames + k * geometry.frame_nbytes + y * geometry.row_step
            for _ in range(geometry.width):
                key = load_key(pixel, geometry)
                slot = _slot(key)
                while table[slot] >> 8 != key and table[slot] != _EMPTY:
                    slot = slot + 1 & mask
                if table[slot] == _EMPTY:
                    if n == N_COLOURS:
                        return N_COLOURS + 1, 0
                    table[slot] = key << 8 | n
                    keys[n] = key
                    n += 1
                place = table[slot] & (N_COLOURS - 1)
                n_new += place >= n_known
                store_u8(at, unsigned(place))
                at += 1
                pixel += geometry.pixel_step
    if n > n_known:
        _sort_places(n_known, n, at, scratch)
    return n, n_new


@compiled
def _sort_places(n_known: int, n: int, end: int, scratch: Scratch) -> None:
    """Sort the colours of a palette from ``n_known`` on by brightness, and give the pixels their new places."""
    palette = int64s_at(scratch.colours, (N_COLOURS,))
    moved = np.empty(N_COLOURS, np.int64)  # where the colour of each new place was
    for k in range(n_known, n):
        key = palette[k]
        rank = brightness(key)
        j = k
        while j > n_known and brightness(palette[j - 1]) > rank:
            palette[j], moved[j] = palette[j - 1], moved[j - 1]
            j -= 1
        palette[j], moved[j] = key, k
    new = np.empty(N_COLOURS, np.uint8)
    for k in range(n_known):
        new[k] = k
    for k in range(n_known, n):
        new[moved[k]] = k
    for at in range(scratch.places, end):
        store_u8(at, unsigned(new[signed(load_u8(at))]))


@inlined
def _are_apart(geometry: Geometry) -> bool:
    """Whether each of three channels has a plane of its own in a frame."""
    return geometry.n_channels == 3 and geometry.pixel_step == 1


@inlined
def prepare_colours(n_colours: int, geometry: Geometry, scratch: Scratch) -> None:
    """Make the keys of so many places into what :func:`get_colours` takes; places without a colour stay as they are."""
    palette = int64s_at(scratch.colours, (N_COLOURS,))
    if _are_apart(geometry):  # a channel in every other byte: a second pixel has room between them
        for k in range(n_colours):
            palette[k] = palette[k] & 0xFF | (palette[k] & 0xFF00) << 8 | (palette[k] & 0xFF0000) << 16


@compiled
def get_colours(work: int, frame: int, geometry: Geometry, plane: Geometry, scratch: Scratch) -> int:
    """Write the pixels of a frame, from the places in its plane at ``work``; returns a status."""
    palette, all_bits = int64s_at(scratch.colours, (N_COLOURS,)), unsigned(0)
    step, bits = geometry.channel_step, 16 if _are_apart(geometry) else 8
    for y in range(geometry.height):
        at, pixel = work + (y + 1) * plane.stride + SIDE, frame + y * geometry.row_step
        end = at + geometry.width
        if _are_apart(geometry):
            for _ in range(geometry.width >> 1):
                first, second = unsigned(palette[load_u8(at)]), unsigned(palette[load_u8(at + 1)])
                all_bits |= first | second
                pair = first | second << unsigned(8)
                store_u16(pixel, pair)
                store_u16(pixel + step, pair >> unsigned(16))
                store_u16(pixel + 2 * step, pair >> unsigned(32))
                at += 2
                pixel += 2
        elif geometry.pixel_step == 3:
            for _ in range(geometry.width - 1):
                key = unsigned(palette[load_u8(at)])
                all_bits |= key
                store_u32(pixel, key)  # the pixel behind it is written later
                at += 1
                pixel += 3
        for place in range(at, end):
            key = unsigned(palette[load_u8(place)])
            all_bits |= key
            for c in range(geometry.n_channels):
                store_u8(pixel + c * step, key >> unsigned(bits * c))
            pixel += geometry.pixel_step
    return NO_SUCH_COLOUR if all_bits & unsigned(_NONE) else OK


def palette_of(keys: Keys) -> Keys:
    """The key of each place, ``i64[256]``; the others are no keys, which :func:`get_colours` finds."""
    palette: Keys = np.full(N_COLOURS, _NONE)
    palette[: len(keys)] = keys
    return palette


def keys_of(colours: Bytes) -> Keys:
    """The keys of colours ``u8[..., n_channels]``."""
    keys: Keys = np.zeros(colours.shape[:-1], np.int64)
    for c in range(colours.shape[-1]):
        keys |= colours[..., c].astype(np.int64) << 8 * c
    return keys


def colours_of(keys: Keys, n_channels: int) -> Bytes:
    """The inverse of :func:`keys_of`."""
    return np.stack([keys >> 8 * c & 0xFF for c in range(n_channels)], axis=-1).astype(np.uint8)
