"""Books of code words: the dictionary of the bits of ``pred``, and how it is trained."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.codecs.formats.images.geometry import GROUP_STRIDE, Geometry
from obscodec.codecs.formats.images.groups.classes import (
    FIRST_OF_SINGLES,
    LARGEST,
    LIMITS,
    MAX_BITS,
    MODES,
    N_CLASSES,
    N_KEYS,
    N_MEANS,
    N_SYMBOLS,
    PAIRS,
    STARTS,
    Codes,
    Words,
    residuals_of_code,
)
from obscodec.codecs.formats.images.groups.counts import count_symbols, measure_groups
from obscodec.codecs.formats.images.tiles import N_MODES
from obscodec.errors import SpecError
from obscodec.layout import Rows
from obscodec.runtime import new_table
from obscodec.segments import Bytes, Ints

Weights = npt.NDArray[np.float64]

_VERSION: Final = 1
_N_ROUNDS: Final = 4  # of the training: books, then the cheapest class of each group, then books
_PRIOR: Final = 1.0  # symbols of each book that the training has seen before it begins
_FINE: Final = 16  # costs are in sixteenths of a bit
_BUILT_IN: Final = files(__package__).joinpath("built_in.books")  # a dictionary
_SIZE: Final = 1 << MAX_BITS
_REVERSED: Final = np.array([int(f"{k:0{MAX_BITS}b}"[::-1], 2) for k in range(_SIZE)])


DICTIONARY_NBYTES: Final = 1 + (N_SYMBOLS + 1) // 2 + (N_KEYS + 1) // 2


@dataclass(frozen=True, eq=False)
class Books:
    """The code words of all classes, of pairs of classes and of modes, and the class of each key of a group.

    Attributes:
        lengths: ``u8[N_SYMBOLS]``, the bits of each code word.
        classes: ``u8[N_KEYS]``.
        codes: ``u32[N_SYMBOLS]``, each code word, the first bit lowest, and its length from bit 16 on.
        tables: ``u64[16, 2048]``: what the next 11 bits stand for, and from bit 32 on how many of them say so.
    """

    lengths: Bytes
    classes: Bytes
    codes: Codes
    tables: Words

    def dictionary(self) -> bytes:
        """The bytes from which :func:`books_of` makes equal books."""
        return bytes([_VERSION]) + _nibbles(self.lengths) + _nibbles(self.classes)


def books_of(dictionary: bytes, spec: str) -> Books:
    """The books of a dictionary, the built-in ones if it is empty.

    Raises:
        SpecError: the dictionary is none, or has codes that are not complete.
    """
    if not dictionary:
        return built_in()
    if len(dictionary) != DICTIONARY_NBYTES or dictionary[0] != _VERSION:
        raise SpecError(
            f"{spec} takes dictionaries of {DICTIONARY_NBYTES} bytes that begin with {_VERSION}, "
            f"got {len(dictionary)} bytes that begin with {dictionary[:1]!r}: use fit"
        )
    nibbles = np.frombuffer(dictionary, np.uint8, offset=1)
    both = np.stack([nibbles & 15, nibbles >> 4], axis=1)
    n = (N_SYMBOLS + 1) // 2
    lengths, classes = both[:n].reshape(-1)[:N_SYMBOLS], both[n:].reshape(-1)[:N_KEYS]
    for k in range(N_CLASSES):
        book = lengths[STARTS[k] : STARTS[k + 1]]
        if book.min() < 1 or book.max() > MAX_BITS or (_SIZE >> book.astype(np.int64)).sum() != _SIZE:
            raise SpecError(f"book {k} of a dictionary of {spec} is no complete code of 1 to {MAX_BITS} bits: use fit")
    books = books_from(lengths, classes)
    are_large_enough = all(_allowed(key)[k] for key, k in enumerate(classes.tolist()))
    if not are_large_enough or books.dictionary() != dictionary:
        raise SpecError(f"a dictionary of {spec} gives groups to classes that can't hold them, or is too full: use fit")
    return books


def books_from(lengths: Bytes, classes: Bytes) -> Books:
    """Books of complete codes with the given lengths: shorter code words, and those of lower symbols, come first."""
    codes, tables = np.empty(N_SYMBOLS, np.uint32), np.empty((N_CLASSES, _SIZE), np.uint64)
    for k in range(N_CLASSES):
        part = slice(STARTS[k], STARTS[k + 1])
        order = np.argsort(lengths[part], kind="stable")
        bits = lengths[part][order].astype(np.int64)
        takes = _SIZE >> bits
        words = _REVERSED[np.cumsum(takes) - takes] | bits << 16
        codes[part][order] = words.astype(np.uint32)  # numpy may crash if it has no memory to cast while it assigns
        entries = _contents(k)[order] | bits.astype(np.uint64) << np.uint64(32)
        tables[k] = np.repeat(entries, takes)[_REVERSED]
    return Books(lengths, classes, codes, tables)


@cache
def built_in() -> Books:
    """Books for residuals whose frequency falls by the same factor with each step away from 0, from their file."""
    return books_of(_BUILT_IN.read_bytes(), "pred")


def new_predicted(n_frames: int, geometry: Geometry) -> Rows:
    """An array for what :func:`trained` takes; it is a mapping, since ``malloc`` would keep so much memory."""
    return new_table((n_frames, GROUP_STRIDE * geometry.n_groups + geometry.n_tiles), np.uint8)


def trained(predicted: Rows, n_groups: int) -> Books:
    """Books for frames like these, ``u8[n, GROUP_STRIDE * n_groups + n_tiles]``: groups, and behind them modes."""
    nbytes, n = GROUP_STRIDE * n_groups, len(predicted) * n_groups
    residuals, modes = new_table((n * GROUP_STRIDE,), np.uint8), predicted[:, nbytes:].reshape(-1)
    residuals.reshape(len(predicted), nbytes)[:] = predicted[:, :nbytes]
    prior: Weights = _PRIOR * np.exp2(-built_in().lengths.astype(np.float64))  # what the built-in code words expect
    counts, labels = np.zeros(N_SYMBOLS, np.int64), np.zeros(n, np.uint8)
    keys, sums = np.zeros(n, np.int64), np.zeros((N_KEYS, N_CLASSES), np.int64)
    costs, of_classes = _costs(prior), np.full(N_CLASSES, 3 * _FINE)
    for n_left in reversed(range(_N_ROUNDS)):
        measure_groups(residuals, costs, of_classes, labels, keys, sums)
        count_symbols(residuals, labels, counts)
        weights = counts + prior
        # Whole bits from the first round on would keep groups in classes that they only began in.
        costs = _costs(weights) if n_left else _FINE * _lengths(weights).astype(np.int64)
        of_classes = _cost_of(np.bincount(labels, minlength=N_CLASSES).astype(np.float64) + 1)
    measure_groups(residuals, costs, of_classes, labels, keys, sums)
    classes = built_in().classes.copy()
    for key in np.flatnonzero(np.bincount(keys, minlength=N_KEYS)).tolist():
        classes[key] = np.where(_allowed(key), sums[key], np.iinfo(np.int64).max).argmin()
    classes[:N_MEANS] = 0
    labels = classes[keys]
    count_symbols(residuals, labels, counts)
    weights = counts + prior
    pairs = np.bincount(labels[0::2].astype(np.int64) * N_CLASSES + labels[1::2], minlength=N_CLASSES**2)
    weights[: len(pairs)] += pairs
    weights[STARTS[MODES] :] += np.bincount(modes, minlength=N_MODES)
    return books_from(_lengths(weights), classes)


def _lengths(weights: Weights | Ints) -> Bytes:
    """:func:`code_lengths` of each book, one behind the other."""
    return np.concatenate([code_lengths(weights[STARTS[k] : STARTS[k + 1]]) for k in range(N_CLASSES)])


def code_lengths(weights: Weights | Ints) -> Bytes:
    """The lengths of the best code words of at most 11 bits, ``u8[n]``, for symbols of some weights: package-merge.

    See L. Larmore and D. Hirschberg, "A fast algorithm for optimal length-limited Huffman codes", 1990.
    """
    order = np.argsort(weights, kind="stable")
    leaves = weights[order]
    packages, are_leaves = leaves[:0], []
    for _ in range(MAX_BITS):
        both = np.concatenate([leaves, packages])
        rank = np.argsort(both, kind="stable")
        are_leaves.append(rank < len(leaves))
        merged = both[rank]
        packages = merged[0 : len(merged) // 2 * 2].reshape(-1, 2).sum(axis=1)
    lengths, n_taken = np.zeros(len(weights), np.uint8), 2 * len(weights) - 2
    for leaf in reversed(are_leaves):
        n_leaves = int(leaf[:n_taken].sum())
        lengths[order[:n_leaves]] += 1
        n_taken = 2 * (n_taken - n_leaves)
    return lengths


def _contents(k: int) -> Words:
    """What each symbol of a book stands for: residuals, two classes or a mode, one a byte, the first lowest."""
    symbols = np.arange(int(STARTS[k + 1] - STARTS[k]), dtype=np.uint64)
    if k == PAIRS:
        return symbols >> np.uint64(4) | (symbols & np.uint64(15)) << np.uint64(8)
    if k == MODES or k >= FIRST_OF_SINGLES:
        return symbols
    contents, base = np.zeros_like(symbols), np.uint64(2 * LIMITS[k] + 1)
    for j in range(residuals_of_code.py_func(k)):
        contents |= (symbols % base - np.uint64(LIMITS[k]) & np.uint64(0xFF)) << np.uint64(8 * j)
        symbols //= base
    return contents


def _costs(weights: Weights) -> Ints:
    """``i64[N_SYMBOLS]``: what each symbol costs if it is as frequent as its weight in its book says."""
    return np.concatenate([_cost_of(weights[STARTS[k] : STARTS[k + 1]]) for k in range(N_CLASSES)])


def _cost_of(weights: Weights) -> Ints:
    bits = np.minimum(-np.log2(weights / weights.sum()), MAX_BITS + 3)
    costs: Ints = np.round(bits * _FINE).astype(np.int64)
    return costs


def _allowed(key: int) -> npt.NDArray[np.bool_]:
    """``bool[16]``: the classes that hold the residuals of the groups with a key."""
    return 2 * np.array(LIMITS) >= LARGEST[key // N_MEANS]


def _nibbles(values: Bytes) -> bytes:
    """Two numbers below 16 a byte, the first in the low bits."""
    padded = np.append(values, np.zeros(len(values) % 2, np.uint8))
    return (padded[0::2] | padded[1::2] << 4).tobytes()
