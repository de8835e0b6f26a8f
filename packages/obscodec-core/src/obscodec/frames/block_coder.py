"""BlockCoder: compresses the full blocks of a FrameStore, and reads frames out of blocks.

A stored block is ``varint version``, then its bytes. Every coder can read version 0: patches (``delta-rle``), or the
frames as they are. Any other version is the number of the codec that compressed the block further, which learns while
it works.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, Generic, NamedTuple, Never, TypeVar

import numpy as np

from obscodec.codecs import BytesCodec, Codec
from obscodec.errors import CorruptStream, DictionaryMissing
from obscodec.frames.trained_codecs import TrainedCodecs
from obscodec.layout import Rows
from obscodec.runtime import over_ranges
from obscodec.segments import Bytes, Ints, Segments, joined
from obscodec.varint import encode_varint

_MIN_BYTES_PER_THREAD = 1 << 17  # below, waking a thread costs more than it saves
_NO_CODECS: Final[Mapping[int, Never]] = {}
PLAIN = encode_varint(0)  # the head of a block of version 0


class Wanted(NamedTuple):
    """Which frames to read of which block, and where to put them.

    Attributes:
        starts: ``i64[n_blocks + 1]``: frames ``starts[b]`` to ``starts[b + 1]`` are of block ``b``, at least one.
        places: ``i64[n]``, the place of each frame in its block, rising within a block.
        targets: ``i64[n]``, the row that each frame goes to.
        rows: ``u8[m, nbytes]``, contiguous.
    """

    starts: Ints
    places: Ints
    targets: Ints
    rows: Rows


C = TypeVar("C", bound=Codec)


class BlockCoder(ABC, Generic[C]):
    """Compresses full blocks, and reads frames out of them.

    Attributes:
        spec: the codec, in canonical form.
        patches: whether a frame in an open block is a patch of the one before it.
        versions: the codecs that compress blocks, None if patches are not compressed further.
    """

    spec: str
    patches: bool
    versions: TrainedCodecs[C] | None

    @property
    def codecs(self) -> Mapping[int, C]:
        """The codecs by the versions of the blocks that they compressed: replaced, never changed."""
        return self.versions.by_version if self.versions else _NO_CODECS

    @abstractmethod
    def compress(self, compressor: C, plain: Bytes) -> Bytes:
        """A block after compression."""

    @abstractmethod
    def decompressed(self, block: Bytes) -> Bytes:
        """What :meth:`compress` took for a stored block.

        Raises:
            CorruptStream: the block is damaged.
        """

    @abstractmethod
    def read_range(self, blocks: Segments, wanted: Wanted, references: Rows) -> None:
        """Read some blocks. An empty stream is the block of the frame of zeros."""

    def lone_nbytes(self, references: Rows, lone: Ints) -> int:
        """What frames as far from all ``references`` as the ``lone`` ones are from the others take in blocks."""
        return 0

    def without_long_patches(self, blocks: Segments, references: Rows) -> Segments:
        """Full blocks of version 0, with their frames as they are where patches are no shorter."""
        return blocks

    def seal(self, blocks: Segments) -> tuple[Ints, Segments]:
        """Full blocks of version 0, compressed where that makes them smaller.

        Returns:
            ``i64[n]``, the version of each; and the blocks to store, which may be the given ones.
        """
        versions = np.zeros(len(blocks), np.int64)
        if self.versions is None:
            return versions, blocks
        sealed, (newest, codec) = list(blocks), self.versions.current
        for b, block in enumerate(blocks):
            compressed = self.compress(codec, block[len(PLAIN) :])
            if len(compressed) < len(block) - len(PLAIN):
                versions[b] = newest
                sealed[b] = joined(encode_varint(newest), compressed.data)
        return versions, Segments.of(sealed)

    def note(self, blocks: Segments, versions: Ints, sealed: Segments) -> None:
        """Learn of blocks of version 0 what :meth:`seal` returned for them; they may become samples."""
        if self.versions is not None:
            for b, version in enumerate(versions.tolist()):
                nbytes = int(sealed.lengths[b]) - len(encode_varint(version))
                self.versions.encoded(blocks[b][len(PLAIN) :], nbytes, version)

    def train(self, blocks: Segments) -> None:
        """Train on the samples so far, or again on stored blocks, given in random order; damaged ones don't count."""
        if self.versions is not None and self.versions.learning:
            self.versions.train()
        elif self.versions is not None:
            self.versions.learn_again(self._readable(blocks), self.compress)

    def _readable(self, blocks: Segments) -> Iterator[Bytes]:
        for block in blocks:
            with suppress(CorruptStream, DictionaryMissing):
                yield self.decompressed(block)

    def read(self, blocks: Segments, wanted: Wanted, references: Rows, threads: int) -> None:
        """Decode each block once, and put the wanted frames into their rows.

        Raises:
            CorruptStream: a block is truncated or altered.
        """

        def work(first: int, last: int) -> None:
            part = wanted._replace(starts=wanted.starts[first : last + 1])
            self.read_range(blocks.take(slice(first, last)), part, references)

        n_bytes = len(wanted.places) * wanted.rows.shape[1]
        threads = min(threads, n_bytes // _MIN_BYTES_PER_THREAD)
        try:
            if threads > 1:
                over_ranges(work, len(blocks), threads)
            else:
                self.read_range(blocks, wanted, references)
        except (CorruptStream, DictionaryMissing) as error:
            raise CorruptStream(f"a stored block of {self.spec} can't be decoded: {error}") from error

    def _codec(self, version: int) -> C:
        """The codec that compressed the blocks of a version, from 1 on."""
        codec = self.codecs.get(version)
        if codec is None:
            raise CorruptStream(f"it is of version {version}, which this store does not have")
        return codec


Coder = BlockCoder[BytesCodec] | BlockCoder[Codec]
