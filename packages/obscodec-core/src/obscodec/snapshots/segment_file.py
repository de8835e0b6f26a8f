"""Segment files: streams in records, each with its length and a checksum; see ``docs/formats/snapshot.md``."""

import mmap
import os
import struct
from collections.abc import Callable
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import xxhash

from obscodec.errors import SnapshotError
from obscodec.runtime import new_chunk
from obscodec.segments import Bytes, Ints, Segments

HEAD: Final = b"obscodec segment\x01\0\0\0\0\0\0\0"
_RECORD: Final = struct.Struct("<QQ")  # bytes of the streams, XXH3-64 of them
_RECORD_NBYTES: Final = 1 << 16  # a record has so many, if its first stream does not have more
_PIECE_NBYTES: Final = 1 << 21  # as a chunk of a heap: some records, read together

OnDamage = Callable[[str], None]  # called with a text that tells the place; it raises, or returns to go on


class Piece(NamedTuple):
    """Some bytes of a segment file, in memory.

    Attributes:
        begin: where they begin in the file.
        content: the bytes: records, heads included.
    """

    begin: int
    content: Bytes


def write_streams(file: BinaryIO, streams: Segments, on_written: Callable[[int], None] | None) -> Ints:
    """Write streams to the end of a segment file, in records.

    Args:
        file: the file.
        streams: the streams.
        on_written: called with the bytes of each record.

    Returns:
        ``i64[n]``, where each stream begins in the file.
    """
    offsets, ends = np.empty(len(streams), np.int64), np.cumsum(streams.lengths)
    first, at = 0, file.tell()
    while first < len(streams):
        begin = int(ends[first] - streams.lengths[first])
        last = max(first + 1, int(np.searchsorted(ends, begin + _RECORD_NBYTES, side="right")))
        some = streams.take(slice(first, last))
        content = np.empty(some.nbytes, np.uint8)
        some.pack(content)
        file.write(_RECORD.pack(content.nbytes, xxhash.xxh3_64_intdigest(content.data)))
        file.write(content.data)
        if on_written is not None:
            on_written(content.nbytes)
        at += _RECORD.size
        offsets[first:last] = at + ends[first:last] - streams.lengths[first:last] - begin
        first, at = last, at + content.nbytes
    return offsets


def mapped(file: BinaryIO, name: str, nbytes: int) -> Bytes:
    """The first ``nbytes`` of a segment file, which stay there until somebody reads them; no checksum is looked at.

    Raises:
        SnapshotError: the file is another one, or shorter.
    """
    if (size := _size_of(file, name)) < nbytes:
        raise SnapshotError(f"{name} is truncated: it has {size} bytes of {nbytes}")
    return np.frombuffer(mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_COPY), np.uint8)


def read_pieces(
    file: BinaryIO, name: str, nbytes: int, on_damage: OnDamage, on_read: Callable[[int], None] | None = None
) -> list[Piece]:
    """Read and check the records in the first ``nbytes`` of a segment file.

    Args:
        file: the file.
        name: of the file, for texts.
        nbytes: how many bytes it has.
        on_damage: called for each damaged record, which is left out.
        on_read: called with the bytes of each piece.

    Raises:
        SnapshotError: the file is another one.
    """
    if (size := _size_of(file, name)) < nbytes:
        on_damage(f"{name} is truncated: it has {size} bytes of {nbytes}")
        nbytes = size
    pieces, at, number = list[Piece](), len(HEAD), 0
    while at < nbytes:
        content = _read(file, name, at, min(_PIECE_NBYTES, nbytes - at))
        end, number, damage = _checked(content, name, at, number)
        if end == 0 and not damage:  # the first record is longer
            need = _record_nbytes(content)
            if need > nbytes - at:
                damage = f"{name}, record {number} at {at}: it has {need} bytes, the file has fewer"
            else:
                content = _read(file, name, at, need)
                end, number, damage = _checked(content, name, at, number)
        if end:
            pieces.append(Piece(at, content[:end]))
        if on_read is not None:
            on_read(end)
        at += end
        if damage:
            on_damage(damage)
            if len(content) - end < _RECORD.size:
                break
            at, number = at + _record_nbytes(content[end:]), number + 1  # if its length is damaged, nothing follows
    return pieces


def _size_of(file: BinaryIO, name: str) -> int:
    """The size of a segment file."""
    if file.read(len(HEAD)) != HEAD:
        raise SnapshotError(f"{name} is no segment file of a snapshot, or its first bytes are damaged")
    return os.fstat(file.fileno()).st_size


def _record_nbytes(content: Bytes) -> int:
    """Bytes of the record at the begin of ``content``, with its head."""
    nbytes, _ = _RECORD.unpack_from(content.data)
    return int(_RECORD.size + nbytes)


def _checked(content: Bytes, name: str, begin: int, number: int) -> tuple[int, int, str]:
    """Check the records that are in ``content`` as a whole, up to one that is damaged.

    Returns:
        Where they end in it, the number of the next one, and what is wrong with that, "" for nothing.
    """
    at, view = 0, content.data
    while len(content) - at >= _RECORD.size:
        nbytes, expected = _RECORD.unpack_from(view, at)
        end = at + _RECORD.size + nbytes
        if end > len(content):
            break
        if xxhash.xxh3_64_intdigest(view[at + _RECORD.size : end]) != expected:
            return at, number, f"{name}, record {number} at {begin + at}: its checksum is wrong, so it is damaged"
        at, number = end, number + 1
    else:
        if at < len(content) and len(content) < _PIECE_NBYTES:
            return at, number, f"{name}, record {number} at {begin + at}: it is truncated"
    return at, number, ""


def _read(file: BinaryIO, name: str, at: int, nbytes: int) -> Bytes:
    content = new_chunk(nbytes)
    file.seek(at)
    if file.readinto(content.data) != nbytes:  # type: ignore[attr-defined]
        raise SnapshotError(f"{name} became shorter while it was read")
    return content
