"""Writes the golden files: ``uv run python packages/obscodec-core/tests/codecs/make_golden.py``.

Run it when a format is added, and never to make a failing test pass: files that are there stay as they are.
"""

import json
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
from obscodec import Layout, codec, encode

GOLDEN = Path(__file__).parent / "golden"


def tensors() -> dict[str, npt.NDArray[np.generic]]:
    """The tensors in the files, by name."""
    import ml_dtypes

    image = np.zeros((12, 16), np.uint8)
    image[3:7, 2:9] = 87
    image[10] = np.arange(16)
    moving = np.stack([np.roll(image, i, axis=1) for i in (0, 1, 2, 2, 5)])
    colors = np.add.outer(np.arange(20), np.arange(24))[:, :, None] * np.array([3, 4, 9]) + moving[0, 3, 3]
    sprites = np.add.outer(np.arange(20) // 3, np.arange(24) ** 2 // 9) % 11
    sprites[5:12, 6:15] = np.add.outer(np.arange(7), np.arange(9)) % 4 + 7
    of_sprites = np.stack([np.roll(sprites, i, axis=1) for i in (0, 1, 3)])[..., None] * np.array([9, 22, 5])
    payload = np.array([0x7FC00001, 0xFFFFFFFF, 0x80000000, 0x3F800000], np.uint32).view(np.float32)
    return {
        "image": image,
        "moving-image": moving,
        "moving-colors": np.stack([np.roll(colors**2 // 50, i, axis=1) for i in (0, 2, 4)]).astype(np.uint8),
        "moving-sprites": of_sprites.astype(np.uint8),
        "narrow-sprites": of_sprites[:, :, :20].astype(np.uint8),
        "constant-of-70000": np.full(70_000, 7, np.uint8),
        "nan-payloads-and-negative-zero": payload,
        "empty": np.zeros((0, 3), np.int16),
        "scalar": np.array(-1.5),
        "bools": np.arange(19) % 3 == 0,
        "complex": np.array([1 + 2j, 1 + 2j, -0.0 - 1j]),
        "bfloat16": np.array([1.5, 1.5, -0.0], ml_dtypes.bfloat16),
        "times": np.array(["2000-01-01", "NaT"], "datetime64[ns]"),
        "short-rows": (np.arange(1, 61) * 37 % 251).astype(np.uint8).reshape(20, 3),
        "depths": (np.add.outer(np.arange(20) * 700, np.arange(24) ** 2 * 90) + moving[:3, :1, :1]).astype(np.uint16),
        "metres": (9 - np.add.outer(np.arange(20) / 7, np.arange(24) ** 2 / 90) + moving[:3, :1, :1]).astype("f4"),
        "ramp-of-uint16": np.arange(250, 270, dtype=np.uint16).reshape(10, 2),
    }


SPECS = {
    "raw": ("image", "empty", "scalar", "nan-payloads-and-negative-zero", "bfloat16", "times"),
    "rle": ("image", "constant-of-70000", "empty", "scalar", "complex", "bools", "ramp-of-uint16"),
    "delta-rle": (
        "moving-image",
        "empty",
        "scalar",
        "bools",
        "ramp-of-uint16",
        "nan-payloads-and-negative-zero",
        "short-rows",
    ),
    "delta-rle|zstd:3": ("moving-image", "empty", "short-rows"),
    "palette": ("moving-image", "moving-sprites", "narrow-sprites", "moving-colors"),
    "pred": ("moving-image", "moving-colors", "narrow-sprites", "depths"),
    "zstd:3": ("image", "empty", "times"),
    "zstd:-5": ("image",),
    "lz4": ("image", "empty"),
    "lz4:9": ("image",),
    "shuffle|raw": ("nan-payloads-and-negative-zero", "complex"),
    "bitpack|raw": ("bools",),
    "delta|raw": ("image", "ramp-of-uint16"),
    "rle|zstd:3": ("image", "ramp-of-uint16"),
    "delta|shuffle|lz4": ("ramp-of-uint16",),
    "lorenzo|raw": ("metres", "nan-payloads-and-negative-zero", "complex", "scalar", "empty"),
    "shuffle|pred": ("metres",),
    "lorenzo|shuffle|pred": ("metres",),
}

FITTED = (("zstd:3", "image"), ("delta-rle", "moving-image"), ("pred", "moving-colors"), ("palette", "moving-sprites"))


def checksum(x: npt.NDArray[np.generic]) -> str:
    """What ``golden/checksums.csv`` records, so that a change of the tensors is noticed too."""
    return f"{x.dtype.name},{'x'.join(map(str, x.shape))},{zlib.crc32(x.tobytes()):08x}"


def write_fitted(spec: str, name: str) -> None:
    """A stream with a dictionary, and the config of the codec that reads it."""
    path = GOLDEN / f"{file_name(spec)}+dictionary_{name}.json"
    if path.exists():
        return
    x = tensors()[name]
    samples = np.stack([np.roll(x, i, axis=(-2, -1)) for i in range(100)])
    fitted = codec(spec, Layout.of(x)).fit(samples)
    path.write_text(json.dumps(fitted.config()) + "\n")
    path.with_suffix(".obsc").write_bytes(fitted.encode(x).to_bytes())


def file_name(spec: str) -> str:
    """A spec as part of the name of a file."""
    return spec.replace("|", "+").replace(":", "=")


def main() -> None:
    """Write what is missing."""
    GOLDEN.mkdir(exist_ok=True)
    contents = tensors()
    for spec, names in SPECS.items():
        for name in names:
            path = GOLDEN / f"{file_name(spec)}_{name}.obsc"
            if not path.exists():
                path.write_bytes(encode(contents[name], spec).to_bytes())
    for spec, name in FITTED:
        write_fitted(spec, name)
    lines = [f"{name},{checksum(x)}\n" for name, x in contents.items()]
    (GOLDEN / "checksums.csv").write_text("tensor,dtype,shape,crc32\n" + "".join(lines))


if __name__ == "__main__":
    main()
