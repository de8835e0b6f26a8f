"""``palette``: what its streams say, what it takes and refuses, and what its dictionaries keep."""

from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_golden import tensors
from obscodec import CorruptStream, Layout, SpecError, codec
from obscodec.codecs import Codec
from obscodec.codecs.formats.images.groups import DICTIONARY_NBYTES
from obscodec.codecs.formats.images.palette.decode import PLAIN, PRED
from obscodec.segments import Segments
from palette_reference import decode as plainly_decoded
from test_pred import SIZES, STORAGE, decoded, encoded

Images = npt.NDArray[np.uint8]

TWO = Layout((2, 8, 8), "uint8")
SPRITES = tensors()["moving-sprites"]
ITEM = Layout.of(SPRITES)
MODE = "a tile is predicted in a way that does not exist in its frame"
COLOURS = "it has more than 256 colours, or fewer bytes than these need"


def samples(n: int = 12) -> Images:
    return np.stack([np.roll(SPRITES, k, axis=(-3, -2)) for k in range(n)]).astype(np.uint8)


@pytest.fixture(scope="module")
def fitted() -> Codec:
    return codec("palette", ITEM).fit(samples())


def images(seed: int, n_colours: int, shape: tuple[int, ...]) -> Images:
    """Frames in which colours repeat, and the later ones are the first one moved."""
    rng = np.random.default_rng(seed)
    palette = rng.integers(0, 256, (n_colours, shape[-1]), np.uint8)
    first = rng.integers(0, n_colours, shape[1:3]) * (rng.random(shape[1:3]) < 0.3)
    places = np.stack([np.roll(first, (k, -2 * k), axis=(0, 1)) for k in range(shape[0])])
    noise = rng.random(places.shape) < 0.05
    places[noise] = rng.integers(0, n_colours, int(noise.sum()))
    return palette[places]


CASES = [
    (b"", "it ends inside a varint"),
    (b"\x82", "it ends inside a varint"),
    (b"\x81\x00", "a varint is longer than it needs to be, or than 9 bytes"),
    (b"\x82\x02" + b"\0" * 300, COLOURS),
    (b"\x04\1\2", COLOURS),
    (b"\2\7", "it ends inside a varint"),
    (b"\2\7\0", SIZES),
    (b"\2\7" + b"\x41" + b"\1" + bytes(64) + b"\1", SIZES),
    (b"\2\7\4" + b"\1\0\0", SIZES),
    (b"\2\7\1" + b"\0" + b"\1", STORAGE),
    (b"\2\7\1" + b"\2" + b"\1", STORAGE),
    (b"\2\7\1" + b"\x41" + b"\1", STORAGE),
    (b"\2\7\1" + b"\x1f" + b"\1", STORAGE),
    (b"\2\7\1" + b"\1" + b"\1", "it ends inside a varint"),
    (b"\2\7\6" + b"\1\2\0\0\0\0" + b"\1", "its bits end elsewhere than they say"),
    (bytes.fromhex("02 00 07 01 02 00 00 00 40 04 02 02 00 00 00 40 05"), MODE),
]


@pytest.mark.parametrize(("stream", "why"), CASES)
def test_a_stream_that_can_not_be_read(stream: bytes, why: str) -> None:
    with pytest.raises(CorruptStream) as caught:
        decoded(codec("palette", TWO), stream)
    assert str(caught.value) == f"palette stream of uint8[2, 8, 8] can't be decoded: {why}"


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("column", [3, 4, 8])
@pytest.mark.parametrize(("n_channels", "planar"), [(1, False), (3, False), (3, True)])
def test_a_place_without_a_colour(n_channels: int, planar: bool, column: int, known: bool) -> None:
    x = np.zeros((2, 8, 9, n_channels), np.uint8)
    x[1, 3, column] = 5
    x = np.ascontiguousarray(np.moveaxis(x, -1, 1)) if planar else x
    tested = codec("palette", Layout.of(x))
    tested = tested.fit(np.zeros_like(x)[None]) if known else tested  # the dictionary has the first colour
    stream, first = encoded(tested, x), b"" if known else b"\0" * n_channels
    begin = bytes([2 if known else 3]) + first + b"\5" * n_channels
    assert stream.startswith(begin)
    assert decoded(tested, stream).tobytes() == x.tobytes()
    with pytest.raises(CorruptStream, match="a pixel has a colour that is not in its palette"):
        decoded(tested, bytes([begin[0] - 1]) + first + stream[len(begin) :])


@pytest.mark.slow
def test_a_plain_decoder_reads_damaged_half_tiles_the_same() -> None:
    """Of images whose channels are in front, too."""
    x = images(0, 20, (2, 11, 12, 3))
    planar = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    tested = codec("palette", Layout.of(planar))
    n_read = 0
    for k in range(0, len(stream := encoded(tested, planar)), 2):
        damaged = stream[:k] + bytes([stream[k] ^ 1 << k % 8]) + stream[k + 1 :]
        with suppress(CorruptStream):
            seen = np.moveaxis(decoded(tested, damaged), 1, -1)
            np.testing.assert_array_equal(plainly_decoded(damaged, *x.shape), seen)
            n_read += 1
    assert n_read > 10


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 99),
    st.integers(1, 60),
    st.sampled_from([(1, 8, 8, 3), (2, 9, 17, 3), (3, 16, 12, 1), (1, 30, 5, 3)]),
    st.booleans(),
)
def test_a_plain_decoder_reads_the_same(seed: int, n_colours: int, shape: tuple[int, ...], fit: bool) -> None:
    x = images(seed, n_colours, shape)
    tested = codec("palette", Layout.of(x))
    if fit:
        tested = tested.fit(np.stack([x, images(seed + 1, n_colours, shape)])[:, :, ::-1])
    stream = encoded(tested, x)
    assert decoded(tested, stream).tobytes() == x.tobytes()
    if stream[:1] != PRED:
        assert plainly_decoded(stream, *shape, tested.dictionary).tobytes() == x.tobytes()


def test_a_plain_decoder_reads_vectors_and_late_ranks() -> None:
    shape = (3, 40, 48, 3)
    x = images(3, 90, shape)
    tested = codec("palette", Layout.of(x)).fit(np.stack([images(k, 90, shape) for k in range(3, 6)]))
    stream = encoded(tested, x)
    assert plainly_decoded(stream, *shape, tested.dictionary).tobytes() == x.tobytes()


def test_channels_first_are_the_same_frames(fitted: Codec) -> None:
    planar = np.ascontiguousarray(np.moveaxis(SPRITES, -1, 1))
    tested = codec("palette", Layout.of(planar)).with_dictionary(fitted.dictionary)
    stream = encoded(tested, planar)
    assert stream == encoded(fitted, SPRITES)
    assert decoded(tested, stream).tobytes() == planar.tobytes()
    again = codec("palette", Layout.of(planar)).fit(np.moveaxis(samples(), -1, 2))
    assert again.dictionary == fitted.dictionary


def test_items_of_many_colours_are_those_of_pred(fitted: Codec) -> None:
    noise = np.random.default_rng(0).integers(0, 256, SPRITES.shape, np.uint8)
    rows = ITEM.rows(np.stack([SPRITES, noise, SPRITES, noise]))
    plain = codec("palette", ITEM)
    for tested in (plain, fitted):
        streams = tested.encode_batch(rows, np.empty(4 * tested.bound(), np.uint8))
        assert streams[0].tobytes() == streams[2].tobytes() == encoded(tested, SPRITES)
        assert streams[1].tobytes() == PRED + encoded(codec("pred", ITEM), noise)
        assert len(streams[1]) == 2 + rows.shape[1]
        found = np.empty_like(rows)
        tested.decode_batch(streams, found)
        assert np.array_equal(found, rows)


def test_items_of_other_colours_do_without_the_dictionary(fitted: Codec) -> None:
    plain = codec("palette", ITEM)
    others = SPRITES ^ np.uint8(85)
    stream = encoded(fitted, others)
    assert stream == PLAIN + encoded(plain, others)
    assert decoded(fitted, stream).tobytes() == others.tobytes()
    with pytest.raises(CorruptStream, match=COLOURS):
        decoded(plain, stream)


def test_new_colours_are_appended(fitted: Codec) -> None:
    x = SPRITES.copy()
    x[0, 0, :3] = [[1, 2, 250], [250, 2, 1], [1, 2, 3]]
    stream = encoded(fitted, x)
    assert stream[:10] == bytes([4, 1, 2, 3, 1, 2, 250, 250, 2, 1])  # by brightness
    assert decoded(fitted, stream).tobytes() == x.tobytes()


def test_a_dictionary_makes_streams_smaller(fitted: Codec) -> None:
    assert len(encoded(fitted, SPRITES)) < 0.8 * len(encoded(codec("palette", ITEM), SPRITES))
    assert len(fitted.dictionary) < 8000


def colours_in(dictionary: bytes) -> list[bytes]:
    return [dictionary[3 + 3 * k : 6 + 3 * k] for k in range(dictionary[2] + 1)]


def test_colours_keep_their_places(fitted: Codec) -> None:
    known = colours_in(fitted.dictionary)
    again = fitted.fit(samples() ^ np.uint8(85))
    assert colours_in(again.dictionary)[: len(known)] == known
    new = colours_in(again.dictionary)[len(known) :]
    assert {bytes(255 - 170 ^ channel for channel in colour) for colour in known} == set(new)
    assert fitted.fit(samples()).dictionary[: 3 + 3 * len(known)] == fitted.dictionary[: 3 + 3 * len(known)]


def test_colours_start_anew_if_there_is_no_room(fitted: Codec) -> None:
    many = np.random.default_rng(0).integers(0, 256, (250, 3), np.uint8)
    x = many[np.arange(SPRITES[..., 0].size).reshape(SPRITES.shape[:-1]) % 250]
    again = fitted.fit(x[None])
    assert set(colours_in(again.dictionary)) == {bytes(colour) for colour in many}


def test_samples_of_many_colours_train_pred_alone(fitted: Codec) -> None:
    rng = np.random.default_rng(0)
    smooth = rng.integers(0, 3, (6, *SPRITES.shape)).cumsum(axis=2).astype(np.uint8)
    plain = codec("palette", ITEM)
    assert plain.fit(smooth) == plain
    both = plain.fit(np.concatenate([samples(), smooth]))
    assert both.dictionary[: len(fitted.dictionary)] == fitted.dictionary
    pred = codec("pred", ITEM).fit(smooth)
    assert both.dictionary[len(fitted.dictionary) :] == pred.dictionary
    assert encoded(both, smooth[0]) == PRED + encoded(pred, smooth[0])
    assert decoded(both, encoded(both, smooth[0])).tobytes() == smooth[0].tobytes()


def changed(dictionary: bytes, at: int, value: int) -> bytes:
    return dictionary[:at] + bytes([value]) + dictionary[at + 1 :]


def test_a_dictionary_that_is_none(fitted: Codec) -> None:
    good = fitted.dictionary
    n = good[2] + 1
    bits = 3 + 5 * n  # of the first table
    wrong = {
        b"\1": "index out of range",
        good[:-1]: "3269 bytes of books",
        good + b"\0": "3271 bytes of books",
        changed(good, 0, 2): "another version, or another number of channels",
        changed(good, 1, 1): "another version, or another number of channels",
        good[:3] + good[6:9] + good[6:]: "a colour that it has twice",
        changed(good, bits + (n * n - 1) // 8, 255): "bits behind the last one",
        good[:200]: "buffer is smaller than requested size",
    }
    for dictionary, why in wrong.items():
        with pytest.raises(SpecError) as caught:
            codec("palette", ITEM).with_dictionary(dictionary)
        assert str(caught.value) == (
            f"palette takes dictionaries of version 1 for 3 channels, got {len(dictionary)} bytes "
            f"that begin with {dictionary[:2]!r} and have {why}: use fit"
        )
    with pytest.raises(SpecError, match="no complete code of 1 to 11 bits"):
        codec("palette", ITEM).with_dictionary(changed(good, len(good) - 3000, 0))


def test_altered_dictionaries_are_refused_or_decode_within_bounds(fitted: Codec) -> None:
    rng = np.random.default_rng(0)
    stream, memory = encoded(fitted, SPRITES), np.full(SPRITES.nbytes + 128, 7, np.uint8)
    rows = memory[64:-64].reshape(1, -1)
    taken = 0
    for _ in range(200):
        altered = changed(
            fitted.dictionary, int(rng.integers(len(fitted.dictionary) - DICTIONARY_NBYTES)), int(rng.integers(256))
        )
        try:
            other = codec("palette", ITEM).with_dictionary(altered)
        except SpecError:
            continue
        taken += 1
        assert decoded(other, encoded(other, SPRITES)).tobytes() == SPRITES.tobytes()
        try:
            other.decode_batch(Segments.of([stream]), rows)
        except CorruptStream:
            continue
    assert taken > 50
    assert set(memory[:64]) | set(memory[-64:]) == {7}


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize(
    ("side", "n_colours", "are_grey", "suits"),
    [
        (64, 200, False, True),
        (64, 300, False, False),
        (64, 60, True, True),
        (64, 100, True, False),
        (12, 9, False, True),
        (12, 20, False, False),
        (200, 256, False, True),
    ],
)
def test_images_that_a_palette_suits(side: int, n_colours: int, are_grey: bool, suits: bool, planar: bool) -> None:
    """It looks at 16,384 pixels of an image; those of the last one, of 40,000, are all of the same colours."""
    colours = np.arange(n_colours)[:, None] + np.array([0, 0, 0] if are_grey else [0, 1, 2])
    places = np.arange(4 * side * side).reshape(4, side, side) % n_colours
    images = (
        colours.astype(np.uint8)[places]
        if n_colours <= 256
        else np.stack([places % 256, places // 256, places * 0], -1)
    )
    images = np.ascontiguousarray(np.moveaxis(images, -1, 1) if planar else images).astype(np.uint8)[:, None]
    assert codec("palette", Layout.of(images[0])).suits(images) == suits
    assert codec("pred", Layout.of(images[0])).suits(images) == (n_colours > min(64, side**2 // 16))


def test_depths_suit_pred_however_few_they_are() -> None:
    few = np.arange(3 * 64 * 64, dtype=np.uint16).reshape(3, 64, 64) % 7
    assert codec("pred", Layout((64, 64), np.uint16)).suits(few)
