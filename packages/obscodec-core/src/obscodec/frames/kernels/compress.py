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
    scratch: Bytes,
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

    The blocks of ``lengths`` bytes are at ``addresses``, ``i64[n]`` both, each with its version in one byte. From
    ``scratch`` to ``n_attempts``, arguments are those of an ``Lz4Encoder``; a block that does not fit stays as it is.
    ``out``, with room for ``nbytes + nbytes // 255 + 64`` bytes for each block, is filled, and so are ``versions`` and
    ``out_lengths``, ``i64[n]`` both; compressed blocks are of ``version``.
    """
    at = address(out)
    for b in range(len(addresses)):
        nbytes = lengths[b] - 1
        versions[b], behind = version, at + lengths[b]
        if dictionary_nbytes + nbytes + 8 <= len(scratch):
            copy(address(scratch) + dictionary_nbytes, addresses[b] + 1, nbytes)
            behind = write_varint(write_varint(at, version), nbytes)
            behind += encode_lz4(address(scratch), dictionary_nbytes, nbytes, heads, recent, chain, n_attempts, behind)
        if behind - at >= lengths[b]:
            copy(at, addresses[b], lengths[b])
            behind = at + lengths[b]
            versions[b] = 0
        out_lengths[b] = behind - at
        at = behind
