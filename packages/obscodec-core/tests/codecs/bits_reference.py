"""Bits, books and groups of ``pred``, as ``docs/formats/pred.md`` describes them: slow, and without any kernel."""

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Book = dict[tuple[int, int], int]  # the symbol of each code word, known by its length and its bits
Group = list[int]  # 32 residuals

LIMITS = (0, 1, 1, 1, 2, 2, 7, 7, 12, 12, 20, 128, 128, 128, 128)
OF_CODE = (0, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 1, 1, 1, 1)
OF_CLASSES = [256 if of == 1 else (2 * a + 1) ** of for a, of in zip(LIMITS[1:], OF_CODE[1:], strict=True)]
N_STREAMS = 4
SIZES = [256, *OF_CLASSES, 152]  # of the books of pairs of classes, of classes, and of modes


class Bits:
    """Bits of some bytes, the low ones of each byte first."""

    def __init__(self, source: bytes) -> None:
        self.bits = np.unpackbits(np.frombuffer(source, np.uint8), bitorder="little").tolist()
        self.at = 0

    def number(self, n_bits: int) -> int:
        self.at += n_bits
        return sum(bit << k for k, bit in enumerate(self.bits[self.at - n_bits : self.at]))

    def symbol(self, book: Book) -> int:
        code = n_bits = 0
        while (n_bits, code) not in book:
            code, n_bits = code << 1 | self.bits[self.at], n_bits + 1
            self.at += 1
        return book[n_bits, code]


class Reader:
    """Varints and bytes, one behind the other."""

    def __init__(self, source: bytes) -> None:
        self.source, self.at = source, 0

    def take(self, nbytes: int) -> bytes:
        self.at += nbytes
        return self.source[self.at - nbytes : self.at]

    def rest(self) -> bytes:
        return self.source[self.at :]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value


def books(lengths: Bytes) -> list[Book]:
    """The symbol of each code word, of pairs of classes, classes 1 to 14, and modes."""
    found, first = [], 0
    for size in SIZES:
        of_book, book, code, before = lengths[first : first + size], {}, 0, 0
        for symbol in np.argsort(of_book, kind="stable").tolist():
            n_bits = int(of_book[symbol])
            code <<= n_bits - before
            book[n_bits, code] = symbol
            code, before = code + 1, n_bits
        found.append(book)
        first += size
    return found


def groups_of(source: Reader, n_tiles: int, n_groups: int, tables: list[Book]) -> tuple[list[int], list[Group]]:
    """The modes of a frame, and the residuals of each group."""
    sizes = [source.varint() for _ in range(N_STREAMS)]
    head, *streams = [*(Bits(source.take(size)) for size in sizes), Bits(source.rest())]
    classes = []
    for _ in range(n_groups // 2):
        classes += divmod(head.symbol(tables[0]), 16)
    modes = [head.symbol(tables[15]) for _ in range(n_tiles)]
    groups = [[0] * 32 for _ in classes]
    for of_class in range(1, 16):
        which = [g for g, found in enumerate(classes) if found == of_class]
        for j, g in enumerate(which):
            groups[g] = group_of(streams[j % N_STREAMS], of_class, tables)
    return modes, groups


def group_of(stream: Bits, of_class: int, tables: list[Book]) -> Group:
    """32 residuals."""
    residuals: list[int] = []
    while len(residuals) < 32:
        if of_class == 15 or OF_CODE[of_class] == 1:
            byte = stream.number(8) if of_class == 15 else stream.symbol(tables[of_class])
            residuals.append(byte - 256 * (byte > 127))
            continue
        symbol, base = stream.symbol(tables[of_class]), 2 * LIMITS[of_class] + 1
        for _ in range(OF_CODE[of_class]):
            residuals.append(symbol % base - LIMITS[of_class])
            symbol //= base
    return residuals
