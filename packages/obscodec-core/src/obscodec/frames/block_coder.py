"""What the blocks of a FrameStore have in common, however they are encoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from obscodec.codecs import BytesCodec, Codec, decode_varint, encode_varint
from obscodec.errors import CorruptStream, DictionaryMissing
from obscodec.frames.open_blocks import BlockContent, OpenBlocks
from obscodec.frames.trained_codecs import TrainedCodecs
from obscodec.layout import Rows
from obscodec.runtime import over_ranges
from obscodec.segments import Bytes, Ints, Segments, joined

_MIN_BYTES_PER_THREAD = 1 << 17  # below, waking a thread costs more than it saves
PLAIN = encode_varint(0)  # the version that every coder can read


class Wanted(NamedTuple):
    """Which frames to read of which block, and where to put them.

    Attributes:
        starts: ``i64[n_blocks + 1]``: the entries ``starts[b]`` to ``starts[b + 1]`` are of block ``b``.
        places: ``i64[n]``, the place in its block of each frame, rising within a block.
        targets: ``i64[n]``, the row of ``rows`` that it goes to.
        rows: ``u8[m, nbytes]``, contiguous.
    """

    starts: Ints
    places: Ints
    targets: Ints
    rows: Rows


class Sealed(NamedTuple):
    """A full block, encoded.

    Attributes:
        version: of the codec that compressed it, 0 for none.
        block: ``u8[:]``, as it is stored: the version as a varint, then the bytes.
        plain: ``u8[:]``, what was compressed, a copy or a view.
    """

    version: int
    block: Bytes
    plain: Bytes


class BlockExport(NamedTuple):
    """Blocks of one store, for another one with such a coder.

    Attributes:
        blocks: the blocks, none of them empty.
        opened: ``bool[n]``, whether a block is one that frames are still added to.
        n_wanted: ``i64[n]``, how many frames are wanted of each.
        last: ``i64[n]``, the last place that is wanted of each.
        references: ``u8[n_references, nbytes]``, the reference frames there.
        versions: the codec that compresses blocks there, None if patches are left as they are.
    """

    blocks: Segments
    opened: npt.NDArray[np.bool_]
    n_wanted: Ints
    last: Ints
    references: Rows
    versions: TrainedCodecs[BytesCodec] | TrainedCodecs[Codec] | None

    def take(self, which: npt.NDArray[np.bool_]) -> BlockExport:
        """Some of the blocks."""
        opened, n_wanted, last = self.opened[which], self.n_wanted[which], self.last[which]
        return self._replace(blocks=self.blocks.take(which), opened=opened, n_wanted=n_wanted, last=last)


C = TypeVar("C", bound=Codec)


class BlockCoder(ABC, Generic[C]):
    """Encodes full blocks, and reads frames out of encoded ones.

    Attributes:
        spec: the codec, in canonical form.
        patches: whether it takes frames as patches of each other.
        versions: the codec that compresses blocks, None if patches are left as they are.
    """

    spec: str
    patches: bool
    versions: TrainedCodecs[C] | None

    @abstractmethod
    def plain(self, content: BlockContent) -> Bytes:
        """A block as it is before compression, a copy or a view."""

    @abstractmethod
    def compress(self, compressor: C, plain: Bytes) -> Bytes:
        """A full block, compressed."""

    @abstractmethod
    def read_range(self, blocks: Segments, wanted: Wanted, references: Rows) -> None:
        """Read some blocks. An empty one holds frames of zeros."""

    def export_blocks(self, blocks: Segments) -> Segments:
        """Blocks as the coder of another store takes them.

        Raises:
            CorruptStream: a block is damaged.
        """
        return blocks

    @abstractmethod
    def accepts(self, export: BlockExport) -> npt.NDArray[np.bool_]:
        """``bool[n]``: which blocks of another store to take as they are.

        One of which few frames are wanted would take more memory than these.

        Raises:
            CorruptStream: a block is damaged.
        """

    @abstractmethod
    def take(self, export: BlockExport, open_blocks: OpenBlocks) -> Segments:
        """Blocks that it accepts, as they are stored here, from which the coder has learned.

        Args:
            export: the blocks.
            open_blocks: with the reference frames here; some may join.

        Raises:
            CorruptStream: a block is damaged.
        """

    def open(self, content: BlockContent) -> Bytes:
        """A block of version 0, a copy."""
        return joined(PLAIN, self.plain(content).data)

    def seal(self, content: BlockContent) -> Sealed:
        """A full block, as it is stored: never larger than a block of version 0."""
        if self.versions is None:
            block = self.open(content)
            return Sealed(0, block, block[len(PLAIN) :])
        return self._sealed(self.versions, self.plain(content))

    def _sealed(self, versions: TrainedCodecs[C], plain: Bytes) -> Sealed:
        compressed = self.compress(versions[versions.newest], plain)
        if len(compressed) >= len(plain):
            return Sealed(0, joined(PLAIN, plain.data), plain)
        return Sealed(versions.newest, joined(encode_varint(versions.newest), compressed.data), plain)

    def learn(self, sealed: Sealed) -> None:
        """Record a stored block, and train on it if the codec compressed it."""
        if self.versions is not None and sealed.version:
            self.versions.encoded(sealed.plain, len(sealed.block) - len(encode_varint(sealed.version)))

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

    def _version(self, block: Bytes) -> tuple[C | None, Bytes]:
        """What compressed a block, None for nothing, and the compressed bytes."""
        version, start = decode_varint(block)
        if version == 0:
            return None, block[start:]
        if self.versions is None or version not in self.versions:
            raise CorruptStream(f"it is of version {version}, which this store does not have")
        return self.versions[version], block[start:]
