"""How a dictionary of ``palette`` is trained."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.codecs.formats.images.geometry import Geometry, geometry_of, plane_geometry
from obscodec.codecs.formats.images.groups import books_of, new_predicted, trained
from obscodec.codecs.formats.images.palette.colours import Keys, brightness, keys_of
from obscodec.codecs.formats.images.palette.dictionary import FINE, MAX_COST, AfterOne, Dictionary
from obscodec.codecs.formats.images.palette.encode import encode_with
from obscodec.codecs.formats.images.pred import Pred
from obscodec.codecs.formats.images.scratch import N_COLOURS
from obscodec.codecs.formats.images.sections import PREDICTED
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints

Places = npt.NDArray[np.uint8]

_UNSEEN: Final = 0.02  # how often a context is followed by what was never seen there
_MOST_OF_MANY: Final = 128  # colours that are kept of more than 256
_MOST_SEEN: Final = 8192  # costs in each table
_SELDOM: Final = 1  # how often colours follow by chance: no cost tells it


def train(rows: Rows, pred: Pred, known: Keys) -> Dictionary | None:
    """A dictionary for items like ``rows``, ``u8[n, nbytes]``, None if each has more than 256 colours.

    ``pred`` is the codec of items of more colours. Colours that are ``known`` keep their places, unless there is no
    room for the others then.
    """
    n_frames, geometry = geometry_of(pred.layout, pred.spec, takes_depth=False)
    colours = [np.unique(keys_of(_pixels(row, n_frames, geometry)), return_counts=True) for row in rows]
    few = [k for k, (keys, _) in enumerate(colours) if len(keys) <= N_COLOURS]
    if not few:
        return None
    palette = _palette([colours[k] for k in few], known)
    extended = {k: _extended(palette, colours[k][0]) for k in few}
    kept = [k for k, together in extended.items() if len(together) <= N_COLOURS]
    if not kept:
        return None
    counts, pairs = np.zeros(N_COLOURS, np.int64), np.zeros((3, N_COLOURS**2), np.int64)
    for k in kept:  # one by one: together, they would take many times the memory of the items
        places = _places(keys_of(_pixels(rows[k], n_frames, geometry)), extended[k])
        counts += np.bincount(places.reshape(-1), minlength=N_COLOURS)
        for after, (context, place) in zip(pairs, _beside(places), strict=True):
            after += np.bincount((context * N_COLOURS + place).reshape(-1), minlength=N_COLOURS**2)
    counts = counts[: len(palette)]
    alone = _cost_of((counts + _UNSEEN) / (counts.sum() + len(palette) * _UNSEEN))
    above, left, before = (_after_one(after, alone) for after in pairs)
    others = np.delete(rows, few, axis=0)
    of_others = pred.fit(pred.layout.tensors(others)).dictionary if len(others) else b""
    books = books_of(b"", pred.spec)
    untrained = Dictionary(geometry.n_channels, palette, alone, above, left, before, books, of_others)
    some = rows if len(kept) == len(rows) else rows[kept]  # without a copy of all
    plane = plane_geometry(geometry)
    predicted = new_predicted(len(some) * n_frames, plane)
    encode_with(untrained.tables(), some, n_frames, geometry, predicted.reshape(-1), PREDICTED)
    return replace(untrained, books=trained(predicted, plane.n_groups))


def _pixels(row: Bytes, n_frames: int, geometry: Geometry) -> Bytes:
    """``u8[n_frames, height, width, n_channels]``."""
    if geometry.pixel_step == 1 and geometry.n_channels > 1:
        planar = row.reshape(n_frames, geometry.n_channels, geometry.height, geometry.width)
        return np.moveaxis(planar, 1, -1)
    return row.reshape(n_frames, geometry.height, geometry.width, geometry.n_channels)


def _palette(colours: Sequence[tuple[Keys, Ints]], known: Keys) -> Keys:
    """The known colours, and behind them the others of the items, sorted by brightness.

    If they are more than 256, those of the items alone; and if these are, those that most items have: then each item
    has room for others.
    """
    keys, which = np.unique(np.concatenate([of for of, _ in colours]), return_inverse=True)
    n_items, n_pixels = np.bincount(which), np.bincount(which, np.concatenate([n for _, n in colours]))
    nothing = known[:0]
    for first in (known, nothing):
        together = _extended(first, keys)
        if len(together) <= N_COLOURS:
            return together
    return _extended(nothing, keys[np.lexsort((-n_pixels, -n_items))[:_MOST_OF_MANY]])


def _extended(palette: Keys, keys: Keys) -> Keys:
    """A palette, and behind it the keys that it does not have, sorted by brightness."""
    new = np.setdiff1d(keys, palette)
    return np.concatenate([palette, new[np.argsort([brightness.py_func(key) for key in new.tolist()])]])


def _places(keys: Keys, palette: Keys) -> Places:
    """The place of each colour, all of which the palette has."""
    order = np.argsort(palette)
    return order[np.searchsorted(palette[order], keys)].astype(np.uint8)


def _beside(places: Places) -> tuple[tuple[Ints, Ints], ...]:
    """The places above those of an item, on their left, and in the frame before, each with those places."""
    here = places.astype(np.int64)
    above, left = np.zeros_like(here), np.zeros_like(here)
    above[:, 1:], left[..., 1:] = here[:, :-1], here[..., :-1]
    return (above, here), (left, here), (here[:-1], here[1:])


def _after_one(pairs: Ints, alone: Bytes) -> AfterOne:
    """What colours cost after others beside them, by how often each pair was seen, ``i64[65536]``."""
    n = len(alone)
    counts = pairs.reshape(N_COLOURS, N_COLOURS)[:n, :n]
    seldom = _SELDOM
    if counts.size > _MOST_SEEN:
        seldom = max(seldom, int(np.partition(counts, -_MOST_SEEN - 1, axis=None)[-_MOST_SEEN - 1]))
    seen = counts > seldom
    kept = np.where(seen, counts, 0)
    totals = kept.sum(axis=1) + _UNSEEN
    shares = _UNSEEN * 2.0 ** -(alone / FINE)
    return AfterOne(_cost_of(_UNSEEN / totals), seen, _cost_of((kept + shares) / totals[:, None])[seen])


def _cost_of(shares: npt.NDArray[np.float64]) -> Bytes:
    return np.minimum(np.round(-np.log2(shares) * FINE), MAX_COST).astype(np.uint8)
