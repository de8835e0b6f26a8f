"""What is particular to the codecs that other libraries implement: levels, bounds, dictionaries, other readers."""

import gzip
import tracemalloc
import zlib
from collections.abc import Iterator

import lz4.frame
import numpy as np
import pytest
import zstandard
from atari_frames import frames
from obscodec import Layout, codec, encode
from obscodec.codecs import BytesCodec

LEVELS = {
    "zstd": [-100, -50, -7, -1, 1, 3, 10, 19, 22],
    "lz4": [-100, -1, 1, 3, 9, 12],
    "lz4-frame": [-100, -1, 0, 3, 9, 16],
    "gzip": list(range(10)),
    "igzip": list(range(4)),
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
    assert specs == {"zstd": "zstd:3", "lz4": "lz4", "lz4-frame": "lz4-frame:0", "gzip": "gzip:6", "igzip": "igzip:2"}


def test_other_readers_of_the_formats_read_them() -> None:
    x = np.arange(1000, dtype=np.uint16)
    plain = x.tobytes()
    assert zstandard.decompress(encode(x, "zstd").stream) == plain
    assert lz4.frame.decompress(encode(x, "lz4-frame").stream.tobytes()) == plain
    for spec in ("gzip", "gzip:0", "igzip", "igzip:0"):
        assert gzip.decompress(encode(x, spec).stream.tobytes()) == plain


def test_gzip_and_igzip_read_each_other() -> None:
    layout = Layout((3000,), "uint8")
    one, other = codec("gzip:9", layout), codec("igzip:0", layout)
    noise = np.random.default_rng(0).integers(0, 256, (1, 3000), np.uint8)
    for writer, reader in ((one, other), (other, one)):
        rows = np.empty_like(noise)
        reader.decode_batch(writer.encode_batch(noise, np.empty(writer.bound(), np.uint8)), rows)
        assert np.array_equal(rows, noise)
    assert one.format == other.format


def test_what_gzip_can_not_shrink_is_stored() -> None:
    noise = np.random.default_rng(0).integers(0, 256, 70_000, np.uint8)
    stream = encode(noise, "igzip:0").stream
    assert stream.nbytes == 70_000 + 18 + 2 * 5
    assert zlib.decompress(stream, 31) == noise.tobytes()


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


def test_a_codec_without_dictionaries_stays_the_same_when_fitted() -> None:
    layout = Layout((4,), "uint8")
    for spec in ("raw", "rle", "gzip", "shuffle|gzip", "rle|lz4-frame"):
        assert codec(spec, layout).fit(np.zeros((3, 4), np.uint8)) == codec(spec, layout)


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
