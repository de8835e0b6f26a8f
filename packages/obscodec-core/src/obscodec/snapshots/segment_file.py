"""Segment files: streams in records, each with its length and a checksum; see ``docs/formats/snapshot.md``."""

import os
import struct
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


class Piece(NamedTuple):
    """Some records that lie one behind the other, in memory.

    Attributes:
        begin: where the first one begins in the file.
        content: their bytes, heads included.
    """

    begin: int
    content: Bytes


def write_streams(file: BinaryIO, streams: Segments) -> Ints:
    """Write streams to the end of a segment file, in records.

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
        at += _RECORD.size
        offsets[first:last] = at + ends[first:last] - streams.lengths[first:last] - begin
        first, at = last, at + content.nbytes
    return offsets


def read_pieces(file: BinaryIO, name: str, nbytes: int) -> list[Piece]:
    """Read and check the records in the first ``nbytes`` of a segment file.

    Raises:
        SnapshotError: the file is another one, or shorter, or a record is damaged.
    """
    if (size := os.fstat(file.fileno()).st_size) < nbytes:
        raise SnapshotError(f"{name} is truncated: it has {size} bytes of {nbytes}")
    if file.read(len(HEAD)) != HEAD:
        raise SnapshotError(f"{name} is no segment file of a snapshot, or its first bytes are damaged")
    pieces, at, number = [], len(HEAD), 0
    while at < nbytes:
        content = new_chunk(min(_PIECE_NBYTES, nbytes - at))
        _fill(file, name, content)
        end, number = _checked(content, name, at, number)
        if end == 0:  # the first record is longer
            need, _ = _RECORD.unpack_from(content.data)
            if need > nbytes - at - _RECORD.size:
                raise SnapshotError(f"{name}, record {number} at {at}: it has {need} bytes, the file has fewer")
            file.seek(at)
            content = new_chunk(_RECORD.size + need)
            _fill(file, name, content)
            end, number = _checked(content, name, at, number)
        pieces.append(Piece(at, content[:end]))
        at += end
        file.seek(at)
    return pieces


def _checked(content: Bytes, name: str, begin: int, number: int) -> tuple[int, int]:
    """Check the records that are in ``content`` as a whole; where they end in it, and the number of the next one."""
    at, view = 0, content.data
    while len(content) - at >= _RECORD.size:
        nbytes, expected = _RECORD.unpack_from(view, at)
        end = at + _RECORD.size + nbytes
        if end > len(content):
            break
        if xxhash.xxh3_64_intdigest(view[at + _RECORD.size : end]) != expected:
            raise SnapshotError(f"{name}, record {number} at {begin + at}: its checksum is wrong, so it is damaged")
        at, number = end, number + 1
    else:
        if at < len(content) and len(content) < _PIECE_NBYTES:
            raise SnapshotError(f"{name}, record {number} at {begin + at}: it is truncated")
    return at, number


def _fill(file: BinaryIO, name: str, content: Bytes) -> None:
    if file.readinto(content.data) != len(content):  # type: ignore[attr-defined]
        raise SnapshotError(f"{name} became shorter while it was read")
