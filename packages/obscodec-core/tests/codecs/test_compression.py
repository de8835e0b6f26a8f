"""What is particular to the codecs that other libraries implement: levels, bounds, dictionaries, other readers."""

import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import lz4.block
import numpy as np
import pytest
import zstandard
from atari_frames import frames
from obscodec import CorruptStream, Layout, codec, encode
from obscodec.codecs import BytesCodec

LEVELS = {
    "zstd": [-100, -50, -7, -1, 1, 3, 10, 19, 22],
    "lz4": [-100, -1, 1, 3, 9, 12],
}
SPECS = ["lz4", *(f"{name}:{level}" for name, levels in LEVELS.items() for level in levels)]


def hard_to_compress() -> Iterator[bytes]:
    """Sizes around those where formats begin a new block."""
    rng = np.random.default_rng(0)
    for size in (0, 1, 2, 15, 255, 256, 4096, 65_535, 65_536, 65_537, 131_071, 131_073, 262_145):
        yield rng.bytes(size)
        yield bytes(rng.integers(144, 256, size, np.uint8))  # the longer codes of fixed Huffman blocks


@pytest.mark.parametrize("spec", SPECS)
def test_the_bound_holds_where_nothing_can_be_saved(spec: str) -> None:
    for plain in hard_to_compress():
        if len(plain) > 70_000 and spec in ("zstd:22", "zstd:19"):
            continue  # slow, and the same format
        tested = codec(spec, Layout((len(plain),), "uint8"))
        assert isinstance(tested, BytesCodec)
        stream = tested.compress(memoryview(plain))
        assert len(stream) <= tested.bound()
        assert tested.decompress_exactly(memoryview(stream), len(plain)) == plain


def test_default_levels() -> None:
    layout = Layout((2,), "uint8")
    specs = {name: codec(name, layout).spec for name in LEVELS}
    assert specs == {"zstd": "zstd:3", "lz4": "lz4"}


def test_other_readers_of_the_formats_read_them() -> None:
    x = np.arange(1000, dtype=np.uint16)
    plain = x.tobytes()
    assert zstandard.decompress(encode(x, "zstd").stream) == plain
    assert lz4.block.decompress(encode(x, "lz4").stream, uncompressed_size=2000) == plain


def test_a_dictionary_makes_frames_smaller_and_stays_within_the_bound() -> None:
    played = frames("Pong", 1200, seed=0)
    plain = codec("zstd:1", Layout((84, 84), "uint8"))
    fitted = plain.fit(played[:1000])
    assert 0 < len(fitted.dictionary) <= 16 * 1024
    rows = plain.layout.rows(played[1000:])
    out = np.empty(len(rows) * plain.bound(), np.uint8)
    without, with_dictionary = (c.encode_batch(rows, out.copy()) for c in (plain, fitted))
    assert with_dictionary.nbytes < 0.85 * without.nbytes
    noise = np.random.default_rng(0).integers(0, 256, (1, 7056), np.uint8)
    for level in (-100, -1, 1, 19):
        trained = codec(f"zstd:{level}", plain.layout).with_dictionary(fitted.dictionary)
        assert trained.encode_batch(noise, np.empty(trained.bound(), np.uint8)).nbytes <= trained.bound()


def test_training_is_repeatable() -> None:
    played = frames("Pong", 1200, seed=0)
    plain = codec("zstd:1", Layout((84, 84), "uint8"))
    assert plain.fit(played) == plain.fit(played)
    assert plain.fit(played) != plain


def test_a_frame_that_lies_about_its_size_allocates_nothing() -> None:
    huge = codec("zstd", Layout((2**40,), "uint8"))
    assert isinstance(huge, BytesCodec)
    lying = zstandard.compress(b"a")
    with pytest.raises(ValueError, match=f"its frame says 1 bytes, expected {2**40}"):
        huge.decompress(memoryview(lying), 2**40)


@dataclass(frozen=True)
class Zlib(BytesCodec):
    """A codec of bytes without dictionaries, whose decompressor stops one byte behind the item."""

    name: ClassVar[str] = "zlib"
    format: ClassVar[str] = "zlib@1"

    def max_compressed(self, nbytes: int) -> int:
        return 2 * nbytes + 64

    def compress(self, plain: memoryview) -> bytes:
        return zlib.compress(plain)

    def decompress(self, stream: memoryview, nbytes: int) -> bytes:
        return zlib.decompressobj().decompress(stream, nbytes + 1)


def test_a_codec_without_dictionaries_stays_the_same_when_fitted() -> None:
    layout = Layout((4,), "uint8")
    for tested in (Zlib(layout), *(codec(spec, layout) for spec in ("raw", "rle", "shuffle|rle"))):
        assert tested.fit(np.zeros((3, 4), np.uint8)) == tested


def test_a_stream_of_more_bytes_than_the_item_is_refused() -> None:
    with pytest.raises(CorruptStream, match=r"it holds more than 4 bytes$"):
        Zlib(Layout((4,), "uint8")).decompress_exactly(memoryview(zlib.compress(bytes(10**6))), 4)


@pytest.mark.parametrize("spec", ["pred", "palette"])
def test_training_takes_little_memory_beside_its_samples(spec: str) -> None:
    """A mapping, which goes back to the operating system at once, is not counted by tracemalloc."""
    rng = np.random.default_rng(0)
    colours, places = rng.integers(256, size=(100, 3), dtype=np.uint8), rng.integers(100, size=(50, 4, 84, 84))
    samples = colours[np.sort(places)]
    tested = codec(spec, Layout(samples.shape[1:], np.uint8))
    assert tested.fit(samples).dictionary  # compiles
    tracemalloc.start()
    try:
        assert tested.fit(samples).dictionary
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * samples.nbytes
