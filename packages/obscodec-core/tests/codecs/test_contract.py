"""Every built-in codec and filter keeps the contract."""

from typing import ClassVar

import numpy as np
import pytest
from obscodec import Layout, codec
from obscodec.codecs import Codec
from obscodec.codecs.formats.delta_rle import DeltaRle
from obscodec.testing.codec_contract import INTEGERS, SHAPES, CodecContract

UNSIGNED = tuple(name for name in INTEGERS if name.startswith("u"))
IMAGES = ((5, 7, 3), (8, 8, 1), (3, 2, 9), (1, 3, 9, 10), (2, 17, 20, 3), (4, 12, 8, 1), (0, 4, 4), (2, 0, 5, 3))
WITH_AXES = tuple(shape for shape in SHAPES if shape)

EVERYTHING: dict[str, object] = {}
BOOLS = {"dtypes": ("bool",)}
DELTA = {"dtypes": UNSIGNED, "shapes": WITH_AXES}
FRAMES = {"dtypes": ("uint8",), "shapes": IMAGES}
OF_NUMBERS: dict[str, object] = {"shapes": (*SHAPES, (2, 9, 600), (3, 70, 9, 3))}
WITH_SHORT_FRAMES = (*SHAPES, (1, 5), (16, 3))

# Codecs with what they take, if that is not everything; test_compression.py has other levels.
CODECS: dict[str, dict[str, object]] = {
    **dict.fromkeys(("raw", "rle", "zstd", "lz4", "lz4:9", "lz4:12"), EVERYTHING),
    **dict.fromkeys(("shuffle|raw", "rle|zstd:3", "shuffle|rle|lz4|zstd:1"), EVERYTHING),
    **dict.fromkeys(("lorenzo|raw", "lorenzo|shuffle|zstd:1"), OF_NUMBERS),
    "lorenzo|shuffle|pred": {"dtypes": ("float32", "complex128"), "shapes": (*SHAPES, (2, 17, 20, 3))},
    "zstd:22": {"dtypes": ("bool", "float32")},
    "bitpack|raw": BOOLS,
    "bitpack|rle": BOOLS,
    "delta|raw": DELTA,
    "delta|shuffle|lz4": DELTA,
    "delta-rle": {"shapes": (*WITH_SHORT_FRAMES, (16, 1))},
    "delta-rle|zstd:3": {"dtypes": ("uint8", "float32", "bool"), "shapes": WITH_SHORT_FRAMES},
    "delta-rle|lz4": {"dtypes": ("uint8", "complex128")},
    "shuffle|delta-rle": {"dtypes": ("uint16", "float64")},
    "pred": FRAMES,
    "palette": FRAMES,
}


class TestCodecs(CodecContract):
    @pytest.fixture(autouse=True, params=CODECS)
    def _codec(self, request: pytest.FixtureRequest) -> None:
        vars(self).update(CODECS[request.param], spec=request.param)


class TestPredOfDepths(CodecContract):
    spec = "pred"
    dtypes = ("uint16", "float16", "bfloat16")
    shapes = tuple(shape for shape in IMAGES if shape[-1] != 3)


class TestDeltaRleWithReferences(CodecContract):
    dtypes: ClassVar = ("uint8", "float16", "bool")
    shapes: ClassVar = ((), (1,), (7,), (0, 3), (4, 5), (16, 3))

    def make(self, layout: Layout) -> Codec:
        plain = codec("delta-rle", layout)
        assert isinstance(plain, DeltaRle)
        references = np.random.default_rng(0).integers(2, size=(5, plain.frame_nbytes), dtype=np.uint8)
        return plain.with_dictionary(references.tobytes())


class TestFittedPalette(CodecContract):
    dtypes = ("uint8",)
    shapes = IMAGES
    trained: ClassVar[dict[Layout, bytes]] = {}

    def make(self, layout: Layout) -> Codec:
        if layout.nbytes and layout not in self.trained:
            colours = np.random.default_rng(0).integers(0, 256, (100, *layout.shape), np.uint8) & 65
            self.trained[layout] = codec("palette", layout).fit(colours).dictionary
        return codec("palette", layout).with_dictionary(self.trained.get(layout, b""))


class TestWithADictionary(CodecContract):
    """A dictionary has to travel with its codec."""

    dtypes: ClassVar = ("uint8", "int32", "complex64")
    trained: ClassVar[dict[str, bytes]] = {}

    @pytest.fixture(autouse=True, params=["zstd:1", "lz4", "shuffle|rle|zstd:1"])
    def _codec(self, request: pytest.FixtureRequest) -> None:
        vars(self)["spec"] = request.param

    def make(self, layout: Layout) -> Codec:
        if self.spec not in self.trained:
            rng = np.random.default_rng(0)
            words = rng.integers(0, 256, (8, 32), np.uint8)
            samples = words[rng.integers(0, 8, (200, 128))].reshape(200, 4096)
            self.trained[self.spec] = codec(self.spec, Layout((4096,), "uint8")).fit(samples).dictionary
        return codec(self.spec, layout).with_dictionary(self.trained[self.spec])
