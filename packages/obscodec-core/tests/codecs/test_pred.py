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
from pred_reference import TRANSFORMS, with_shares
from pred_reference import decode as plainly_decoded

TWO = Layout((2, 8, 8), "uint8")
COLORS, SPRITES = tensors()["moving-colors"], tensors()["moving-sprites"]
SPECS = "pred", "pred:fast"
NOISE = b"\0" + bytes(range(64))
SIZES = "a frame has another number of bytes than its head and its pixels need"
STORAGE = "a frame is stored in a way that does not exist"
BLANK = b"\x11\0" + b"\0"  # of pred:fast: mode 0 and widths 0


def encoded(tested: Codec, x: npt.NDArray[np.generic]) -> bytes:
    return tested.encode(x).stream.tobytes()


def decoded(tested: Codec, stream: bytes) -> npt.NDArray[np.generic]:
    src = np.frombuffer(stream, np.uint8)
    return tested.decode(EncodedTensor(src, tested.layout, tested.spec, tested.dictionary_id))


CASES = [
    ("pred:fast", b"", "it ends inside a varint"),
    ("pred:fast", b"\3" + BLANK, SIZES),
    ("pred:fast", b"\4" + BLANK, SIZES),
    ("pred:fast", b"\0" + BLANK, SIZES),
    ("pred:fast", b"\0" + bytes(127), SIZES),
    ("pred", b"\0" + bytes(129), SIZES),
    ("pred:fast", b"\3" + BLANK + NOISE[:-1], SIZES),
    ("pred:fast", b"\3" + BLANK + b"\x12" + NOISE, SIZES),
    ("pred:fast", b"\3" + BLANK + BLANK + b"\0", SIZES),
    ("pred:fast", b"\3" + b"\x12\0\0" + BLANK, STORAGE),
    ("pred:fast", b"\3" + BLANK + b"\x1f\0\0", STORAGE),
    ("pred:fast", b"\3" + BLANK + b"\x21\0\0", STORAGE),
    ("pred:fast", b"\3" + BLANK + b"\x10\0\0", STORAGE),
    ("pred:fast", b"\3" + BLANK + b"\x11\3\0", "a tile is predicted in a way that does not exist in its frame"),
    ("pred:fast", b"\3" + BLANK + b"\x12\5\0", "a tile is predicted in a way that does not exist in its frame"),
    ("pred:fast", b"\3" + BLANK + b"\x13\0\1\5\0", "a vector leads outside of the frame before"),
    ("pred:fast", b"\3" + BLANK + b"\x13\xff\0\5\0", "a vector leads outside of the frame before"),
    ("pred:fast", b"\3" + BLANK + b"\x13\1\0\5\0", "a vector leads outside of the frame before"),
    ("pred:fast", b"\3" + BLANK + b"\x13\0\xff\5\0", "a vector leads outside of the frame before"),
    ("pred:fast", b"\3" + BLANK + b"\1\0\x90", "a group of pixels has more than 8 bits for each"),
    ("pred", b"\2" + b"\1\x80" + NOISE, "it ends inside a varint"),
    ("pred", b"\6" + b"\1\2\0\0\0\0" + NOISE, "its bits end elsewhere than they say"),
    ("pred", b"\6" + b"\1\0\1\0\0\0" + NOISE, "its bits end elsewhere than they say"),
    ("pred", b"\2" + b"\x41\0" + NOISE, STORAGE),
]


@pytest.mark.parametrize(("spec", "stream", "why"), CASES)
def test_a_stream_that_can_not_be_read(spec: str, stream: bytes, why: str) -> None:
    with pytest.raises(CorruptStream) as caught:
        decoded(codec(spec, TWO), stream)
    assert str(caught.value) == f"{spec} stream of uint8[2, 8, 8] can't be decoded: {why}"


def test_streams_like_those_that_are_refused_are_read() -> None:
    fast = codec("pred:fast", TWO)
    assert not decoded(fast, b"\3" + BLANK + BLANK).any()
    assert decoded(fast, b"\3" + BLANK + NOISE)[1].tobytes() == NOISE[1:]
    assert decoded(fast, b"\x41" + NOISE + b"\x12\3\0")[1].tobytes() == NOISE[1:]
    assert decoded(fast, b"\x41" + NOISE + NOISE).tobytes() == NOISE[1:] * 2


@pytest.mark.parametrize(("spec", "most"), [("pred", 1), ("pred:fast", 1), ("palette", 2)])
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


@pytest.mark.parametrize("spec", [*SPECS, "palette"])
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
                f"{', or of uint16 in one channel' if spec == 'pred' else ''}, got {layout}: use zstd:3"
            )


@pytest.mark.parametrize("spec", [*SPECS, "palette", "pred|zstd:1", "delta|pred"])
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


@pytest.mark.parametrize("spec", SPECS)
def test_axes_in_front_of_images_are_frames(spec: str) -> None:
    grey, four = COLORS[0, :, :, 0], COLORS[[0, 1, 2, 0]]
    planes, height_width = np.moveaxis(four, -1, 1), grey.shape
    alike = [
        [grey, grey[None], grey[None, None, None, :, :, None]],
        [planes, planes.reshape(2, 2, 3, *height_width), four, four.reshape(2, 2, *height_width, 3)],
    ]
    for images in alike:
        streams = set()
        for x in map(np.ascontiguousarray, images):
            tested = codec(spec, Layout.of(x))
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
    """Each residual of each group is -1, and each pixel is predicted by the one above it."""
    layout, n_tiles = Layout((8, width), np.uint8), -(-width // 8)
    stream = b"\1" + bytes(1) + b"\x11" * n_tiles + b"\xff" * 8 * n_tiles
    seen = decoded(codec("pred:fast", layout), stream)
    assert plainly_decoded(stream, layout, fast=True) == seen.tobytes()
    assert (seen == -np.arange(1, 9)[:, None] % 256).all()
    blank = stream[:-4] + bytes(4)  # the lower group of the last tile
    assert (decoded(codec("pred:fast", layout), blank).tobytes() == seen.tobytes()) == is_half
    assert plainly_decoded(blank, layout, fast=True) == decoded(codec("pred:fast", layout), blank).tobytes()


@pytest.mark.parametrize("spec", SPECS)
def test_a_plain_decoder_reads_damaged_half_tiles_the_same(spec: str) -> None:
    x = moving(0, (2, 11, 12, 3), "uint8")
    tested = codec(spec, Layout.of(x))
    n_read = 0
    for k in range(0, len(stream := encoded(tested, x)), 4):
        damaged = stream[:k] + bytes([stream[k] ^ 1 << k % 8]) + stream[k + 1 :]
        with suppress(CorruptStream):
            seen = decoded(tested, damaged)
            assert plainly_decoded(damaged, tested.layout, fast=spec != "pred") == seen.tobytes()
            n_read += 1
    assert n_read > 10


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 99),
    st.sampled_from([(1, 8, 8, 3), (2, 9, 17, 3), (3, 40, 48, 3), (3, 1, 2, 3), (3, 16, 12, 1), (1, 30, 5, 1)]),
    st.sampled_from(["channels last", "channels first", "depths"]),
    st.sampled_from(["pred:fast", "pred", "fitted"]),
)
def test_a_plain_decoder_reads_the_same(seed: int, shape: tuple[int, ...], kind: str, how: str) -> None:
    x = moving(seed, (*shape[:3], 1) if kind == "depths" else shape, "uint16" if kind == "depths" else "uint8")
    x = np.ascontiguousarray(np.moveaxis(x, -1, 1)) if kind == "channels first" else x
    tested = codec("pred:fast" if how == "pred:fast" else "pred", Layout.of(x))
    if how == "fitted":
        tested = tested.fit(np.stack([x, x[::-1]]))
    stream = encoded(tested, x)
    plain = plainly_decoded(stream, tested.layout, fast=how == "pred:fast", dictionary=tested.dictionary)
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
    green, *others = np.where(stored < 0, -2 * stored.astype(np.int64) - 1, 2 * stored.astype(np.int64)).astype(
        np.uint8
    )
    words = [
        green.tobytes(),
        *((words[:, 0::2] | words[:, 1::2] << 4).tobytes() for words in others),
    ]  # 8, 4 and 4 bits
    tested = codec("pred:fast", Layout.of(image))
    stream = b"\1%c\x88\x44\x44" % transform + b"".join(words)
    np.testing.assert_array_equal(decoded(tested, stream), image)


@pytest.mark.parametrize("spec", SPECS)
def test_images_whose_colours_go_together_are_smaller(spec: str) -> None:
    rng = np.random.default_rng(0)
    stored = np.stack([rng.integers(-most, most + 1, (40, 40)) for most in (12, 3, 1)]).astype(np.int8)
    sizes = []
    for transform in range(len(TRANSFORMS)):
        image = from_above(stored, transform)
        tested = codec(spec, Layout.of(image))
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


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 40, 33), (2, 5, 70), (4, 1, 2)])
def test_depths_in_two_bytes_are_exact(spec: str, shape: tuple[int, int, int]) -> None:
    seen, streams = depths(*shape), set()
    for x in (seen, seen[..., None], seen[None]):
        tested = codec(spec, Layout.of(x))
        streams.add(encoded(tested, x))
        found = decoded(tested, encoded(tested, x))
        assert (found.dtype, found.tobytes()) == (x.dtype, x.tobytes())
    assert len(streams) == 1


def test_depths_are_smaller_than_with_codecs_of_bytes() -> None:
    seen = depths(8, 84, 84)
    sizes = {spec: len(encoded(codec(spec, Layout.of(seen)), seen)) for spec in (*SPECS, "zstd:3", "shuffle|zstd:3")}
    assert sizes["pred"] < sizes["pred:fast"] < min(sizes["zstd:3"], sizes["shuffle|zstd:3"])
    assert sizes["pred"] < 0.8 * sizes["shuffle|zstd:3"]


@pytest.mark.parametrize(("spec", "takes"), [("pred:slow", "or 'fast', got 'slow'"), ("palette:fast", "got 'fast'")])
def test_arguments_that_do_not_exist(spec: str, takes: str) -> None:
    with pytest.raises(SpecError, match=rf"^{spec.partition(':')[0]} takes no argument, {takes}$"):
        codec(spec, TWO)


def test_books_are_smaller_where_they_were_trained() -> None:
    plain = codec("pred", Layout.of(COLORS))
    fitted = plain.fit(np.stack([np.roll(COLORS, k, axis=2) for k in range(8)]))
    assert len(encoded(fitted, COLORS)) < len(encoded(plain, COLORS))
    assert len(fitted.dictionary) == DICTIONARY_NBYTES
    assert codec("pred:fast", Layout.of(COLORS)).fit(COLORS[None]).dictionary == b""


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
