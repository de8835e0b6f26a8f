"""How the blocks of a FrameStore are encoded and read.

A stored block is ``varint version``, then its bytes. Version 0 is what every coder can read: patches (``delta-rle``) or
the frames as they are. Others are those of the codec that compressed it further, which learns while it works.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from obscodec.bytes_codec import BytesCodec
from obscodec.codec import Codec
from obscodec.errors import CorruptStream, DictionaryMissing, SpecError
from obscodec.kernels.blocks import check, copy_frames, first_bytes, read_blocks
from obscodec.layout import Layout, Rows
from obscodec.open_blocks import BlockContent
from obscodec.parallel import over_ranges
from obscodec.registry import codec
from obscodec.segments import Bytes, Ints, Segments
from obscodec.varint import decode_varint, encode_varint
from obscodec.versions import Versions

_MIN_BYTES_PER_THREAD = 1 << 17  # below, waking a thread costs more than it saves
_PLAIN = encode_varint(0)
_PATCHES = "delta-rle"
_SCRATCH_NBYTES = 1 << 22


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
    versions: Versions[C] | None

    @abstractmethod
    def plain(self, content: BlockContent) -> Bytes:
        """A block as it is before compression, a copy or a view."""

    @abstractmethod
    def compress(self, compressor: C, plain: Bytes) -> Bytes:
        """A full block, compressed."""

    @abstractmethod
    def read_range(self, blocks: Segments, wanted: Wanted, references: Rows) -> None:
        """Read some blocks. An empty one holds frames of zeros."""

    def open(self, content: BlockContent) -> Bytes:
        """A block of version 0, a copy."""
        return _joined(_PLAIN, self.plain(content).data)

    def seal(self, content: BlockContent) -> Bytes:
        """A full block, as it is stored: never larger than a block of version 0."""
        if self.versions is None:
            return self.open(content)
        plain = self.plain(content)
        version = self.versions.newest
        compressed = self.compress(self.versions[version], plain)
        if len(compressed) >= len(plain):
            return self.open(content)
        return _joined(encode_varint(version), compressed.data)

    def stored(self, block: Bytes, content: BlockContent) -> None:
        """Learn that a sealed block is stored now, and from what is in it."""
        if self.versions is not None:
            version, start = decode_varint(block)
            if version:
                self.versions.encoded(self.plain(content), len(block) - start)

    def dropped(self, blocks: Segments) -> None:
        """Learn that stored blocks are gone."""
        if self.versions is not None:
            for block in blocks:
                version, _ = decode_varint(block)
                if version:
                    self.versions.dropped(version)

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


class PatchBlocks(BlockCoder[BytesCodec]):
    """``delta-rle``: a frame is a patch of the one before it. A block of patches can be compressed further."""

    patches = True

    def __init__(self, tail: BytesCodec | None, bound: int) -> None:
        self._bound = bound  # bytes of the patches of a block
        self.spec = _PATCHES if tail is None else f"{_PATCHES}|{tail.spec}"
        self.versions = None if tail is None else Versions(tail, _train)

    def plain(self, content: BlockContent) -> Bytes:
        """A stream of ``delta-rle``."""
        return _joined(self._head(content), content.runs.data, content.literals.data)

    def open(self, content: BlockContent) -> Bytes:
        """A block of version 0, a copy."""
        return _joined(_PLAIN, self._head(content), content.runs.data, content.literals.data)

    @staticmethod
    def _head(content: BlockContent) -> bytes:
        return encode_varint(content.reference) + encode_varint(len(content.runs))

    def compress(self, compressor: BytesCodec, plain: Bytes) -> Bytes:
        """``varint`` bytes of the stream, then that compressed."""
        return _joined(encode_varint(len(plain)), compressor.compress(plain.data))

    def read_range(self, blocks: Segments, wanted: Wanted, references: Rows) -> None:
        """Walk each block up to the last frame that is wanted of it."""
        if self.versions is None:
            streams, version_nbytes = blocks, len(_PLAIN)
        else:
            streams, version_nbytes = Segments.of([self._decompress(block) for block in blocks]), 0
        addresses = streams.addresses()
        addresses[streams.lengths == 0] = 0
        check(read_blocks(*wanted, addresses, streams.lengths, references, -1, version_nbytes))

    def _decompress(self, block: Bytes) -> Bytes | bytes:
        if len(block) == 0:
            return b""
        compressor, compressed = self._version(block)
        if compressor is None:
            stream: Bytes | bytes = compressed
        else:
            nbytes, start = decode_varint(compressed)
            if nbytes > self._bound:
                raise CorruptStream(f"its patches have {nbytes} bytes, at most {self._bound} are possible")
            stream = compressor.decompress_exactly(compressed[start:].data, nbytes)
        if len(stream) == 0:
            raise CorruptStream("it has no patches")
        return stream


class CodecBlocks(BlockCoder[Codec]):
    """Any codec, for items of ``block_frames`` frames."""

    patches = False

    def __init__(self, block_codec: Codec) -> None:
        self.spec = block_codec.spec
        self.layout = block_codec.layout
        self.versions = Versions(block_codec, _fit)

    def plain(self, content: BlockContent) -> Bytes:
        """The frames, one behind the other."""
        return content.literals

    def compress(self, compressor: Codec, plain: Bytes) -> Bytes:
        """A stream of the codec."""
        return compressor.encode_batch(plain[None], np.empty(compressor.bound(), np.uint8))[0]

    def read_range(self, blocks: Segments, wanted: Wanted, references: Rows) -> None:
        """Decode some blocks at a time, and copy the wanted frames out of them."""
        step = max(1, _SCRATCH_NBYTES // self.layout.nbytes)
        for first in range(0, len(blocks), step):
            piece = blocks.take(slice(first, first + step))
            self._read_piece(piece, wanted._replace(starts=wanted.starts[first : first + len(piece) + 1]))

    def _read_piece(self, blocks: Segments, wanted: Wanted) -> None:
        addresses = blocks.addresses()
        compressed = np.flatnonzero(first_bytes(addresses, blocks.lengths))
        plain = np.empty((len(compressed), self.layout.nbytes), np.uint8)
        for row, b in zip(plain, compressed.tolist(), strict=True):
            compressor, stream = self._version(blocks[b])
            if compressor is None:
                raise CorruptStream("its version is written in more bytes than it needs")
            compressor.decode_rows(Segments.packed(stream, np.array([len(stream)])), row[None])
        addresses, lengths = addresses + len(_PLAIN), blocks.lengths - len(_PLAIN)
        addresses[blocks.lengths == 0] = 0
        addresses[compressed] = plain.ctypes.data + np.arange(len(compressed)) * self.layout.nbytes
        lengths[compressed] = self.layout.nbytes
        check(copy_frames(*wanted, addresses, lengths))


def block_coder(spec: str, frame: Layout, block_frames: int) -> BlockCoder[BytesCodec] | BlockCoder[Codec]:
    """The coder that ``spec`` names, for blocks of ``block_frames`` frames of the layout ``frame``.

    Raises:
        SpecError: the spec names no codec, or one that can't stand there.
    """
    block_codec = codec(spec, Layout((block_frames, *frame.shape), frame.dtype))
    if block_codec.spec == _PATCHES:
        return PatchBlocks(None, block_codec.bound())
    if not block_codec.spec.startswith(f"{_PATCHES}|"):
        return CodecBlocks(block_codec)
    tail = codec(block_codec.spec.removeprefix(f"{_PATCHES}|"), Layout((0,), np.uint8))
    if not isinstance(tail, BytesCodec):
        raise SpecError(f"{spec!r} compresses patches more than once, use one codec behind {_PATCHES!r}")
    inner_bound = codec(_PATCHES, block_codec.layout).bound()
    return PatchBlocks(tail, inner_bound)


def _joined(*parts: bytes | memoryview) -> Bytes:
    """One behind the other. Not by ``np.concatenate``: numpy keeps seven freed arrays of each small size."""
    return np.frombuffer(b"".join(parts), np.uint8)


def _train(tail: BytesCodec, samples: Sequence[Bytes]) -> BytesCodec:
    return tail.train(Segments.of(samples))


def _fit(block_codec: Codec, samples: Sequence[Bytes]) -> Codec:
    return block_codec.fit(block_codec.layout.tensors(np.stack(samples)))
