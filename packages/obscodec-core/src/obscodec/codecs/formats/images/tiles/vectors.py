"""Vectors: where a tile was in the frame before, found for some tiles, and offered to all."""

from typing import Final

from obscodec.codecs.formats.images.geometry import SIDE, Geometry, Scratch
from obscodec.codecs.formats.images.tiles.prediction import MAX_VECTORS
from obscodec.codecs.formats.images.words import bits_of_bytes, subtract_bytes, zigzag_bytes
from obscodec.kernels import compiled, int64s_at, load_u64, store_u8, unsigned

_DOWN: Final = 4  # pixels that a vector reaches
_RIGHT: Final = 12
N_TRIED: Final = (2 * _DOWN + 1) * (2 * _RIGHT + 1)
_EVERY: Final = 7  # tiles from one that is searched to the next
_LEAST_BITS: Final = 24  # of a tile that is searched
_LEAST_SAVED: Final = 16  # bits that a vector saves in the tiles that are searched


@compiled
def find_vectors(work: int, before: int, geometry: Geometry, scratch: Scratch) -> int:
    """Write the vectors that save most into ``scratch``, down and right, and return their number.

    The first one is 0, 0. Only the first plane is searched, every other row of a tile. ``work`` is the address of the
    planes of the frame, ``before`` of those of the frame before.
    """
    saved, vectors = int64s_at(scratch.saved, (N_TRIED,)), scratch.vectors
    saved[:] = 0
    for tile in range(_EVERY // 2, geometry.n_tiles, _EVERY):
        y, x = SIDE * (tile // geometry.tiles_across), SIDE * (tile % geometry.tiles_across)
        if y + SIDE > geometry.height or x + SIDE > geometry.width:
            continue
        offset = (y + 1) * geometry.stride + SIDE + x
        most = _bits(work + offset, before + offset, geometry.stride)
        if most < _LEAST_BITS:
            continue
        fewest, best = most, 0
        last_down, last_right = SIDE * (geometry.tiles_down - 1) - y, SIDE * (geometry.tiles_across - 1) - x
        for down in range(-min(_DOWN, y), min(_DOWN, last_down) + 1):
            for right in range(-min(_RIGHT, x), min(_RIGHT, last_right) + 1):
                bits = _bits(work + offset, before + offset + down * geometry.stride + right, geometry.stride)
                if bits < fewest:
                    fewest, best = bits, (down + _DOWN) * (2 * _RIGHT + 1) + right + _RIGHT
        saved[best] += most - fewest
    store_u8(vectors, unsigned(0))
    store_u8(vectors + 1, unsigned(0))
    n_vectors = 1
    while n_vectors < MAX_VECTORS:
        best = 0
        for tried in range(N_TRIED):
            if saved[tried] > saved[best]:
                best = tried
        if saved[best] < _LEAST_SAVED:
            break
        store_u8(vectors + 2 * n_vectors, unsigned(best // (2 * _RIGHT + 1) - _DOWN))
        store_u8(vectors + 2 * n_vectors + 1, unsigned(best % (2 * _RIGHT + 1) - _RIGHT))
        saved[best] = 0
        n_vectors += 1
    return n_vectors


@compiled
def _bits(tile: int, old: int, stride: int) -> int:
    """The bits of the difference of every other row of two tiles."""
    bits = 0
    for at in range(0, SIDE * stride, 2 * stride):
        bits += bits_of_bytes(zigzag_bytes(subtract_bytes(load_u64(tile + at), load_u64(old + at))))
    return bits
