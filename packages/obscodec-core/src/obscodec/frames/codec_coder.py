"""CodecCoder: blocks of frames that any codec encodes."""

from collections.abc import Sequence

import numpy as np

from obscodec.codecs import Codec
from obscodec.errors import CorruptStream, ShapeError
from obscodec.frames.block_coder import BlockCoder, Wanted
from obscodec.frames.trained_codecs import TrainedCodecs
from obscodec.layout import Rows
from obscodec.runtime import new_table
from obscodec.segments import Bytes, Segments
from obscodec.statuses import check
from obscodec.streams import copy_frames, read_versions
from obscodec.varint import decode_varint

_SCRATCH_NBYTES = 1 << 22


class CodecCoder(BlockCoder[Codec]):
    """Encodes a block with any codec, as one item of ``block_frames`` frames."""

    patches = False
    versions: TrainedCodecs[Codec]

    def __init__(self, block_codec: Codec) -> None:
        self.spec = block_codec.spec
        self.layout = block_codec.layout
        self.versions = TrainedCodecs(block_codec, _fit)

    def compress(self, compressor: Codec, plain: Bytes) -> Bytes:
        """A stream of the codec."""
        return compressor.encode_batch(plain[None], np.empty(compressor.bound(), np.uint8))[0]

    def decompressed(self, block: Bytes) -> Bytes:
        """See ``BlockCoder.decompressed``: the frames."""
        version, start = decode_varint(block)
        if version == 0:
            if (nbytes := len(block) - start) != self.layout.nbytes:
                raise CorruptStream(f"a block of {self.layout.nbytes} bytes has {nbytes}")
            return block[start:]
        plain = np.empty((1, self.layout.nbytes), np.uint8)
        self._codec(version).decode_batch(Segments.of([block[start:]]), plain)
        return plain.reshape(-1)

    def read_range(self, blocks: Segments, wanted: Wanted, references: Rows) -> None:
        """Decode some blocks at a time, and copy the wanted frames out of them."""
        step = max(1, _SCRATCH_NBYTES // self.layout.nbytes)
        for first in range(0, len(blocks), step):
            piece = blocks.take(slice(first, first + step))
            self._read_piece(piece, wanted._replace(starts=wanted.starts[first : first + len(piece) + 1]))

    def _read_piece(self, blocks: Segments, wanted: Wanted) -> None:
        versions, starts = np.empty((2, len(blocks)), np.int64)
        check(read_versions(blocks.addresses(), blocks.lengths, versions, starts))
        streams = blocks.behind(starts)
        addresses, lengths = np.where(blocks.lengths, streams.addresses(), 0), streams.lengths.copy()
        needed = (1 + wanted.places[wanted.starts[1:] - 1]) * wanted.rows.shape[1]  # up to the last frame of each block
        plain = np.empty((np.count_nonzero(versions), self.layout.nbytes), np.uint8)
        end = 0
        for version in np.unique(versions[versions > 0]).tolist():
            alike = np.flatnonzero(versions == version)
            begin, end = end, end + len(alike)
            self._codec(version).decode_beginnings(streams.take(alike), plain[begin:end], needed[alike])
            addresses[alike] = plain.ctypes.data + np.arange(begin, end) * self.layout.nbytes
            lengths[alike] = needed[alike]
        check(copy_frames(*wanted, addresses, lengths))


def _fit(block_codec: Codec, samples: Sequence[Bytes]) -> Codec:
    rows = new_table((len(samples), block_codec.layout.nbytes), np.uint8)
    for row, sample in zip(rows, samples, strict=True):
        if sample.nbytes != row.nbytes:  # of a damaged file
            raise ShapeError(f"a block of {row.nbytes} bytes has {sample.nbytes}")
        row[:] = sample
    return block_codec.fit(block_codec.layout.tensors(rows))
