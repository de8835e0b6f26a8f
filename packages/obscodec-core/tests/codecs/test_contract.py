"""Every built-in codec and filter keeps the contract."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from obscodec import Layout, codec
from obscodec.codecs import Codec
from obscodec.testing.codec_contract import INTEGERS, SHAPES, CodecContract

UNSIGNED = tuple(name for name in INTEGERS if name.startswith("u"))
IMAGES = ((5, 7, 3), (8, 8, 1), (3, 2, 9), (1, 3, 9, 10), (2, 17, 20, 3), (4, 12, 8, 1), (0, 4, 4), (2, 0, 5, 3))
WITH_AXES = tuple(shape for shape in SHAPES if shape)


class TestRaw(CodecContract):
    spec = "raw"


class TestRle(CodecContract):
    spec = "rle"


class TestZstd(CodecContract):
    spec = "zstd"


class TestZstdNegative(CodecContract):
    spec = "zstd:-100"


class TestZstdHighest(CodecContract):
    spec = "zstd:22"
    dtypes = ("bool", "float32")


class TestLz4(CodecContract):
    spec = "lz4"


class TestLz4High(CodecContract):
    spec = "lz4:12"


class TestLz4Accelerated(CodecContract):
    spec = "lz4:-100"


class TestLz4Frame(CodecContract):
    spec = "lz4-frame"


class TestLz4FrameHighest(CodecContract):
    spec = "lz4-frame:16"


class TestLz4FrameLowest(CodecContract):
    spec = "lz4-frame:-100"


class TestGzip(CodecContract):
    spec = "gzip"


class TestGzipStored(CodecContract):
    spec = "gzip:0"


class TestIgzip(CodecContract):
    spec = "igzip"


class TestIgzipLowest(CodecContract):
    spec = "igzip:0"


class TestShuffle(CodecContract):
    spec = "shuffle|raw"


class TestShuffleZstd(CodecContract):
    spec = "shuffle|zstd:3"


class TestBitPack(CodecContract):
    spec = "bitpack|raw"
    dtypes = ("bool",)


class TestBitPackRle(CodecContract):
    spec = "bitpack|rle"
    dtypes = ("bool",)


class TestDelta(CodecContract):
    spec = "delta|raw"
    dtypes = UNSIGNED
    shapes = WITH_AXES


class TestDeltaShuffleLz4(CodecContract):
    spec = "delta|shuffle|lz4"
    dtypes = UNSIGNED
    shapes = WITH_AXES


class TestRleZstd(CodecContract):
    spec = "rle|zstd:3"


class TestLongChain(CodecContract):
    spec = "shuffle|rle|lz4|gzip"


class TestPred(CodecContract):
    spec = "pred"
    dtypes = ("uint8",)
    shapes = IMAGES


class TestPredOfDepths(CodecContract):
    spec = "pred"
    dtypes = ("uint16",)
    shapes = tuple(shape for shape in IMAGES if shape[-1] != 3)


class TestPredFast(CodecContract):
    spec = "pred:fast"
    dtypes = ("uint8",)
    shapes = IMAGES


class TestPalette(CodecContract):
    spec = "palette"
    dtypes = ("uint8",)
    shapes = IMAGES


class TestFittedPalette(TestPalette):
    trained: ClassVar[dict[Layout, bytes]] = {}

    def make(self, layout: Layout) -> Codec:
        if layout.nbytes and layout not in self.trained:
            colours = np.random.default_rng(0).integers(0, 256, (100, *layout.shape), np.uint8) & 65
            self.trained[layout] = codec(self.spec, layout).fit(colours).dictionary
        return codec(self.spec, layout).with_dictionary(self.trained.get(layout, b""))


class FittedContract(CodecContract):
    """A codec with a dictionary, which has to travel with it."""

    dtypes: ClassVar = ("uint8", "int32", "complex64")
    trained: ClassVar[dict[tuple[str, Layout], bytes]] = {}

    def make(self, layout: Layout) -> Codec:
        if (self.spec, layout) not in self.trained:
            rng = np.random.default_rng(0)
            words = rng.integers(0, 256, (8, 32), np.uint8)
            samples = Layout((4096,), "uint8").tensors(words[rng.integers(0, 8, (200, 128))].reshape(200, 4096))
            fitted = codec(self.spec, Layout((4096,), "uint8")).fit(samples)
            self.trained[self.spec, layout] = fitted.dictionary
        return codec(self.spec, layout).with_dictionary(self.trained[self.spec, layout])


class TestFittedZstd(FittedContract):
    spec = "zstd:1"


class TestFittedLz4(FittedContract):
    spec = "lz4"


class TestFittedChain(FittedContract):
    spec = "shuffle|rle|zstd:1"
