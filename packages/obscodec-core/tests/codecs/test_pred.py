"""``pred``: what it takes and refuses, and the forms of its streams."""

from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pytest
from fenced import Fenced
from hypothesis import given, settings
from hypothesis import strategies as st
from make_golden import tensors
from obscodec import CorruptStream, EncodedTensor, Layout, SpecError, codec, decode, encode
from obscodec.codecs import Codec
from obscodec.codecs.formats.images.groups.books import DICTIONARY_NBYTES, built_in
from obscodec.segments import Segments
from pred_reference import TRANSFORMS, frame, with_shares
from pred_reference import decode as plainly_decoded

TWO = Layout((2, 8, 8), "uint8")
COLORS, SPRITES = tensors()["moving-colors"], tensors()["moving-sprites"]
NOISE = b"\0" + bytes(range(64))
SIZES = "a frame has another number of bytes than its head and its pixels need"
STORAGE = "a frame is stored in a way that does not exist"
ZEROS = [[0] * 32] * 2
BLANK = frame([0], ZEROS)
FIRST = bytes([len(BLANK)]) + BLANK


def encoded(tested: Codec, x: npt.NDArray[np.generic]) -> bytes:
    return tested.encode(x).stream.tobytes()


def decoded(tested: Codec, stream: bytes) -> npt.NDArray[np.generic]:
    src = np.frombuffer(stream, np.uint8)
    return tested.decode(EncodedTensor(src, tested.layout, tested.spec, tested.dictionary_id))


MODE = "a tile is predicted in a way that does not exist in its frame"
OUTSIDE = "a vector leads outside of the frame before"
BITS = "its bits end elsewhere than they say"
CASES = [
    (b"", "it ends inside a varint"),
    (FIRST, SIZES),
    (bytes([len(BLANK) + 1]) + BLANK, SIZES),
    (b"\0" + BLANK, SIZES),
    (b"\0" + bytes(127), SIZES),
    (b"\0" + bytes(129), SIZES),
    (FIRST + NOISE[:-1], SIZES),
    (FIRST + b"\2" + NOISE, SIZES),
    (FIRST + b"\4\0\0\0", SIZES),
    (FIRST + BLANK + b"\0", BITS),
    (bytes([len(BLANK)]) + b"\2" + BLANK[1:] + BLANK, STORAGE),
    *((FIRST + bytes([head]) + BLANK[1:], STORAGE) for head in (10, 15, 16, 17, 33, 129)),
    (FIRST + frame([3], ZEROS), MODE),
    (FIRST + frame([5], ZEROS, b"\2"), MODE),
    *((FIRST + frame([5], ZEROS, b"\3" + v), OUTSIDE) for v in (b"\0\1", b"\xff\0", b"\1\0", b"\0\xff")),
    (b"\2" + b"\1\x80" + NOISE, "it ends inside a varint"),
    (b"\6" + b"\1\2\0\0\0\0" + NOISE, BITS),
    (b"\6" + b"\1\0\1\0\0\0" + NOISE, BITS),
    (b"\2" + b"\x41\0" + NOISE, STORAGE),
]


@pytest.mark.parametrize(("stream", "why"), CASES)
def test_a_stream_that_can_not_be_read(stream: bytes, why: str) -> None:
    with pytest.raises(CorruptStream) as caught:
        decoded(codec("pred", TWO), stream)
    assert str(caught.value) == f"pred stream of uint8[2, 8, 8] can't be decoded: {why}"


def test_streams_like_those_that_are_refused_are_read() -> None:
    pred = codec("pred", TWO)
    assert not decoded(pred, FIRST + BLANK).any()
    assert decoded(pred, FIRST + NOISE)[1].tobytes() == NOISE[1:]
    assert decoded(pred, b"\x41" + NOISE + frame([3], ZEROS, b"\2"))[1].tobytes() == NOISE[1:]
    assert decoded(pred, b"\x41" + NOISE + NOISE).tobytes() == NOISE[1:] * 2


@pytest.mark.parametrize(("spec", "most"), [("pred", 1), ("palette", 2)])
@pytest.mark.parametrize(
    "shape", [(1000, 2, 2), (100, 4, 5), (3, 8, 8, 3), (84, 84, 2), (17, 3, 1, 9), (1, 1, 1), (5, 5)]
)
def test_no_item_grows(spec: str, most: int, shape: tuple[int, ...]) -> None:
    noise = np.random.default_rng(0).integers(256, size=(4, *shape), dtype=np.uint8)
    noise[2] = 7  # between others
    tested = codec(spec, Layout(shape, np.uint8))
    rows = tested.layout.rows(noise)
    streams = tested.encode_batch(rows, np.empty(len(rows) * tested.bound(), np.uint8))
    assert streams.lengths.max() <= rows.shape[1] + most


@pytest.mark.parametrize("spec", ["pred", "palette"])
def test_damage_of_whole_frames_does_no_harm(spec: str) -> None:
    x = SPRITES if spec == "palette" else COLORS
    tested = codec(spec, Layout.of(x))
    tested = tested.fit(np.stack([np.roll(x, k, axis=(-3, -2)) for k in range(12)])) if spec == "palette" else tested
    stream, memory = encoded(tested, x), Fenced(x.nbytes)
    rows, n_refused = memory.rows(1, x.nbytes), 0
    for k in range(len(stream)):
        damaged = bytearray(stream)
        damaged[k] ^= 1 << k % 8
        for bad in (stream[:k], bytes(damaged), stream + bytes([k % 256])):
            try:
                tested.decode_batch(Segments.of([bad]), rows)
            except CorruptStream:
                n_refused += 1
            else:
                assert len(bad) == len(stream)
            memory.check(rows)
    assert n_refused >= 2 * len(stream)


def test_items_that_are_no_images() -> None:
    one, two, three = Layout((8,), "uint8"), Layout((2, 8, 8), "int8"), Layout((8, 8, 3), "uint16")
    depth = Layout((8, 8), "uint16")
    for spec, layouts in (("pred", (one, two, three)), ("palette", (one, two, three, depth))):
        for layout in layouts:
            with pytest.raises(SpecError) as caught:
                codec(spec, layout)
            assert str(caught.value) == (
                f"{spec} takes images of uint8, [height, width] or [height, width, 1 or 3], or several, "
                "[n, height, width], [n, height, width, 1 or 3] or [n, 3, height, width]"
                f"{', or of two bytes in one channel' if spec == 'pred' else ''}, got {layout}: use "
                f"{'shuffle|pred' if spec == 'pred' and layout.dtype.itemsize > 1 else 'zstd:3'}"
            )


@pytest.mark.parametrize("spec", ["pred", "palette", "pred|zstd:1", "delta|pred"])
@pytest.mark.parametrize(
    ("shape", "images"),
    [((84, 84, 4), "84 images of 84x4"), ((8, 9, 2), "8 images of 9x2"), ((2, 3, 16, 8, 4), "96 images of 8x4")],
)
def test_an_image_of_other_channels_is_not_encoded_row_by_row(spec: str, shape: tuple[int, ...], images: str) -> None:
    image = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    with pytest.raises(SpecError) as caught:
        encode(image, spec)
    assert str(caught.value) == (
        f"{spec} takes no images of {shape[-1]} channels, and would take uint8{list(shape)} for {images} pixels: "
        "use 'auto' or zstd:3, or encode channels apart"
    )
    rows = codec(spec, Layout.of(image))
    assert (decode(rows.encode(image)) == image).all()  # a stream of them is none the worse
    assert (decode(encode(image)) == image).all()
    planes = np.moveaxis(image, -1, -3)
    assert (decode(encode(planes, spec)) == planes).all()


@pytest.mark.parametrize("shape", [(84, 4), (100, 4, 4), (7, 84, 4), (84, 7, 2), (84, 84, 5), (84, 84, 3), (0, 84, 4)])
def test_what_can_be_images_is_encoded(shape: tuple[int, ...]) -> None:
    assert decode(encode(np.ones(shape, np.uint8), "pred")).shape == shape


def test_axes_in_front_of_images_are_frames() -> None:
    grey, four = COLORS[0, :, :, 0], COLORS[[0, 1, 2, 0]]
    planes, height_width = np.moveaxis(four, -1, 1), grey.shape
    alike = [
        [grey, grey[None], grey[None, None, None, :, :, None]],
        [planes, planes.reshape(2, 2, 3, *height_width), four, four.reshape(2, 2, *height_width, 3)],
    ]
    for images in alike:
        streams = set()
        for x in map(np.ascontiguousarray, images):
            tested = codec("pred", Layout.of(x))
            streams.add(encoded(tested, x))
            assert decoded(tested, encoded(tested, x)).tobytes() == x.tobytes()
        assert len(streams) == 1


def moving(seed: int, shape: tuple[int, ...], dtype: str) -> npt.NDArray[np.generic]:
    """Frames ``[n, height, width, channels]`` of a texture that moves, with colours that go together, and noise."""
    rng, (n, height, width, channels) = np.random.default_rng(seed), shape
    sides, shares = (height + 2 * n, width + 2 * n), rng.choice([0.25, 0.5, 0.75, 1, 1.25], channels)
    light = rng.normal(0, rng.choice([1, 4, 12]), sides)
    for axis in [(0,), (1,), (0, 1)][seed % 3]:
        light = light.cumsum(axis)
    texture = light[..., None] * shares + rng.normal(0, rng.choice([0.1, 1, 10]), (*sides, channels))
    frames = np.stack([texture[2 * k : 2 * k + height, k : k + width] for k in range(n)])
    return (frames + rng.integers(rng.choice([1, 3]), size=frames.shape)).astype(np.int64).astype(dtype)


@pytest.mark.parametrize(("width", "is_half"), [(3, True), (4, True), (5, False), (8, False), (12, True)])
def test_the_lower_group_of_a_half_tile_says_nothing(width: int, is_half: bool) -> None:
    layout, some = Layout((8, width), np.uint8), [-1] * 4 + [0] * 28
    n_tiles = -(-width // 8)
    groups = [*ZEROS * (n_tiles - 1), some, some]
    stream, blank = (frame([0] * n_tiles, of) for of in (groups, [*groups[:-1], ZEROS[0]]))
    seen, without = decoded(codec("pred", layout), stream), decoded(codec("pred", layout), blank)
    assert (plainly_decoded(stream, layout), plainly_decoded(blank, layout)) == (seen.tobytes(), without.tobytes())
    assert (seen.tobytes() == without.tobytes()) == is_half


def test_a_plain_decoder_reads_damaged_half_tiles_the_same() -> None:
    x = moving(0, (2, 11, 12, 3), "uint8")
    tested = codec("pred", Layout.of(x))
    n_read = 0
    for k in range(0, len(stream := encoded(tested, x)), 4):
        damaged = stream[:k] + bytes([stream[k] ^ 1 << k % 8]) + stream[k + 1 :]
        with suppress(CorruptStream):
            seen = decoded(tested, damaged)
            assert plainly_decoded(damaged, tested.layout) == seen.tobytes()
            n_read += 1
    assert n_read > 10


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 99),
    st.sampled_from([(1, 8, 8, 3), (2, 9, 17, 3), (3, 40, 48, 3), (3, 1, 2, 3), (3, 16, 12, 1), (1, 30, 5, 1)]),
    st.sampled_from(["channels last", "channels first", "depths"]),
    st.booleans(),
)
def test_a_plain_decoder_reads_the_same(seed: int, shape: tuple[int, ...], kind: str, fitted: bool) -> None:
    x = moving(seed, (*shape[:3], 1) if kind == "depths" else shape, "uint16" if kind == "depths" else "uint8")
    x = np.ascontiguousarray(np.moveaxis(x, -1, 1)) if kind == "channels first" else x
    tested = codec("pred", Layout.of(x))
    if fitted:
        tested = tested.fit(np.stack([x, x[::-1]]))
    stream = encoded(tested, x)
    plain = plainly_decoded(stream, tested.layout, dictionary=tested.dictionary)
    assert plain == x.tobytes() == tested.decode(tested.encode(x)).tobytes()


def from_above(stored: npt.NDArray[np.int8], transform: int) -> npt.NDArray[np.uint8]:
    """``u8[height, width, 3]``: pixels predicted from above, from residuals of green, red, blue less shares."""
    green, red, blue = with_shares(stored, *TRANSFORMS[transform])
    return np.stack([red, green, blue], -1).astype(np.int64).cumsum(0).astype(np.uint8)


@pytest.mark.parametrize("transform", range(len(TRANSFORMS)))
def test_a_share_of_green_or_red_is_added(transform: int) -> None:
    rng = np.random.default_rng(transform)
    stored = np.stack([rng.integers(-most, most, (8, 8)) for most in (128, 8, 8)]).astype(np.int8)
    image = from_above(stored, transform)
    groups = stored.reshape(6, 32).tolist()
    stream, tested = frame([transform], groups), codec("pred", Layout.of(image))
    np.testing.assert_array_equal(decoded(tested, stream), image)


def test_images_whose_colours_go_together_are_smaller() -> None:
    rng = np.random.default_rng(0)
    stored = np.stack([rng.integers(-most, most + 1, (40, 40)) for most in (12, 3, 1)]).astype(np.int8)
    sizes = []
    for transform in range(len(TRANSFORMS)):
        image = from_above(stored, transform)
        tested = codec("pred", Layout.of(image))
        stream = encoded(tested, image)
        assert decoded(tested, stream).tobytes() == image.tobytes()
        sizes.append(len(stream))
    assert max(sizes) < 1.03 * sizes[0]


def depths(n: int, height: int, width: int) -> npt.NDArray[np.uint16]:
    """A wall that comes nearer, a ball before it, noise that grows with the distance, and places without a measure."""
    rng, (y, x) = np.random.default_rng(0), np.mgrid[:height, :width]
    wall = 9000 + 40 * x - 70 * y - 15 * np.arange(n)[:, None, None]
    seen = np.where((x - width // 2) ** 2 + (y - height // 2) ** 2 < 30, 1200 + 3 * x, wall)
    seen = seen + rng.normal(0, 1, seen.shape) * (seen / 3000) ** 2
    seen[:, :2, :3] = 0
    seen[:, -1, -1] = 65535
    return seen.astype(np.uint16)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 40, 33), (2, 5, 70), (4, 1, 2)])
def test_depths_in_two_bytes_are_exact(shape: tuple[int, int, int]) -> None:
    seen, streams = depths(*shape), set()
    for x in (seen, seen[..., None], seen[None]):
        tested = codec("pred", Layout.of(x))
        streams.add(encoded(tested, x))
        found = decoded(tested, encoded(tested, x))
        assert (found.dtype, found.tobytes()) == (x.dtype, x.tobytes())
    assert len(streams) == 1


def test_depths_are_smaller_than_with_codecs_of_bytes() -> None:
    seen = depths(8, 84, 84)
    sizes = {spec: len(encoded(codec(spec, Layout.of(seen)), seen)) for spec in ("pred", "zstd:3", "shuffle|zstd:3")}
    assert sizes["pred"] < min(sizes["zstd:3"], 0.8 * sizes["shuffle|zstd:3"])


@pytest.mark.parametrize("name", ["pred", "palette"])
def test_arguments_that_do_not_exist(name: str) -> None:
    with pytest.raises(SpecError, match=rf"^{name} takes no argument, got 'fast'$"):
        codec(f"{name}:fast", TWO)


def test_books_are_smaller_where_they_were_trained() -> None:
    plain = codec("pred", Layout.of(COLORS))
    fitted = plain.fit(np.stack([np.roll(COLORS, k, axis=2) for k in range(8)]))
    assert len(encoded(fitted, COLORS)) < len(encoded(plain, COLORS))
    assert len(fitted.dictionary) == DICTIONARY_NBYTES


def changed(at: int, value: int) -> bytes:
    dictionary = bytearray(built_in().dictionary())
    dictionary[at] = value
    return bytes(dictionary)


WRONG = {
    "other bytes": (
        b"\1\2\3",
        "takes dictionaries of 3270 bytes that begin with 1, got 3 bytes that begin with b'\\x01': use fit",
    ),
    "another version": (
        changed(0, 2),
        "takes dictionaries of 3270 bytes that begin with 1, got 3270 bytes that begin with b'\\x02': use fit",
    ),
    "no length": (changed(1, 0x10), "no complete code of 1 to 11 bits"),
    "too long": (changed(1, 0xFF), "no complete code of 1 to 11 bits"),
    "too many": (changed(1, 0x11), "no complete code of 1 to 11 bits"),
    "too small a class": (changed(DICTIONARY_NBYTES - 2, 0), "gives groups to classes that can't hold them"),
    "too full": (changed(DICTIONARY_NBYTES - 1, 0xFF), "is too full"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_dictionary_that_is_none(name: str) -> None:
    dictionary, why = WRONG[name]
    with pytest.raises(SpecError) as caught:
        codec("pred", TWO).with_dictionary(dictionary)
    assert why in str(caught.value)
