"""PatchCoder: blocks of frames that are patches of each other."""

import threading

import numpy as np

from obscodec.codecs import BytesCodec
from obscodec.errors import CorruptStream
from obscodec.frames.block_coder import BlockCoder, Wanted
from obscodec.frames.kernels.compress import compress_blocks
from obscodec.frames.trained_codecs import TrainedCodecs
from obscodec.layout import Rows
from obscodec.runtime import new_chunk
from obscodec.segments import Bytes, Ints, Segments, joined
from obscodec.statuses import check
from obscodec.streams import NO_PATCHES, NO_VERSIONS, encode_block, frame_scratch, read_blocks, runs_bound
from obscodec.varint import decode_varint, encode_varint

PATCHES = "delta-rle"
_PLAIN = np.array([0, NO_PATCHES], np.uint8)  # the head of a block of version 0 that has its frames as they are


class PatchCoder(BlockCoder[BytesCodec]):
    """Encodes a block as ``delta-rle``: a frame is a patch of the one before it. ``tail`` compresses the block further.

    ``bound`` is the most bytes that the patches of a block can have, ``nbytes`` are those of its frames.
    """

    patches = True

    def __init__(self, tail: BytesCodec | None, bound: int, nbytes: int) -> None:
        self._bound, self._nbytes = bound, nbytes
        self.spec = PATCHES if tail is None else f"{PATCHES}|{tail.spec}"
        self.versions = (
            None if tail is None else TrainedCodecs(tail, lambda of, samples: of.train(Segments.of(samples)))
        )
        self._local = threading.local()  # what a thread decodes with

    def compress(self, compressor: BytesCodec, plain: Bytes) -> Bytes:
        """``varint`` bytes of the stream, then the compressed stream."""
        return joined(encode_varint(len(plain)), compressor.compress(plain.data))

    def decompressed(self, block: Bytes) -> Bytes:
        """See ``BlockCoder.decompressed``: the patches."""
        return np.frombuffer(self._decompress(block), np.uint8)

    def without_long_patches(self, blocks: Segments, references: Rows) -> Segments:
        """See ``BlockCoder.without_long_patches``."""
        plain_nbytes, frame_nbytes = len(_PLAIN) + self._nbytes, references.shape[1]
        long = np.flatnonzero(blocks.lengths >= plain_nbytes)
        if not len(long):
            return blocks
        found, n, none = list(blocks), self._nbytes // frame_nbytes, np.empty(0, np.int64)
        for b in long.tolist():
            patches, plain = Segments.of([found[b][1:]]), np.empty(plain_nbytes, np.uint8)
            plain[: len(_PLAIN)] = _PLAIN
            rows = plain[len(_PLAIN) :].reshape(n, frame_nbytes)
            wanted = Wanted(np.array([0, n]), none, none, rows)
            scratch = frame_scratch(frame_nbytes)
            check(read_blocks(*wanted, patches.addresses(), patches.lengths, references, n, NO_VERSIONS, scratch))
            found[b] = plain
        return Segments.of(found)

    def seal(self, blocks: Segments) -> tuple[Ints, Segments]:
        """See ``BlockCoder.seal``; one kernel compresses all blocks with LZ4."""
        newest, codec = self.versions.current if self.versions else (0, None)
        encoder = codec.lz4_encoder(self._bound) if codec else None
        if encoder is None:
            return super().seal(blocks)
        versions, lengths = np.empty((2, len(blocks)), np.int64)
        # ``malloc`` would keep the memory for the thread in the background.
        out = new_chunk(int((blocks.lengths + blocks.lengths // 255 + 64).sum()))
        compress_blocks(blocks.addresses(), blocks.lengths, newest, *encoder, out, versions, lengths)
        return versions, Segments.packed(out, lengths)

    def read_range(self, blocks: Segments, wanted: Wanted, references: Rows) -> None:
        """Walk each block up to its last frame that is wanted."""
        table, streams = self._lz4_table(), blocks
        if table is None:
            table, streams = NO_VERSIONS, Segments.of([self._decompress(block) for block in blocks])
        addresses = streams.addresses()
        if np.count_nonzero(streams.lengths) < len(streams):  # takes less than ``all``
            addresses = np.where(streams.lengths, addresses, 0)
        frame = frame_scratch(wanted.rows.shape[1])
        check(read_blocks(*wanted, addresses, streams.lengths, references, -1, table, frame))

    def _lz4_table(self) -> Ints | None:
        """Where the kernel decodes blocks of each version in this thread, see ``read_blocks``; None if it can't."""
        codecs = self.codecs
        if getattr(self._local, "codecs", None) is not codecs:
            scratch = {version: codec.lz4_scratch(self._bound) for version, codec in codecs.items()}
            table = np.zeros((1 + max(scratch, default=0), 3), np.int64)
            for version, one in scratch.items():
                table[version] = one[1:] if one else 0
            self._local.scratch, self._local.table = scratch, None if None in scratch.values() else table
            self._local.codecs = codecs
        table_or_none: Ints | None = self._local.table
        return table_or_none

    def lone_nbytes(self, references: Rows, lone: Ints) -> int:
        """See ``BlockCoder.lone_nbytes``; the newest of the lone ones stands for all."""
        if not len(lone):
            return 0
        nbytes, newest = references.shape[1], int(lone[-1])
        runs, literals = np.empty(nbytes + runs_bound(nbytes), np.uint8), np.empty(nbytes, np.uint8)
        others = np.delete(references, newest, axis=0)
        _, runs_nbytes, n_literals = encode_block(references[newest : newest + 1], others, runs, literals)
        patch = joined(runs[:runs_nbytes].data, literals[:n_literals].data)
        compressed = len(patch)
        if self.versions:
            compressed = min(compressed, len(self.compress(self.versions.current[1], patch)))
        return len(lone) * compressed

    def _decompress(self, block: Bytes) -> Bytes | bytes:
        if len(block) == 0:
            return b""
        stream: Bytes | bytes
        version, start = decode_varint(block)
        stream = block[start:]
        if version > 0:
            nbytes, start = decode_varint(stream)
            if nbytes > self._bound:
                raise CorruptStream(f"its patches have {nbytes} bytes, at most {self._bound} are possible")
            stream = self._codec(version).decompress_exactly(stream[start:].data, nbytes)
        if len(stream) == 0:
            raise CorruptStream("it has no patches")
        return stream
