"""Compressing full blocks, many in one call."""

import numpy as np
import numpy.typing as npt

from obscodec.kernels import address, compiled, copy
from obscodec.segments import Bytes, Ints
from obscodec.streams import encode_lz4, write_varint


@compiled
def compress_blocks(
    addresses: Ints,
    lengths: Ints,
    version: int,
    room: Bytes,
    dictionary_nbytes: int,
    heads: npt.NDArray[np.int32],
    recent: npt.NDArray[np.int32],
    chain: npt.NDArray[np.uint16],
    n_attempts: int,
    out: Bytes,
    versions: Ints,
    out_lengths: Ints,
) -> None:
    """Write blocks of version 0 as LZ4 blocks; those that do not become smaller as they are.

    Args:
        addresses: ``i64[n]``, where each block begins, its version in one byte.
        lengths: ``i64[n]``, the bytes of each.
        version: of the compressed blocks.
        room: ``u8[:]``, see ``Lz4Encoder``, as for the next five; a block that has no room in it stays as it is.
        dictionary_nbytes: its bytes.
        heads: of the dictionary.
        recent: changed.
        chain: changed behind the dictionary.
        n_attempts: how many earlier positions each position is compared with.
        out: filled; has room for ``nbytes + nbytes // 255 + 64`` bytes for each block.
        versions: ``i64[n]``, filled.
        out_lengths: ``i64[n]``, filled.
    """
    at = address(out)
    for b in range(len(addresses)):
        nbytes = lengths[b] - 1
        versions[b], behind = version, at + lengths[b]
        if dictionary_nbytes + nbytes + 8 <= len(room):
            copy(address(room) + dictionary_nbytes, addresses[b] + 1, nbytes)
            behind = write_varint(write_varint(at, version), nbytes)
            behind += encode_lz4(address(room), dictionary_nbytes, nbytes, heads, recent, chain, n_attempts, behind)
        if behind - at >= lengths[b]:
            copy(at, addresses[b], lengths[b])
            behind = at + lengths[b]
            versions[b] = 0
        out_lengths[b] = behind - at
        at = behind
