"""Targets that read messages, specs and configs, whose checksums are made right."""

import json
import random
import struct
import zlib

import numpy as np
from hostile_messages import a_message, packed
from mutators import changed, changed_text
from obscodec import CorruptStream, DictionaryMissing, EncodedTensor, Layout, decode, pack, unpack
from obscodec import codec as new_codec
from obscodec.codecs import codec_from_config, parse
from obscodec.errors import LayoutError, SpecError
from stream_targets import FITTED, LAYOUTS, SPECS, items
from targets import READ, SKIPPED, Make, Target, outcome_of

MOST = 1 << 20  # bytes of an item
_LENGTH = struct.Struct("<H")
_PACKED_HEAD = struct.Struct("<QB")


def messages() -> list[bytes]:
    """Headers and streams of hostile messages, without what leads to them and without their checksums."""
    rng = random.Random(0)
    made = []
    for _ in range(3000):
        whole = a_message(rng)
        (n,) = struct.unpack_from("<I", whole, 5)
        if n < 4096:
            made.append(_LENGTH.pack(n) + whole[9:-4])
    return made


def read_message(content: bytes) -> str:
    """A header, behind its length in two bytes, and a stream."""
    if len(content) < _LENGTH.size:
        return SKIPPED
    (n,) = _LENGTH.unpack_from(content)
    body = struct.pack("<4sBI", b"OBSC", 1, n) + content[_LENGTH.size :]
    try:
        found = EncodedTensor.from_bytes(body + struct.pack("<I", zlib.crc32(body)), max_bytes=MOST)
        x = decode(found)
    except (CorruptStream, DictionaryMissing) as error:
        return outcome_of(error)
    if (x.shape, x.dtype) != (found.layout.shape, found.layout.dtype):
        raise AssertionError(f"{found.layout} became {x.dtype}{x.shape}")
    if EncodedTensor.from_bytes(found.to_bytes()).layout != found.layout:
        raise AssertionError(f"{found.layout} is another one when it is written again")
    if x.dtype == np.bool_ and x.view(np.uint8).max(initial=0) > 1:
        raise AssertionError("a bool is neither 0 nor 1")
    return READ


def changed_message(content: bytes, rng: random.Random) -> bytes:
    """Another header, or another stream."""
    if len(content) < _LENGTH.size:
        return content + rng.randbytes(9)
    n = _LENGTH.unpack_from(content)[0]
    header, stream = content[_LENGTH.size : n + _LENGTH.size], content[n + _LENGTH.size :]
    if rng.random() < 0.5:
        header = changed_text(header, rng)[:4096]
    else:
        stream = changed(stream, rng)
    return _LENGTH.pack(len(header)) + header + stream


def repaired(content: bytes) -> bytes:
    """Packed batches with the right checksums, as far as they can be followed."""
    whole, at = bytearray(content), 0
    while at + _PACKED_HEAD.size <= len(whole):
        nbytes, n_axes = _PACKED_HEAD.unpack_from(whole, at)
        begin = at + _PACKED_HEAD.size + 8 * n_axes
        end = begin + nbytes
        if end > len(whole) or nbytes < 4:
            break
        struct.pack_into("<I", whole, end - 4, zlib.crc32(whole[begin : end - 4]))
        at = end
    return bytes(whole)


def read_packed(content: bytes) -> str:
    """Batches, one after the other."""
    try:
        for batch in unpack(repaired(content), max_bytes=MOST):
            if batch.ndim < 1:
                raise AssertionError("a batch without axes")
    except (CorruptStream, DictionaryMissing) as error:
        return outcome_of(error)
    return READ


def specs() -> list[bytes]:
    """Specs, each behind a byte that chooses a layout."""
    known = [spec for group in SPECS.values() for spec in group] + [
        "lz4:-3",
        "zstd:-100",
        "zstd-3",
        "rle:1",
        "|",
        "a|b",
    ]
    return [bytes([k % len(LAYOUTS)]) + spec.encode() for k, spec in enumerate(known)]


def read_spec(content: bytes) -> str:
    """A codec is made, or not; what is made encodes and decodes."""
    if not content:
        return SKIPPED
    layout, spec = LAYOUTS[content[0] % len(LAYOUTS)], content[1:].decode(errors="surrogateescape")
    try:
        stages = parse(spec)
        made = new_codec(spec, layout)
    except (SpecError, LayoutError) as error:
        return outcome_of(error)
    if new_codec(made.spec, layout) != made or not stages:
        raise AssertionError(f"{made.spec!r} makes another codec than {spec!r}")
    if "zstd" not in spec or len(spec) < 12:  # high levels take long
        (x,) = items(layout, 1)[:1]
        if made.decode(made.encode(x)).tobytes() != x.tobytes():
            raise AssertionError(f"{spec!r} is not lossless")
    return READ


def changed_spec(content: bytes, rng: random.Random) -> bytes:
    """Stages that change places, and other characters."""
    if rng.random() < 0.4:
        return changed(content, rng)
    stages = content[1:].split(b"|")
    stages.insert(rng.randrange(len(stages) + 1), rng.choice(specs())[1:])
    if rng.random() < 0.7:
        del stages[rng.randrange(len(stages))]
    if rng.random() < 0.3:
        at = rng.randrange(len(stages))
        stages[at] = stages[at].split(b":")[0] + b":%d" % rng.choice((-101, -1, 0, 1, 9, 12, 13, 22, 99, 2**64))
    return content[:1] + b"|".join(stages)


def configs() -> list[bytes]:
    """Configs of codecs, some with a dictionary."""
    layout = Layout((1, 8, 40), "|u1")
    made = [new_codec(spec, layout) for group in SPECS.values() for spec in group if "bitpack" not in spec]
    made += [new_codec(spec, layout).fit(items(layout, 600)) for spec in FITTED]
    return [json.dumps(codec.config()).encode() for codec in made]


def read_config(content: bytes) -> str:
    """A codec is made, and keeps its config, or not."""
    try:
        config = json.loads(content)
    except (ValueError, RecursionError):
        return SKIPPED
    try:
        made = codec_from_config(config)
    except (SpecError, LayoutError) as error:
        return outcome_of(error)
    if codec_from_config(json.loads(json.dumps(made.config()))) != made:
        raise AssertionError("a config makes another codec the second time")
    return READ


def _packed() -> list[bytes]:
    rng = random.Random(1)
    shapes = ((3,), (4, 2, 5), (2, 3, 4, 5), (0, 3), (2, 0, 4), (5, 4, 9, 9))
    right = [pack([np.ones(shape, dtype)]) for shape in shapes for dtype in ("|u1", "<f4", "|b1")]
    return [*right, pack([np.zeros((2, 3), "u1"), np.ones((3, 4, 5), "u1")]), *(packed(rng) for _ in range(1000))]


def text_targets() -> dict[str, Make]:
    """The targets of this file."""
    return {
        "messages": lambda: Target(messages, read_message, changed_message),
        "packed": lambda: Target(_packed, read_packed),
        "specs": lambda: Target(specs, read_spec, changed_spec),
        "configs": lambda: Target(configs, read_config, changed_text),
    }
