"""What each format says about a stream that it can't read."""

import numpy as np
import pytest
import zstandard
from obscodec import CorruptStream, Layout, SpecError, codec, encode
from obscodec.segments import Segments

FOUR = Layout((4,), "uint8")
ZSTD = bytes(encode(np.arange(4, dtype=np.uint8), "zstd").stream)

CASES = [
    ("raw", b"abc", "it has 3 bytes, expected 4"),
    ("raw", b"abcde", "it has 5 bytes, expected 4"),
    ("rle", b"", "it ends inside a varint"),
    ("rle", b"\x80", "it ends inside a varint"),
    ("rle", b"\x80\x00", "a varint is longer than it needs to be, or than 9 bytes"),
    ("rle", b"\xff" * 12, "a varint is longer than it needs to be, or than 9 bytes"),
    ("rle", b"\5\1\1\1\1\1abcde", "it says that it has more runs than elements or bytes"),
    ("rle", b"\xff" * 8 + b"\x7f", "it says that it has more runs than elements or bytes"),
    ("rle", b"\2\0\4ab", "a run is empty, or reaches beyond the end of the item"),
    ("rle", b"\2\3\2ab", "a run is empty, or reaches beyond the end of the item"),
    ("rle", b"\1\5a", "a run is empty, or reaches beyond the end of the item"),
    ("rle", b"\1" + b"\xff" * 8 + b"\x7fa", "a run is empty, or reaches beyond the end of the item"),
    ("rle", b"\1\3a", "its runs end before the item does"),
    ("rle", b"\1\4aa", "bytes are missing or left over between its run lengths and its values"),
    ("rle", b"\0", "it has no runs, and more or fewer bytes behind their number than the item"),
    ("rle", b"\0abc", "it has no runs, and more or fewer bytes behind their number than the item"),
    ("rle", b"\0abcde", "it has no runs, and more or fewer bytes behind their number than the item"),
    ("zstd", b"", "not enough data for frame parameters; need 5 bytes"),
    ("zstd", b"no zstd frame", "cannot get frame parameters: Unknown frame descriptor"),
    ("zstd", ZSTD[:-1], "decompression error: did not decompress full frame"),
    ("zstd", ZSTD + b"x", "compressed input contains 1 bytes of unused data, which is disallowed"),
    ("zstd", zstandard.compress(b"12345"), "its frame says 5 bytes, expected 4"),
    (
        "zstd",
        zstandard.ZstdCompressor(write_content_size=False).compress(b"1234"),
        "its frame does not say how many bytes it holds",
    ),
    ("lz4", b"", "it is no LZ4 block of 4 bytes"),
    ("lz4", b"\x30abc", "it holds 3 bytes, expected 4"),
    ("lz4", b"\x50abcde", "it is no LZ4 block of 4 bytes"),
    ("rle|zstd:3", b"\x90", "it ends inside a varint"),
    ("rle|zstd:3", b"\x20" + ZSTD, "its inner stream has 32 bytes, at most 5 are possible"),
    ("rle|zstd:3", b"\5" + ZSTD, "its frame says 4 bytes, expected 5"),
    ("rle|zstd:3", b"\4" + ZSTD, "it has no runs, and more or fewer bytes behind their number than the item"),
]


@pytest.mark.parametrize(("spec", "stream", "why"), CASES, ids=[f"{s}-{w[:40]}" for s, _, w in CASES])
def test_a_stream_that_can_not_be_read(spec: str, stream: bytes, why: str) -> None:
    tested = codec(spec, FOUR)
    with pytest.raises(CorruptStream) as caught:
        tested.decode_batch(Segments.of([stream]), np.zeros((1, 4), np.uint8))
    assert str(caught.value) == f"{tested.spec} stream of uint8[4] can't be decoded: {why}"


EMPTY = bytes(encode(np.zeros(0, np.uint8), "zstd:3").stream)
PADDING = "the 5 unused bits of its last byte are 0b1, expected 0"


@pytest.mark.parametrize(("spec", "layout", "stream", "why"), [
    ("zstd:3", Layout((0,), "uint8"), EMPTY[:-1], "its frame of 0 bytes is not one empty block"),
    ("bitpack|raw", Layout((3,), "bool"), b"\x0f", PADDING),
])  # fmt: skip
def test_a_stream_of_no_bytes_or_of_bits(spec: str, layout: Layout, stream: bytes, why: str) -> None:
    with pytest.raises(CorruptStream) as caught:
        codec(spec, layout).decode_batch(Segments.of([stream]), np.zeros((1, layout.nbytes), np.uint8))
    assert str(caught.value) == f"{spec} stream of {layout} can't be decoded: {why}"


STREAMS = [("rle", b"\1\2", b""), ("delta-rle", b"\0\3\1\0\1", b"\0")]  # of two equal bytes, or of one and a zero


@pytest.mark.parametrize(("spec", "head", "second"), STREAMS)
def test_streams_in_several_buffers_and_with_gaps(spec: str, head: bytes, second: bytes) -> None:
    tested, n = codec(spec, Layout((1, 2), np.uint8)), len(head) + 1
    first = np.frombuffer(head + b"x" + head + b"y", np.uint8)
    apart = np.zeros(2 * n + 4, np.uint8)
    apart[4::2] = first[:n]
    rows = np.zeros((3, 2), np.uint8)
    tested.decode_batch(Segments((apart[4::2], first), np.array([1, 0, 1]), np.array([n, 0, 0]), np.full(3, n)), rows)
    assert rows.tobytes() == b"".join(value + (second or value) for value in (b"y", b"x", b"x"))
    with pytest.raises(CorruptStream):  # one of several
        tested.decode_batch(Segments.of([first[:n], first[:2]]), rows[:2])


@pytest.mark.parametrize(("spec", "head", "second"), STREAMS)
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(("offset", "more"), [(0, 1), (1, 0), (-1, 0), (9, 0), (2**62, 2**62), (0, -9)])
def test_streams_that_lie_outside_of_their_buffer(
    spec: str, head: bytes, second: bytes, step: int, offset: int, more: int
) -> None:
    """Of one with gaps, a slice would be shorter."""
    tested, n = codec(spec, Layout((1, 2), np.uint8)), len(head) + 1
    buffer = np.frombuffer(head + b"x", np.uint8).repeat(step)[::step]
    outside = Segments((buffer,), np.zeros(1, np.int64), np.array([offset]), np.array([n + more]))
    with pytest.raises(CorruptStream) as caught:
        tested.decode_batch(outside, np.zeros((1, 2), np.uint8))
    assert str(caught.value) == f"{spec} stream of uint8[1, 2] can't be decoded: it lies outside of its buffer"


@pytest.mark.parametrize("spec", ["zstd:1", "zstd:19", "delta-rle|zstd:1", "shuffle|zstd", "lz4", "delta-rle|lz4:6"])
def test_a_damaged_dictionary_is_refused_or_encodes_without_loss(spec):
    """Of a snapshot of a stranger, say. zstd itself would refuse it at the first item, as if there were no memory."""
    frames = np.random.default_rng(0).integers(0, 9, (200, 24, 24, 3), np.uint8)
    fitted = codec(spec, Layout(frames.shape[1:], np.uint8)).fit(frames)
    n_refused = 0
    for at in range(8, 300):
        damaged = bytearray(fitted.dictionary)
        damaged[at] ^= 0xFF
        try:
            taken = fitted.with_dictionary(bytes(damaged))
        except SpecError:
            n_refused += 1
            continue
        np.testing.assert_array_equal(taken.decode(taken.encode(frames[0])), frames[0])
    assert (n_refused > 50) == ("zstd" in spec)


def test_a_damaged_dictionary_is_named():
    samples = np.random.default_rng(0).integers(0, 9, (200, 1000), np.uint8)
    fitted = codec("zstd:1", Layout((1000,), np.uint8)).fit(samples)
    damaged = fitted.dictionary[:8] + bytes(100) + fitted.dictionary[108:]
    with pytest.raises(SpecError, match=r"^zstd:1 can't use a dictionary of \d+ bytes, which is damaged: use fit$"):
        fitted.with_dictionary(damaged)
