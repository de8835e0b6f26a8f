"""The dictionary of ``palette``: colours, what each costs after others, and books."""

from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np

from obscodec.codecs.formats.images.groups import DICTIONARY_NBYTES, Books, books_of
from obscodec.codecs.formats.images.palette.colours import Keys, colours_of, keys_of, new_table, palette_of
from obscodec.codecs.formats.images.palette.orders import Costs, Orders, built_in_orders, orders_of
from obscodec.errors import SpecError
from obscodec.segments import Bytes, Ints

FINE: Final = 8  # costs are in eighths of a bit
MAX_COST: Final = 255
_VERSION: Final = 1


class Tables(NamedTuple):
    """What kernels need of a dictionary, or if there is none.

    Attributes:
        keys: the colours.
        known: ``i64[256]``, the same in the form of ``palette_of``.
        places: ``i64[1024]``, see ``new_table``.
        orders: by which ranks are found.
        held: the memory of the orders.
        books: of the ranks.
        pred: the dictionary of ``pred``.
    """

    keys: Keys
    known: Ints
    places: Ints
    orders: Orders
    held: list[Bytes]
    books: Books
    pred: bytes


class AfterOne(NamedTuple):
    """What colours cost after one at a certain place beside a pixel.

    A colour that was not seen there costs what is in ``unseen``, and what it costs alone.

    Attributes:
        unseen: ``u8[n]``.
        seen: ``bool[n, n]``, which colours were seen, a row for each context.
        costs: ``u8[:]``, those of the seen ones, row by row.
    """

    unseen: Bytes
    seen: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    costs: Bytes

    def table(self, alone: Bytes) -> Costs:
        """``i64[n, n]``: all costs."""
        table: Costs = self.unseen.astype(np.int64)[:, None] + alone
        table[self.seen] = self.costs
        return table

    def to_bytes(self) -> bytes:
        """The bytes from which :meth:`from_bytes` makes an equal one."""
        bits = np.packbits(self.seen, axis=None, bitorder="little")
        return self.unseen.tobytes() + bits.tobytes() + self.costs.tobytes()

    @classmethod
    def from_bytes(cls, n: int, source: bytes) -> tuple[Self, bytes]:
        """What stands at the front of ``source``, and the bytes behind it.

        Raises:
            ValueError: it ends too early, or has bits behind the last one.
        """
        n_bits = n * n + 7 >> 3
        unseen = np.frombuffer(source, np.uint8, n)
        bits = np.unpackbits(np.frombuffer(source, np.uint8, n_bits, n), bitorder="little")
        seen, n_seen = bits[: n * n].astype(bool).reshape(n, n), int(bits.sum())
        if bits[n * n :].any():
            raise ValueError("bits behind the last one")
        costs = np.frombuffer(source, np.uint8, n_seen, n + n_bits)
        return cls(unseen, seen, costs), source[n + n_bits + n_seen :]


@dataclass(frozen=True, eq=False)
class Dictionary:
    """A palette, and what is known of the images that have it.

    Attributes:
        n_channels: bytes of a colour.
        keys: the colours.
        alone: ``u8[n]``, what each costs if nothing is known.
        above: what colours cost after the one above.
        left: after that on the left.
        before: after that at the same place of the frame before.
        books: of the ranks.
        pred: the dictionary of ``pred`` for items of more colours, empty if there is none.
    """

    n_channels: int
    keys: Keys
    alone: Bytes
    above: AfterOne
    left: AfterOne
    before: AfterOne
    books: Books
    pred: bytes

    def to_bytes(self) -> bytes:
        """The bytes from which :func:`dictionary_of` makes an equal one."""
        head = bytes([_VERSION, self.n_channels, len(self.keys) - 1])
        tables = b"".join(of.to_bytes() for of in (self.above, self.left, self.before))
        colours = colours_of(self.keys, self.n_channels).tobytes()
        return head + colours + self.alone.tobytes() + tables + self.books.dictionary() + self.pred

    def tables(self) -> Tables:
        """What kernels need of it."""
        above, left, before = (of.table(self.alone) for of in (self.above, self.left, self.before))
        orders = orders_of(above, left, before, self.alone.astype(np.int64))
        return Tables(self.keys, palette_of(self.keys), new_table(self.keys), *orders, self.books, self.pred)


def tables_in(dictionary: bytes, n_channels: int, spec: str) -> Tables:
    """The tables of a dictionary, the built-in ones if it is empty.

    Raises:
        SpecError: the bytes are no dictionary, or one for another number of channels.
    """
    if not dictionary:
        none: Keys = np.zeros(0, np.int64)
        return Tables(none, palette_of(none), new_table(none), *built_in_orders(), books_of(b"", spec), b"")
    return dictionary_of(dictionary, n_channels, spec).tables()


def dictionary_of(source: bytes, n_channels: int, spec: str) -> Dictionary:
    """The dictionary that :meth:`Dictionary.to_bytes` wrote.

    Raises:
        SpecError: it is none, or for another number of channels.
    """
    try:
        version, channels, n = source[0], source[1], source[2] + 1
        if (version, channels) != (_VERSION, n_channels):
            raise ValueError("another version, or another number of channels")
        keys = keys_of(np.frombuffer(source, np.uint8, n * channels, 3).reshape(n, channels))
        if len(np.unique(keys)) < n:
            raise ValueError("a colour that it has twice")
        rest = source[3 + n * channels :]
        alone, rest = np.frombuffer(rest, np.uint8, n), rest[n:]
        above, rest = AfterOne.from_bytes(n, rest)
        left, rest = AfterOne.from_bytes(n, rest)
        before, rest = AfterOne.from_bytes(n, rest)
        books, pred = rest[:DICTIONARY_NBYTES], rest[DICTIONARY_NBYTES:]
        if len(books) < DICTIONARY_NBYTES or len(pred) not in (0, DICTIONARY_NBYTES):
            raise ValueError(f"{len(rest)} bytes of books")
    except (IndexError, ValueError) as error:
        raise SpecError(
            f"{spec} takes dictionaries of version {_VERSION} for {n_channels} channels, "
            f"got {len(source)} bytes that begin with {source[:2]!r} and have {error}: use fit"
        ) from None
    return Dictionary(n_channels, keys, alone, above, left, before, books_of(books, spec), pred)
