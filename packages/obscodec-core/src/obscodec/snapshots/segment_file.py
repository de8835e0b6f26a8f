"""Segment files: streams in records, each with its length and a checksum; see ``docs/formats/snapshot.md``.

Each file has a random number of its own. The checksum of a record covers this number and the place of the record. So a
record is intact only where it was written: not in another file, be it of the same name, and not elsewhere in its own.
"""

import os
import struct
from collections.abc import Callable, Iterator
from itertools import count
from typing import BinaryIO, Final, NamedTuple

import numpy as np
import xxhash

from obscodec.errors import SnapshotError
from obscodec.runtime import MappedFile, new_chunk
from obscodec.segments import Bytes, Ints, Segments

_MAGIC: Final = b"obscodec segment\x01\0\0\0\0\0\0\0"
_NUMBER: Final = struct.Struct("<Q")  # of the file
_HEAD_NBYTES: Final = len(_MAGIC) + _NUMBER.size
_RECORD: Final = struct.Struct("<QQ")  # bytes of the streams, their checksum
_RECORD_NBYTES: Final = 1 << 16  # a record has so many, if its first stream does not have more
_MOST_DAMAGED: Final = 1000  # records of a file, after which nothing more of it is read
_PIECE_NBYTES: Final = 1 << 21  # as a chunk of a heap: some records, read together
_MOST: Final = (1 << 64) - 1

OnDamage = Callable[[str], None]  # called with a text that tells the place; it raises, or returns to go on


class Piece(NamedTuple):
    """Some bytes of a segment file, in memory: where they begin, and records, heads included."""

    begin: int
    content: Bytes


def write_streams(file: BinaryIO, number: int, streams: Segments) -> Ints:
    """Write streams in their order to an empty segment file, whose number no other file has.

    Returns ``i64[n]``, where each stream begins in the file.
    """
    offsets, ends = np.empty(len(streams), np.int64), np.cumsum(streams.lengths)
    file.write(_MAGIC + _NUMBER.pack(number))
    first, at = 0, _HEAD_NBYTES
    while first < len(streams):
        begin = int(ends[first] - streams.lengths[first])
        last = max(first + 1, int(np.searchsorted(ends, begin + _RECORD_NBYTES, side="right")))
        some = streams.take(slice(first, last))
        content = np.empty(some.nbytes, np.uint8)
        some.pack(content)
        file.write(_RECORD.pack(content.nbytes, checksum(content.data, number, at)))
        file.write(content.data)
        at += _RECORD.size
        offsets[first:last] = at + ends[first:last] - streams.lengths[first:last] - begin
        first, at = last, at + content.nbytes
    return offsets


def checksum(streams: memoryview | bytes, number: int, at: int) -> int:
    """The checksum of a record that begins at byte ``at`` of the file with a number."""
    return xxhash.xxh3_64_intdigest(streams, (number + at) & _MOST)


def mapped(file: BinaryIO, name: str, number: int, nbytes: int) -> Bytes:
    """The first ``nbytes`` of a segment file, which stay there until somebody reads them; no checksum is looked at."""
    if (size := _size_of(file, name, number)) < nbytes:
        raise SnapshotError(f"{name} is truncated: it has {size} bytes of {nbytes}")
    return MappedFile.of(file, name, nbytes)


def read_pieces(file: BinaryIO, name: str, number: int, nbytes: int, on_damage: OnDamage) -> list[Piece]:
    """Read and check the records in the first ``nbytes`` of a segment file; an error if it has another number.

    ``on_damage`` is called for each damaged record, which is left out. ``name`` is for texts.
    """
    if (size := _size_of(file, name, number)) < nbytes:
        on_damage(f"{name} is truncated: it has {size} bytes of {nbytes}")
        nbytes = size
    pieces, run, end = list[Piece](), bytearray(), 0
    for at, head, streams in _records(file, name, number, nbytes, on_damage):
        if run and (at != end or len(run) + len(streams) > _PIECE_NBYTES):
            pieces.append(_piece(end, run))
            run.clear()
        run += head
        run += streams
        end = at + len(head) + len(streams)
    return [*pieces, _piece(end, run)] if run else pieces


def _records(
    file: BinaryIO, name: str, number: int, nbytes: int, on_damage: OnDamage
) -> Iterator[tuple[int, bytes, bytes]]:
    """Where each intact record begins, its head and its streams; see :func:`read_pieces`."""
    at, n_damaged = _HEAD_NBYTES, 0
    for n_read in count():
        if at >= nbytes or n_damaged == _MOST_DAMAGED:
            return
        head = _read(file, name, min(_RECORD.size, nbytes - at))
        n_streams, expected = _RECORD.unpack(head) if len(head) == _RECORD.size else (0, 0)
        place, need = f"{name}, record {n_read} at {at}", _RECORD.size + n_streams
        if need > nbytes - at:
            on_damage(f"{place}: it has {need} bytes, the file has fewer")
            return
        streams = _read(file, name, n_streams)
        if checksum(streams, number, at) == expected:
            yield at, head, streams
        else:
            n_damaged += 1
            on_damage(f"{place}: its checksum is wrong, so it is damaged")
            if not n_streams:  # its head may be zeros that nobody wrote
                on_damage(f"{name}, record {n_read + 1} at {at + need}: nobody knows where the next one begins")
                return
        at += need


def _piece(end: int, content: bytearray) -> Piece:
    """Records that end at a place of the file."""
    memory = new_chunk(len(content))
    memory[:] = np.frombuffer(content, np.uint8)
    return Piece(end - len(content), memory)


def _size_of(file: BinaryIO, name: str, number: int) -> int:
    """The size of the segment file with a number."""
    head = file.read(_HEAD_NBYTES)
    if len(head) < _HEAD_NBYTES or not head.startswith(_MAGIC):
        raise SnapshotError(f"{name} is no segment file of a snapshot, or its first bytes are damaged")
    (found,) = _NUMBER.unpack_from(head, len(_MAGIC))
    if found != number:
        raise SnapshotError(
            f"{name} is another file than the one that was written with this generation: it has the number "
            f"{found:016x}, the manifest names {number:016x}. Files of two snapshots, or of two copies of one, are "
            "mixed here: restore all files from one of them"
        )
    return os.fstat(file.fileno()).st_size


def _read(file: BinaryIO, name: str, nbytes: int) -> bytes:
    content = file.read(nbytes)
    if len(content) < nbytes:
        raise SnapshotError(f"{name} became shorter while it was read")
    return content
