"""Every kind of bad input gets its own class and a text that says what was found, what is allowed, what to do."""

import importlib.metadata
import importlib.util
from collections.abc import Callable

import numpy as np
import obscodec
import pytest
from obscodec import (
    BackendUnavailable,
    DictionaryMissing,
    DTypeError,
    Layout,
    LayoutError,
    LevelError,
    ObscodecError,
    ShapeError,
    SpecError,
    codec,
    decode,
    encode,
)
from obscodec.codecs import Codec, codec_from_config
from obscodec.devices import backends
from obscodec.installing import install_command
from obscodec.segments import Segments

FOUR = Layout((4,), "uint8")
X = np.arange(4, dtype=np.uint8)
NAMES = ", ".join(obscodec.available())
DTYPES = "allowed are bool, integers, floats, complex, datetime64, timedelta64, bfloat16 and float8"
NO_ARRAY = "expected a numpy array, or an object with __dlpack__ or the buffer protocol, got"
CONVERT = "convert it first, as in numpy.asarray(x, dtype=...)"


def raises(error: type[Exception], text: str, call: Callable[[], object]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("spec", "error", "text"),
    [
        ("zstd-5", SpecError, "'zstd-5' has two readings: write 'zstd:5' for level 5, or 'zstd:-5' for level -5"),
        ("ZSTD", SpecError, "a stage is name[:arg,...] as in 'zstd:3', got 'ZSTD' in spec 'ZSTD': write 'zstd'"),
        ("nope", SpecError, f"no codec is named 'nope' (in spec 'nope'), there are {NAMES}"),
        *(
            (
                name,
                SpecError,
                f"no codec is named '{name}' (in spec '{name}'), did you mean '{meant}'? There are {NAMES}",
            )
            for name, meant in [("zst", "zstd"), ("zstd3", "zstd:3"), ("lz49", "lz4:9"), ("rle3", "rle")]
        ),
        (
            "delta|shuffle",
            SpecError,
            "'delta|shuffle' ends in a filter, add a codec behind it: 'delta|shuffle|zstd:3' or 'delta|shuffle|raw'",
        ),
        ("zstd|rle", SpecError, "'rle' in 'zstd|rle' stands behind a codec, where only codecs that compress bytes can"),
        ("zstd:99", LevelError, "zstd level must be in -100..-1 or 1..22, got 99"),
        ("lz4:13", LevelError, "lz4 level must be in -100..-1 or 1..12, got 13"),
        ("bitpack|raw", DTypeError, "bitpack takes bool, got uint8: leave it out of the spec"),
    ],
)
def test_spec(spec: str, error: type[Exception], text: str) -> None:
    raises(error, text, lambda: codec(spec, FOUR))


def test_layout_of_a_filter_or_codec() -> None:
    raises(
        DTypeError,
        "delta takes unsigned integers, got float32: leave it out of the spec",
        lambda: codec("delta|raw", Layout((3,), "float32")),
    )
    raises(
        ShapeError,
        "delta goes along the first axis, an item of shape () has none: leave it out of the spec",
        lambda: codec("delta|raw", Layout((), "uint8")),
    )
    raises(
        ShapeError,
        "an lz4 block holds at most 2113929216 bytes, uint8[2147483648] has 2147483648: use zstd",
        lambda: codec("lz4", Layout((2**31,), "uint8")),
    )


@pytest.mark.parametrize(
    ("x", "text"),
    [
        ([1, 2], f"{NO_ARRAY} list: {CONVERT}"),
        (1.5, f"{NO_ARRAY} float: {CONVERT}"),
        ("text", f"{NO_ARRAY} str: {CONVERT}"),
        (np.array([None]), f"dtype object can't be stored; {DTYPES}: convert the array, or leave it uncompressed"),
        (np.zeros(2, "i4,f4"), f"a structured dtype can't be stored; {DTYPES}: store each field on its own"),
        (np.array(["a"]), f"dtype str32 can't be stored; {DTYPES}: convert the array, or leave it uncompressed"),
    ],
    ids=["list", "float", "str", "object", "structured", "text"],
)
def test_what_can_not_be_stored(x: object, text: str) -> None:
    raises(DTypeError, text, lambda: encode(x, "raw"))  # type: ignore[arg-type]


def test_an_array_of_another_layout() -> None:
    zstd = codec("zstd", FOUR)
    raises(ShapeError, "items have shape (n, 4), got (1, 5)", lambda: zstd.encode(np.zeros(5, np.uint8)))
    raises(
        DTypeError,
        "items have dtype uint8, got int8: convert the array, nothing is cast here",
        lambda: zstd.encode(np.zeros(4, np.int8)),
    )
    raises(
        ShapeError,
        "encoded tensor has shape (5,), the codec is for (4,)",
        lambda: zstd.decode(encode(np.zeros(5, np.uint8), "zstd")),
    )
    raises(
        DTypeError,
        "bitpack takes bools that are stored as 0 or 1, found one stored as 3",
        lambda: encode(X.view(np.bool_), "bitpack|raw"),
    )


def test_out() -> None:
    encoded = encode(X, "zstd")
    read_only = np.zeros(4, np.uint8)
    read_only.flags.writeable = False
    cases: list[tuple[object, type[Exception], str]] = [
        (read_only, DTypeError, "out is a read-only ndarray, pass one that can be written"),
        (b"abcd", DTypeError, "out is a read-only bytes, pass one that can be written"),
        (np.zeros(5, np.uint8), ShapeError, "out has shape (5,), the codec is for (4,)"),
        (np.zeros(4, np.int8), DTypeError, "out has dtype int8, the codec is for uint8"),
        ([0] * 4, DTypeError, f"{NO_ARRAY} list: {CONVERT}"),
    ]
    for out, error, text in cases:
        raises(error, text, lambda out=out: decode(encoded, out))  # type: ignore[misc]
    assert not read_only.any()


def test_rows_and_streams_of_a_batch() -> None:
    raw = codec("raw", FOUR)
    rows, out = np.zeros((2, 4), np.uint8), np.zeros(8, np.uint8)
    frozen = rows.copy()
    frozen.flags.writeable = False
    streams = raw.encode_batch(rows, out)
    raises(ShapeError, "rows are u8[n, 4], got uint8[2, 5]", lambda: raw.encode_batch(np.zeros((2, 5), np.uint8), out))
    raises(ShapeError, "rows are u8[n, 4], got int8[2, 4]", lambda: raw.decode_batch(streams, rows.view(np.int8)))  # type: ignore[arg-type]
    raises(
        ShapeError, "rows must be contiguous, use Layout.rows", lambda: raw.encode_batch(rows.repeat(2, 1)[:, ::2], out)
    )
    raises(ShapeError, "2 streams of raw need up to 8 bytes, out has 7", lambda: raw.encode_batch(rows, out[:7]))
    raises(ShapeError, "out is u8[:], got float32[8]", lambda: raw.encode_batch(rows, np.zeros(8, np.float32)))  # type: ignore[arg-type]
    raises(ShapeError, "2 streams decode into 2 rows, got 1", lambda: raw.decode_batch(streams, rows[:1]))
    text = "rows is read-only, pass an array that can be written"
    for spec in ("raw", "rle", "zstd", "delta|raw"):
        raises(DTypeError, text, lambda spec=spec: codec(spec, FOUR).decode_batch(streams, frozen))  # type: ignore[misc]


def test_config() -> None:
    layout = FOUR.config()
    raises(LayoutError, "a codec config has a layout, got None", lambda: codec_from_config({"spec": "raw"}))
    raises(SpecError, "a codec config has a spec, got None", lambda: codec_from_config({"layout": layout}))
    raises(
        ShapeError,
        "a shape is a list of whole numbers, got 2",
        lambda: codec_from_config({"spec": "raw", "layout": {"shape": 2, "dtype": "|u1"}}),
    )
    raises(
        SpecError,
        "the dictionary of a codec config is base64 text, got '###': Only base64 data is allowed",
        lambda: codec_from_config({"spec": "zstd", "layout": layout, "dictionary": "###"}),
    )


def test_dictionaries() -> None:
    zstd = codec("zstd", FOUR)
    raises(
        SpecError, "raw has no dictionaries, got one of 5 bytes", lambda: codec("raw", FOUR).with_dictionary(b"hello")
    )
    raises(
        SpecError,
        "zstd:3 takes dictionaries that zstd trained and that carry an id, got 5 other bytes: use fit",
        lambda: zstd.with_dictionary(b"hello"),
    )
    raises(
        ShapeError,
        "zstd can't learn a dictionary from 2 samples with 8 bytes in all (cannot train dict: Src size is incorrect): "
        "give it some hundred typical items",
        lambda: zstd.fit(np.zeros((2, 4), np.uint8)),
    )
    raises(ShapeError, "items have shape (n, 4), got (2, 3)", lambda: zstd.fit(np.zeros((2, 3), np.uint8)))


def fitted(seed: int) -> Codec:
    words = np.random.default_rng(seed).integers(0, 256, (8, 32), np.uint8)
    picks = np.random.default_rng(seed).integers(0, 8, (200, 128))
    return codec("zstd", Layout((4096,), "uint8")).fit(words[picks].reshape(200, 4096))


def test_a_missing_dictionary() -> None:
    one, other = fitted(0), fitted(1)
    plain = codec("zstd", one.layout)
    x = np.arange(4096).astype(np.uint8)
    encoded = one.encode(x)
    assert np.array_equal(one.decode(encoded), x)
    ask = "decode it with the fitted codec that encoded it"
    for wrong in (plain, other):
        needs = f"stream needs dictionary {one.dictionary_id:#x}, this codec has {wrong.dictionary_id:#x}: {ask}"
        raises(DictionaryMissing, needs, lambda wrong=wrong: wrong.decode(encoded))  # type: ignore[misc]
    raises(
        DictionaryMissing,
        f"stream needs dictionary {one.dictionary_id:#x}, this codec has 0x0: {ask}",
        lambda: decode(encoded),
    )


def test_a_missing_dictionary_is_noticed_in_the_stream_itself() -> None:
    one, other = fitted(0), fitted(1)
    stream = one.encode(np.zeros(4096, np.uint8)).stream
    rows = np.zeros((1, 4096), np.uint8)
    named = {c: int.from_bytes(c.dictionary[4:8], "little") for c in (one, other)}  # RFC 8878, 5: magic, id
    raises(
        DictionaryMissing,
        f"frame needs zstd dictionary {named[one]:#x}, this codec has {named[other]:#x}: "
        "decode it with the fitted codec that encoded it",
        lambda: other.decode_batch(Segments.of([stream]), rows),
    )


def test_a_missing_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])
    backends._made.cache_clear()
    try:
        raises(
            BackendUnavailable,
            "device 'cuda' needs obscodec-cupy, which is not installed: "
            f"{install_command('obscodec-cupy[cuda12]')}, or [cuda13], for the CUDA version of the driver",
            lambda: codec("rle", FOUR, "cuda"),
        )
    finally:
        backends._made.cache_clear()


def test_every_error_is_an_obscodec_error_and_a_builtin_one() -> None:
    builtins = {
        "SpecError": ValueError,
        "LevelError": ValueError,
        "ShapeError": ValueError,
        "DTypeError": TypeError,
        "SlotError": IndexError,
        "MissingPackage": ImportError,
        "DictionaryMissing": LookupError,
        "HeapFull": MemoryError,
        "CorruptStream": ValueError,
    }
    for name, builtin in builtins.items():
        assert issubclass(getattr(obscodec, name), ObscodecError)
        assert issubclass(getattr(obscodec, name), builtin)


def test_layouts_that_numpy_can_not_hold() -> None:
    raises(ShapeError, "a shape has at most 63 axes, got 64", lambda: Layout((1,) * 64, "uint8"))
    raises(
        ShapeError,
        "an item has at most 4611686018427387904 bytes, shape (0, 4611686018427387904) of float32 has more",
        lambda: Layout((0, 2**62), "float32"),
    )
