"""Messages with a right checksum that nobody honest wrote.

Each begins with what obscodec wrote, and changes what the checksum is taken of: the header, the stream, the inner
stream of a chain, the announced sizes of the libraries' own frames.
"""

import json
import random
import struct
import zlib

import numpy as np
from obscodec import Layout, codec, encode, pack
from obscodec.codecs.chain import FilteredCodec, TailedCodec
from obscodec.varint import decode_varint, encode_varint

FILTERS = ("shuffle", "bitpack", "delta", "lorenzo")
HEADS = ("raw", "rle", "delta-rle", "zstd:1", "lz4", "lz4:9")
TAILS = ("zstd:1", "lz4", "lz4:9")
DTYPES = ("|b1", "|u1", "<u2", "<i4", "<f8", "<c16", "<M8[ns]", "bfloat16", "float8_e5m2")
SHAPES: tuple[tuple[int, ...], ...] = (
    *((), (0,), (1,), (7,), (40, 5), (3, 0, 2), (4, 5, 6), (300, 1), (1, 300), (2,) * 12),
)

JUNK: list[object] = [
    None, True, False, -1, 0, 1, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64, 10**400, 0.5, 1e400, float("nan"), "", "0",
    "raw", [], [[]], [None], [True], [2.0], ["2"], [-1], [2**40], [2**20, 2**20], [2**62], [2**62, 2**62], [0, 2**62],
    [2**62, 0], [2**63], [0, 2**70], [1] * 63, [1] * 64, [0] * 63, [2] * 63, {}, {"a": 1}, {"shape": [2]}, "\ud800",
    "é", "x" * 3000,
]  # fmt: skip
DTYPE_JUNK = [
    "(2,3)f4,f4", "f4,f4", "(((((", "(2,)u1", "3u1", "a5", "V8", "S5", "U9", "O", "T", ">f4", "=f4", "f4", "uint8",
    "<u1", "|f4", "<M8[0s]", "<M8[s/3]", "<M8[generic]", "<M8[9999999999s]", "<M8[25s]", "<m8", "<M8[s][s]", "int",
    "object", "<f16", "<f2\0", "float8_e4m3", "float4_e2m1fn", "int4", "__import__('os')", "<i3", "|b2", "<c8",
    "{'names':['a'],'formats':['u1']}",
]  # fmt: skip
SPEC_JUNK = [
    "", "|", "raw|", "|raw", "nope", "zstd:", "zstd:99", "zstd:1,2", "zstd:²", "zstd-3", "raw|raw", "raw|rle",
    "shuffle", "raw:1", "RAW", "zstd:3" * 100, "|".join(["raw"] * 900), "|".join(["shuffle"] * 7 + ["raw"]),
    "raw" + "|zstd" * 7, "raw" + "|lz4" * 8, "os:system", "../raw", "raw\0", "delta|raw", "bitpack|raw",
    "delta|delta|rle", "rle|lz4|lz4|lz4", "zstd:-100", "lz4:12",
]  # fmt: skip


def message(header: object, stream: bytes, header_nbytes: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = struct.pack("<4sBI", b"OBSC", 1, len(text) if header_nbytes is None else header_nbytes) + text + stream
    return body + struct.pack("<I", zlib.crc32(body))


def item(rng: random.Random) -> np.ndarray:
    """A tensor of any kind, more or less compressible."""
    layout = Layout(rng.choice(SHAPES), rng.choice(DTYPES))
    numbers = np.random.default_rng(rng.getrandbits(32))
    rows = numbers.integers(0, 256, (1, layout.nbytes), np.uint8)
    if rng.random() < 0.7:
        rows = np.repeat(rows, rng.choice((3, 8, 50)), axis=1)[:, : layout.nbytes]
    if rng.random() < 0.3:
        rows[:] = 0
    return layout.tensors(np.ascontiguousarray(rows & 1 if layout.dtype == np.bool_ else rows))[0, ...]


def spec_of(rng: random.Random) -> str:
    filters = rng.choices(FILTERS, k=rng.choice((0, 0, 1, 2)))
    tails = rng.choices(TAILS, k=rng.choice((0, 0, 1, 1, 2, 4)))
    return "|".join([*filters, rng.choice(HEADS), *tails])


def changed(stream: bytes, rng: random.Random) -> bytes:
    """Some bytes of a stream are others, gone or more."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(stream) + 1)
        kind = rng.randrange(7)
        if kind == 0 and at < len(stream):
            stream = stream[:at] + bytes([stream[at] ^ 1 << rng.randrange(8)]) + stream[at + 1 :]
        elif kind == 1:
            stream = stream[:at] + rng.randbytes(rng.randrange(4)) + stream[at + rng.randrange(4) :]
        elif kind == 2:
            stream = stream[:at]
        elif kind == 3:
            stream += rng.randbytes(rng.randrange(20))
        elif kind == 4:  # numbers that are out of all proportion
            stream = stream[:at] + encode_varint(int(2 ** rng.uniform(6, 62.9))) + stream[at + 1 :]
        elif kind == 5:
            width = rng.choice((2, 4, 8))
            number = rng.choice((0, 1, 2**30, 2**40, 2**63, 2**64 - 1, rng.getrandbits(64))) % 256**width
            stream = stream[:at] + number.to_bytes(width, "little") + stream[at + width :]
        else:
            begin = rng.randrange(len(stream) + 1)
            stream = stream[:at] + stream[begin : begin + rng.randrange(30)] + stream[at:]
    return stream


def changed_inside(coder: object, stream: bytes, rng: random.Random) -> bytes:
    """A stream of a chain whose inner stream is changed, with sizes that are right, or lies."""
    if isinstance(coder, FilteredCodec):
        return changed_inside(coder.inner, stream, rng)
    if not isinstance(coder, TailedCodec) or rng.random() < 0.2:
        return changed(stream, rng)
    nbytes, start = decode_varint(np.frombuffer(stream, np.uint8))
    inner = changed_inside(coder.inner, coder.tail.decompress_exactly(memoryview(stream)[start:], nbytes), rng)
    if rng.random() < 0.1:
        inner += bytes(rng.choice((1000, 100_000, 3 << 20)))
    announced = len(inner) if rng.random() < 0.7 else rng.choice((0, 1, len(inner) + 1, 2**30, 2**40, 2**62))
    return encode_varint(announced) + coder.tail.compress(memoryview(inner))


def a_message(rng: random.Random) -> bytes:
    """A message that was right once."""
    while True:
        x, spec = item(rng), spec_of(rng)
        try:
            encoded = encode(x, spec)
            break
        except (ValueError, TypeError):
            continue  # a filter that does not take the item
    header: dict[str, object] = {"spec": encoded.spec, **encoded.layout.config(), "dictionary_id": 0}
    stream = bytes(encoded.stream)
    kind = rng.randrange(10)
    if kind <= 3:
        coder = codec(encoded.spec, encoded.layout)
        return message(header, changed_inside(coder, stream, rng))
    if kind == 4:
        return message({**header, "shape": rng.choice(SHAPES), "dtype": rng.choice(DTYPES)}, stream)
    if kind == 5:
        return message({**header, "spec": rng.choice(SPEC_JUNK) if rng.random() < 0.5 else spec_of(rng)}, stream)
    if kind == 6:
        sizes = [
            int(2 ** rng.uniform(0, rng.choice((10, 34, 62)))) * rng.choice((0, 1, 1, 1))
            for _ in range(rng.randrange(1, 4))
        ]
        return message({**header, "shape": sizes}, rng.choice((stream, changed(stream, rng), b"", b"\0", b"\0\0")))
    if kind == 7:
        name = rng.choice(list(header))
        junk: list[object] = (
            [*JUNK, *DTYPE_JUNK] if name == "dtype" else [*JUNK, *SPEC_JUNK] if name == "spec" else JUNK
        )
        if name == "dictionary_id":
            junk = [*JUNK, 5, 2**32 - 1]
        return message({**header, name: rng.choice(junk)}, stream)
    return message(changed_text(json.dumps(header), rng), stream, rng.choice((None, None, None, 0, 1, 2**32 - 1)))


def changed_text(text: str, rng: random.Random) -> bytes:
    """A header that is no JSON, or JSON of another shape."""
    kind = rng.randrange(8)
    if kind == 0:
        return changed(text.encode(), rng)
    if kind == 1:
        return rng.choice((b"[", b'{"a":', b'{"spec":[')) * rng.choice((100, 900, 3000, 100_000))
    if kind == 2:
        return text.replace("{", '{"spec": "raw", ', 1).encode()  # twice
    if kind == 3:
        return text.replace("{", '{"more": 1, ', 1).encode()
    if kind == 4:
        return text.encode(rng.choice(("utf-16", "utf-32", "utf-8-sig")))
    if kind == 5:
        return json.dumps(rng.choice(JUNK)).encode()
    if kind == 6:
        return text.replace(
            '"shape": [', '"shape": [' + rng.choice(("NaN,", "Infinity,", "1e999,", "9" * 5000 + ",", "-0,", "1E2,"))
        ).encode()
    return (text + " " * rng.choice((1, 4000, 100_000))).encode()


def packed(rng: random.Random) -> bytes:
    """Packed batches that were right once."""
    dtype = rng.choice(("|u1", "<f4", "|b1"))
    batches = [
        np.zeros(rng.choice(((3,), (4, 2, 5), (2, 3, 4, 5), (0, 3), (2, 0, 4))), dtype)
        for _ in range(rng.randrange(1, 3))
    ]
    whole = pack(batches)
    (nbytes, n_axes), kind = struct.unpack_from("<QB", whole), rng.randrange(5)
    message_at = 9 + 8 * n_axes
    if kind == 0:
        return changed(whole, rng)
    if kind == 1:  # another message
        inner = a_message(rng)
        return struct.pack("<QB", len(inner), n_axes) + whole[9:message_at] + inner
    sizes = [
        rng.choice((0, 1, 2, 3, 2**31, 2**62, 2**63, 2**64 - 1))
        for _ in range(rng.choice((0, 1, 2, 3, 4, 63, 64, 65, 255)))
    ]
    if kind == 2:
        return struct.pack("<QB", nbytes, len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes) + whole[message_at:]
    shape = rng.choice(SHAPES) if rng.random() < 0.5 else tuple(size % 2**62 for size in sizes[:5])
    inner = message(
        {"spec": "delta-rle|zstd:3", "shape": list(shape), "dtype": "|u1", "dictionary_id": 0}, whole[-20:-4]
    )
    sizes = list(shape) if kind == 3 else sizes
    return struct.pack("<QB", len(inner), len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes) + inner
