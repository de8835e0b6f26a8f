"""``delta-rle``: a decoder written from its document, hostile streams, sizes on real frames."""

import random
import tracemalloc

import numpy as np
import pytest
from atari_frames import frames
from fenced import fenced
from hostile_messages import changed
from hypothesis import given, settings
from hypothesis import strategies as st
from obscodec import CorruptStream, EncodedTensor, Layout, SpecError, codec, decode
from obscodec.codecs import Codec, codec_from_config
from obscodec.codecs.chain import TailedCodec
from obscodec.codecs.formats.delta_rle import DeltaRle
from obscodec.segments import Segments
from obscodec.statuses import check
from obscodec.streams import NO_VERSIONS, encode_patch, frame_scratch, read_blocks, runs_bound
from obscodec.streams.reference_frames import encode_block
from obscodec.varint import decode_varint, encode_varint

GUARD = 0xA5
GAMES = ["MsPacman", "Pong", "Breakout"]


def decode_as_documented(stream: bytes, n_frames: int, references: np.ndarray) -> np.ndarray:
    """``u8[n_frames, nbytes]``, as ``docs/formats/delta-rle.md`` says it, one byte or one run at a time."""
    src = np.frombuffer(stream, np.uint8)
    reference, at = decode_varint(src)
    if reference == 127:
        if len(src) - at != n_frames * references.shape[1]:
            raise CorruptStream
        return src[at:].reshape(n_frames, -1) if n_frames else np.empty((0, references.shape[1]), np.uint8)
    runs_nbytes, at = decode_varint(src, at)
    if reference >= len(references) or runs_nbytes > len(src) - at:
        raise CorruptStream
    runs, literals = src[at : at + runs_nbytes], src[at + runs_nbytes :]
    at = used = 0
    frame = references[reference].copy()
    decoded = np.empty((n_frames, len(frame)), np.uint8)
    for k in range(n_frames):
        count, at = decode_varint(runs, at)
        position = 0
        for _ in range(count):
            skip, at = decode_varint(runs, at)
            length, at = decode_varint(runs, at)
            position += skip
            if position + length > len(frame) or used + length > len(literals):
                raise CorruptStream
            frame[position : position + length] = literals[used : used + length]
            position += length
            used += length
        decoded[k] = frame
    if at != len(runs) or used != len(literals):
        raise CorruptStream
    return decoded


class Decoder:
    """The compiled decoder, between memory that it must not touch."""

    def __init__(self, tested: Codec, max_stream_nbytes: int) -> None:
        assert isinstance(tested, DeltaRle)
        self.tested = tested
        self.streams = fenced(max_stream_nbytes)
        self.memory = fenced(64 + tested.layout.nbytes)
        self.rows = self.memory[64:].reshape(1, -1)
        self.references = np.frombuffer(bytes(tested.frame_nbytes) + tested.dictionary, np.uint8)
        self.references = self.references.reshape(-1, tested.frame_nbytes)

    def __call__(self, stream: bytes) -> bytes | None:
        """The item; None if the stream is refused."""
        placed = self.streams[len(self.streams) - len(stream) :]
        placed[:] = np.frombuffer(stream, np.uint8)
        self.memory[:] = GUARD
        try:
            self.tested.decode_batch(Segments.packed(placed, np.array([len(placed)])), self.rows)
        except CorruptStream:
            return None
        finally:
            assert (self.memory[:64] == GUARD).all()
        return self.rows.tobytes()

    def expected(self, stream: bytes) -> bytes | None:
        try:
            return decode_as_documented(stream, self.tested.n_frames, self.references).tobytes()
        except CorruptStream:
            return None

    def compare(self, stream: bytes) -> bool:
        """Whether the stream is decoded, after a check that the document has it so."""
        decoded = self(stream)
        assert decoded == self.expected(stream), stream.hex(" ")
        return decoded is not None


def encode(tested: Codec, block: np.ndarray) -> bytes:
    return tested.encode(block).stream.tobytes()


def nbytes_of_patches(block: np.ndarray) -> int:
    """What a stream of patches takes; each is written into no more room than one needs."""
    nbytes = block.shape[1]
    runs, literals = fenced(runs_bound(nbytes)), fenced(nbytes)
    n_runs = n_literals = 0
    for old, new in zip([np.zeros(nbytes, np.uint8), *block], block, strict=False):
        room = runs.ctypes.data, literals.ctypes.data
        of_patch = encode_patch(old.ctypes.data, new.ctypes.data, nbytes, *room)
        n_runs, n_literals = n_runs + of_patch[0], n_literals + of_patch[1]
    return len(encode_varint(0)) + len(encode_varint(n_runs)) + n_runs + n_literals


def fitted(played: np.ndarray, block_frames: int) -> Codec:
    blocks = played.reshape(-1, block_frames, *played.shape[1:])
    return codec("delta-rle", Layout(blocks.shape[1:], played.dtype)).fit(blocks)


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("block_frames", [1, 4, 16])
def test_real_frames_decode_as_documented(game: str, block_frames: int) -> None:
    played = frames(game, 320, seed=0)
    tested = fitted(played, block_frames)
    decoder = Decoder(tested, tested.bound())
    for block in played.reshape(-1, block_frames, 84, 84)[:40]:
        stream = encode(tested, block)
        assert decoder(stream) == block.tobytes() == decoder.expected(stream)


@st.composite
def blocks(draw: st.DrawFn) -> np.ndarray:
    """Blocks of frames that change in few places, in many, or everywhere."""
    n_frames, nbytes = draw(st.integers(0, 17)), draw(st.integers(1, 600))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    first = rng.integers(256, size=nbytes, dtype=np.uint8) * draw(st.booleans())
    changed = rng.random((n_frames, nbytes)) < draw(st.sampled_from([0, 0.003, 0.05, 0.2, 0.5, 1]))
    return first + np.cumsum(changed, axis=0, dtype=np.uint8)


@given(blocks())
@settings(max_examples=200, deadline=None)
def test_made_up_frames_decode_as_documented(block: np.ndarray) -> None:
    tested = codec("delta-rle", Layout.of(block))
    stream = encode(tested, block)
    assert len(stream) == min(nbytes_of_patches(block), 1 + block.size)
    assert (stream[0] == 127) == (nbytes_of_patches(block) > 1 + block.size)
    references = np.zeros((1, block.shape[1]), np.uint8)
    assert decode_as_documented(stream, len(block), references).tobytes() == block.tobytes()
    assert tested.decode(tested.encode(block)).tobytes() == block.tobytes()


@pytest.mark.parametrize("gap", [0, 1, 2, 3, 4, 5, 7, 127, 128])
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 127, 128, 16_384])
def test_runs_and_gaps_of_every_size(gap: int, length: int) -> None:
    changed = np.resize(np.repeat([True, False], [length, gap]), 3 * (length + gap) + 5)
    block = np.stack([changed, ~changed, changed]).astype(np.uint8)
    tested = codec("delta-rle", Layout.of(block))
    stream = encode(tested, block)
    assert len(stream) <= tested.bound()
    decoder = Decoder(tested, len(stream))
    assert decoder(stream) == block.tobytes() == decoder.expected(stream)


def test_no_patch_of_long_runs_exceeds_its_bound() -> None:
    """Each run of 2 MiB takes five bytes, and the gap before it is four."""
    frame = np.ones((45, (1 << 21) + 4), np.uint8)
    frame[:, -4:] = 0
    frame = frame.reshape(1, -1)
    tested = codec("delta-rle", Layout.of(frame))
    assert frame.size + 27 + 18 < nbytes_of_patches(frame) <= tested.read_bound()
    assert tested.encode(frame).stream.nbytes == tested.bound() == 1 + frame.size


@pytest.mark.parametrize("game", GAMES)
def test_some_frames_of_a_block_are_those_of_the_whole(game: str) -> None:
    played = frames(game, 320, seed=0).copy()
    tested = fitted(played, 16)
    played[48:64] = np.random.default_rng(1).integers(256, size=(16, 84, 84))  # which has no patches
    assert isinstance(tested, DeltaRle)
    references = np.frombuffer(bytes(tested.frame_nbytes) + tested.dictionary, np.uint8).reshape(-1, 84 * 84)
    streams = Segments.of([encode(tested, block) for block in played.reshape(-1, 16, 84, 84)])
    addresses = streams.addresses().astype(np.int64)
    assert [stream[0] == 127 for stream in streams] == [k == 3 for k in range(20)]
    rng = np.random.default_rng(0)
    for _ in range(50):
        per_block = [np.sort(rng.integers(16, size=rng.integers(1, 6))) for _ in range(len(streams))]
        starts = np.cumsum([0, *map(len, per_block)])
        places = np.concatenate(per_block)
        targets = rng.permutation(len(places))
        rows = np.full((len(places), 84 * 84), GUARD, np.uint8)
        where = addresses, streams.lengths, references
        check(read_blocks(starts, places, targets, rows, *where, -1, NO_VERSIONS, frame_scratch(84 * 84)))
        expected = played.reshape(-1, 16, 84 * 84)[np.repeat(np.arange(20), np.diff(starts)), places]
        assert np.array_equal(rows[targets], expected)


def test_a_reader_of_the_first_frames_does_not_look_behind_them() -> None:
    stream = np.array([0, 9, 1, 0, 1, 200, 200, 200, 200, 200, 200, 5], np.uint8)
    rows = np.zeros((1, 4), np.uint8)
    one = np.array([0, 1]), np.zeros(1, np.int64), np.zeros(1, np.int64), rows
    where = np.array([stream.ctypes.data]), np.array([len(stream)]), np.zeros((1, 4), np.uint8)
    check(read_blocks(*one, *where, -1, NO_VERSIONS, frame_scratch(4)))
    assert rows.tolist() == [[5, 0, 0, 0]]


def test_frames_are_decoded_within_the_room_that_is_asked_for() -> None:
    """Short runs at the end of a frame are written eight bytes at a time, into the padding behind it."""
    block = np.zeros((12, 9), np.uint8)
    block[:, -1] = np.arange(1, 13)
    stream = codec("delta-rle", Layout.of(block)).encode(block).stream
    rows, all_frames = np.zeros_like(block), np.empty(0, np.int64)
    where = np.array([stream.ctypes.data]), np.array([len(stream)]), np.zeros((1, 9), np.uint8)
    room = fenced(len(frame_scratch(9)))
    check(read_blocks(np.array([0, 12]), all_frames, all_frames, rows, *where, 12, NO_VERSIONS, room))
    assert np.array_equal(rows, block)


@pytest.mark.parametrize("nbytes", [1 << 24, 1 << 40, 1 << 60])
def test_frames_that_are_not_there_take_no_memory(nbytes: int) -> None:
    layout = Layout((0, nbytes), np.uint8)
    message = EncodedTensor(np.zeros(2, np.uint8), layout, "delta-rle").to_bytes()
    assert decode(EncodedTensor.from_bytes(message)).shape == (0, nbytes)
    tested = codec("delta-rle", layout)
    for stream, why in [(b"\0", SHORT), (b"\0\0\0", LEFT_OVER), (b"\0\1\0", LEFT_OVER), (b"\1\0", NO_REFERENCE)]:
        with pytest.raises(CorruptStream) as caught:
            tested.decode_batch(Segments.of([stream]), np.empty((1, 0), np.uint8))
        assert str(caught.value) == f"delta-rle stream of uint8[0, {nbytes}] can't be decoded: {why}"


def test_references_are_the_dictionary() -> None:
    """The worked example in ``docs/formats/delta-rle.md``."""
    block = np.array([[0, 0, 0, 0, 0, 7, 0, 0], [0, 0, 0, 0, 0, 7, 0, 9], [0, 0, 0, 0, 0, 7, 0, 9]], np.uint8)
    tested = codec("delta-rle", Layout.of(block)).with_dictionary(block[0].tobytes())
    assert encode(tested, block).hex(" ") == "01 05 00 01 07 01 00 09"
    assert np.array_equal(codec_from_config(tested.config()).decode(tested.encode(block)), block)


def test_references_are_at_most_126_whole_frames() -> None:
    tested = codec("delta-rle", Layout((2, 16), np.uint8))
    references = np.random.default_rng(0).integers(256, size=(127, 16), dtype=np.uint8)
    most = tested.with_dictionary(references[:126].tobytes())
    assert most.encode(references[[125, 125]]).stream.tobytes().hex(" ") == "7e 02 00 00"
    for dictionary, text in (
        (b"12345", "delta-rle takes a dictionary of whole frames of 16 bytes, got 5 bytes"),
        (references.tobytes(), "delta-rle takes a dictionary of at most 126 frames, got 127"),
    ):
        with pytest.raises(SpecError, match=f"^{text}$"):
            tested.with_dictionary(dictionary)


def test_a_chain_reads_patches_that_are_longer_than_their_frames() -> None:
    """As encoders wrote them before frames could stay as they are."""
    item = np.arange(1, 11, dtype=np.uint8).reshape(10, 1)
    patches = b"\0\x1e" + b"\1\0\1" * 10 + item.tobytes()
    tested = codec("delta-rle|zstd:3", Layout.of(item))
    assert isinstance(tested, TailedCodec)
    assert len(patches) > tested.inner.bound()
    stream = encode_varint(len(patches)) + tested.tail.compress(memoryview(patches))
    decoded = np.zeros((1, 10), np.uint8)
    tested.decode_batch(Segments.of([stream]), decoded)
    assert np.array_equal(decoded, item.T)


def test_fit_keeps_frames_that_are_far_from_each_other() -> None:
    rng = np.random.default_rng(0)
    scenes = rng.integers(256, size=(5, 1, 84, 84), dtype=np.uint8)
    samples = np.repeat(scenes[[0, 1, 0, 2, 3, 3, 4]], 2, axis=1)
    tested = codec("delta-rle", Layout((2, 84, 84), np.uint8)).fit(samples)
    assert tested.dictionary == scenes.tobytes()
    assert tested.encode(samples[5]).stream.tobytes().hex(" ") == "04 02 00 00"
    assert len(tested.fit(rng.integers(256, size=(50, 2, 84, 84), dtype=np.uint8)).dictionary) == 32 * 84 * 84
    assert tested.fit(samples[:0]) == tested


SHORT = "it ends inside a varint"
LONG = "a varint is longer than it needs to be, or than 9 bytes"
NO_REFERENCE = "it is a patch of a reference frame that does not exist"
NO_SECTION = "its runs reach beyond its end"
OUTSIDE_FRAME = "a run reaches beyond the end of the frame"
NO_LITERALS = "it has fewer literals than its runs need"
LEFT_OVER = "it holds more than its frames need"
FEW_FRAMES = "it has fewer frames than are wanted of it"
HUGE = bytes([0xFF] * 8 + [0x7F])

CASES = [
    (b"", SHORT),
    (b"\0", SHORT),
    (b"\0\x80", SHORT),
    (b"\x80\0\2\0\0", LONG),
    (b"\0\x82\0\0\0", LONG),
    (b"\xff" * 12, LONG),
    (b"\1\2\0\0", NO_REFERENCE),
    (HUGE + b"\2\0\0", NO_REFERENCE),
    (b"\0\3\0\0", NO_SECTION),
    (b"\0" + HUGE, NO_SECTION),
    (b"\0\0", SHORT),
    (b"\0\1\0\0", SHORT),
    (b"\0\2\0\x80", SHORT),
    (b"\0\2\1\0x", SHORT),
    (b"\0\3\1\0\x81x", SHORT),
    (b"\0\x0a" + HUGE + b"\0", SHORT),
    (b"\0\3\x80\0\0", LONG),
    (b"\0\5\1\x80\0\1\0x", LONG),
    (b"\0\5\1\0\x81\0\0x", LONG),
    (b"\0\4\1\5\0\0", OUTSIDE_FRAME),
    (b"\0\4\1\0\5\0abcde", OUTSIDE_FRAME),
    (b"\0\4\1\4\1\0a", OUTSIDE_FRAME),
    (b"\0\6\2\2\2\0\1\0abc", OUTSIDE_FRAME),
    (b"\0\x0c\1" + HUGE + b"\1\0a", OUTSIDE_FRAME),
    (b"\0\x0c\1\0" + HUGE + b"\0a", OUTSIDE_FRAME),
    (b"\0\x14\1" + HUGE + HUGE + b"\0a", OUTSIDE_FRAME),
    (b"\0\4\1\0\4\0abc", NO_LITERALS),
    (b"\0\4\1\0\1\0", NO_LITERALS),
    (b"\0\6\1\0\4\1\0\4abcdefg", NO_LITERALS),
    (b"\0\2\0\0x", LEFT_OVER),
    (b"\0\3\0\0\0", LEFT_OVER),
    (b"\0\4\1\0\1\0ab", LEFT_OVER),
    (b"\x7f", FEW_FRAMES),
    (b"\x7fabc", FEW_FRAMES),
    (b"\x7fabcdefg", FEW_FRAMES),
    (b"\x7fabcdefghi", LEFT_OVER),
    (b"\x7f" + b"a" * 60, LEFT_OVER),
    (b"\x7e\2\0\0", NO_REFERENCE),
    (b"\xff\1\2\0\0", NO_REFERENCE),
]


@pytest.mark.parametrize(("stream", "why"), CASES, ids=[stream.hex(" ") for stream, _ in CASES])
def test_a_stream_that_can_not_be_read(stream: bytes, why: str) -> None:
    tested = codec("delta-rle", Layout((2, 4), np.uint8))
    with pytest.raises(CorruptStream) as caught:
        tested.decode_batch(Segments.of([stream]), np.zeros((1, 8), np.uint8))
    assert str(caught.value) == f"delta-rle stream of uint8[2, 4] can't be decoded: {why}"
    assert Decoder(tested, 100).compare(stream) is False


@pytest.mark.parametrize(
    ("stream", "item"),
    [
        (b"\0\4\1\4\0\0", [0] * 8),
        (b"\0\x0a\3\0\0\0\0\4\0\1\0\1ab", [0, 0, 0, 0] * 2),
        (b"\0\6\2\0\1\0\1\0ab", [97, 98, 0, 0] * 2),
        (b"\0\6\1\0\2\1\0\2\0\0\0\0", [0] * 8),
        (b"\x7f" + bytes(8), [0] * 8),
    ],
)
def test_what_no_encoder_writes_but_a_decoder_takes(stream: bytes, item: list[int]) -> None:
    """Empty runs, runs without a gap, literals that change nothing, and no patches where these would be short."""
    decoder = Decoder(codec("delta-rle", Layout((2, 4), np.uint8)), 100)
    decoder.compare(stream)
    decoded = decoder(stream)
    assert decoded is None or list(decoded) == item


def small_blocks() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    sparse = np.cumsum(rng.random((4, 12)) < 0.15, axis=0, dtype=np.uint8)
    return [
        np.array([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]], np.uint8),
        sparse,
        rng.integers(256, size=(2, 9), dtype=np.uint8),
        np.zeros((16, 1), np.uint8),
        rng.integers(256, size=(4, 3), dtype=np.uint8),
    ]


@pytest.mark.parametrize("block", small_blocks(), ids=["tiny", "sparse", "noise", "bytes", "no-patches"])
def test_every_change_of_one_byte_and_every_other_length(block: np.ndarray) -> None:
    tested = codec("delta-rle", Layout.of(block)).with_dictionary(block[:2].tobytes())
    for stream in (encode(tested, block), encode(tested, block[::-1])):
        decoder = Decoder(tested, len(stream) + 2)
        assert decoder.compare(stream)
        assert not any(decoder.compare(stream[:end]) for end in range(len(stream)))
        assert not any(decoder.compare(stream + bytes([byte])) for byte in range(256))
        for at in range(len(stream)):
            for byte in range(256):
                decoder.compare(stream[:at] + bytes([byte]) + stream[at + 1 :])


@pytest.mark.parametrize("game", GAMES)
def test_real_streams_that_are_altered(game: str) -> None:
    played = frames(game, 320, seed=0)
    tested = fitted(played, 16)
    streams = [encode(tested, block) for block in played.reshape(-1, 16, 84, 84)]
    decoder = Decoder(tested, 2 * max(map(len, streams)) + 100)
    rng, n_decoded = random.Random(0), 0
    for _ in range(400):
        n_decoded += decoder.compare(changed(rng.choice(streams), rng))
    assert 0 < n_decoded < 400
    shortest = min(streams, key=len)
    assert not any(decoder.compare(shortest[:end]) for end in range(len(shortest)))


@pytest.mark.parametrize("n_items", [1, 2])
def test_decoding_takes_no_memory_for_each_frame(n_items: int) -> None:
    """Numbers of frames were eight times larger than frames of one byte, which a chain makes of next to nothing."""
    tested = DeltaRle(Layout((1_000_000, 1), "uint8"))
    rows = np.zeros((n_items, 1_000_000), np.uint8)
    streams = tested.encode_batch(rows, np.empty(n_items * tested.bound(), np.uint8))
    tested.decode_batch(streams, rows)
    tracemalloc.start()
    try:
        tested.decode_batch(streams, rows)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("nbytes", [1, 2, 3, 5, 6, 7, 127, 128, 129, 400, 16_383, 16_384, 16_389])
def test_no_stream_of_small_frames_exceeds_its_bound(nbytes: int) -> None:
    """Frames that change everywhere, or in runs with the shortest gaps in front of them that are kept."""
    changes = [np.ones(nbytes, np.bool_)]
    for gap in (4, 5, 127, 128, 129):
        for length in (1, 127, 128, 129):
            for shift in (0, 1, gap):
                changes.append(np.roll(np.resize([False] * gap + [True] * length, nbytes), shift))
    block = np.cumsum([change for change in changes for _ in range(4)], axis=0, dtype=np.uint8)
    for tested in (DeltaRle(Layout(block.shape, "uint8")), DeltaRle(Layout((4, nbytes), "uint8"))):
        for item in block.reshape(-1, *tested.layout.shape):
            assert nbytes_of_patches(item) <= tested.read_bound()
            assert tested.encode(item).stream.nbytes <= tested.bound()


@pytest.mark.parametrize("nbytes", [1, 5, 84])
def test_patches_that_are_too_long_stay_in_their_room(nbytes: int) -> None:
    """The encoder stops early: it has no room for the runs of all frames."""
    block = np.random.default_rng(0).integers(1, 256, size=(3000, nbytes), dtype=np.uint8).cumsum(0, np.uint8)
    runs, literals = fenced(block.size + runs_bound(nbytes)), fenced(block.size)
    _, *written = encode_block(block, np.zeros((1, nbytes), np.uint8), runs, literals)
    assert block.size < sum(written) < block.size + nbytes + runs_bound(nbytes)
    assert encode(DeltaRle(Layout.of(block)), block) == b"\x7f" + block.tobytes()


def test_items_in_a_batch_with_all_their_frames() -> None:
    rng = np.random.default_rng(0)
    for n_frames, nbytes in ((1, 3), (3, 1), (5, 7), (40, 70_000)):  # the last one is written past the caches
        tested = DeltaRle(Layout((n_frames, nbytes), "uint8"))
        rows = np.cumsum(rng.random((3, n_frames * nbytes)) < [[0.1], [0.1], [1]], axis=0, dtype=np.uint8)
        rows[2] *= rng.integers(1, 256, n_frames * nbytes, np.uint8)  # which has no patches
        streams = tested.encode_batch(rows, np.empty(3 * tested.bound(), np.uint8))
        assert streams[2][0] == 127
        decoded = np.empty_like(rows)
        tested.decode_batch(streams, decoded)
        assert np.array_equal(decoded, rows)
