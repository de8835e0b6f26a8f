"""EncodedTensor: one stream with everything needed to decode it but its dictionary."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from obscodec.arguments import as_nbytes, check_kind, in_parts
from obscodec.errors import CorruptStream, LayoutError, SpecError
from obscodec.layout import Layout
from obscodec.segments import Bytes
from obscodec.stats import in_units

_MAGIC = b"OBSC"
_VERSION = 1
_HEAD = struct.Struct("<4sBI")  # magic, version, bytes of the JSON header
_CRC = struct.Struct("<I")
_FIELDS: Final = {"spec": str, "shape": list, "dtype": str, "dictionary_id": int}
_MAX_HEADER_NBYTES = 4096
_SMALL_NBYTES = 1 << 30  # the size of an item that any message may announce
_MOST_EXPANSION = 1 << 15  # zstd writes a block of 128 KiB as 4 bytes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EncodedTensor:
    """One encoded tensor.

    Attributes:
        stream: ``u8[:]``, the encoded bytes.
        layout: the shape and dtype of the tensor.
        spec: the codec, in canonical form.
        dictionary_id: of the dictionary that the stream needs, 0 for none.
    """

    stream: Bytes
    layout: Layout
    spec: str
    dictionary_id: int = 0

    def __repr__(self) -> str:
        size = f"{in_units(self.stream.nbytes)} of {in_units(self.layout.nbytes)}"
        return f"EncodedTensor({self.layout} by {self.spec!r}: {size})"

    def to_bytes(self) -> bytes:
        """Bytes that describe themselves: header, stream and checksum, see ``docs/formats/encoded-tensor.md``.

        Raises:
            SpecError: the spec is too long for a header.
        """
        header = {"spec": self.spec, **self.layout.config(), "dictionary_id": self.dictionary_id}
        text = json.dumps(header, separators=(",", ":")).encode()
        if len(text) > _MAX_HEADER_NBYTES:
            raise SpecError(f"a header has at most {_MAX_HEADER_NBYTES} bytes, with this spec {len(text)}: shorten it")
        body = _HEAD.pack(_MAGIC, _VERSION, len(text)) + text + self.stream.tobytes()
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def from_bytes(
        cls, encoded: bytes | bytearray | memoryview | Bytes, *, max_bytes: int | None = None
    ) -> EncodedTensor:
        """The inverse of :meth:`to_bytes`; copies the stream, and decodes nothing yet.

        Args:
            encoded: the bytes, possibly from a stranger; also as an array ``u8[:]``.
            max_bytes: the most bytes that the item may have: :func:`obscodec.decode` allocates them before it reads the
                stream. None for 1 GiB, or 32,768 times the size of ``encoded`` if that is more.

        Raises:
            CorruptStream: the bytes are truncated, altered, of another version, or no encoded tensor at all; or they
                announce an item of more than ``max_bytes``.
            TypeError: ``encoded`` has no bytes.
        """
        # bytes(20) would be 20 zeros; before Python 3.12, no type says that an array has a buffer
        encoded = bytes(memoryview(encoded))  # type: ignore[arg-type,unused-ignore]
        if len(encoded) < _HEAD.size + _CRC.size:
            raise CorruptStream(f"an encoded tensor has at least {_HEAD.size + _CRC.size} bytes, got {len(encoded)}")
        magic, version, header_nbytes = _HEAD.unpack_from(encoded)
        if magic != _MAGIC:
            raise CorruptStream(f"an encoded tensor begins with {_MAGIC!r}, got {magic!r}")
        if version != _VERSION:
            raise CorruptStream(
                f"encoded tensor of version {version}, this obscodec reads version {_VERSION}: use a newer obscodec"
            )
        body = encoded[: -_CRC.size]
        (crc,) = _CRC.unpack_from(encoded, len(body))
        if zlib.crc32(body) != crc:
            raise CorruptStream(
                f"checksum of the encoded tensor is {zlib.crc32(body):#010x}, its end says {crc:#010x}: "
                "the bytes are truncated or altered"
            )
        found = cls._from_checked(body, header_nbytes)
        limit = as_nbytes("max_bytes", max_bytes, 0)
        most = max(_SMALL_NBYTES, _MOST_EXPANSION * len(encoded)) if limit is None else limit
        if found.layout.nbytes > most:
            raise CorruptStream(
                f"an encoded tensor of {len(encoded):,} bytes announces an item of {found.layout.nbytes:,}, at most "
                f"{most:,} are allowed: pass max_bytes if you know who made it"
            )
        return found

    @classmethod
    def _from_checked(cls, body: bytes, header_nbytes: int) -> EncodedTensor:
        if header_nbytes > min(_MAX_HEADER_NBYTES, len(body) - _HEAD.size):
            raise CorruptStream(
                f"the header of the encoded tensor has {header_nbytes} bytes of the {len(body) - _HEAD.size} that "
                f"follow, at most {_MAX_HEADER_NBYTES} are possible"
            )
        begin = _HEAD.size + header_nbytes
        try:
            fields = _fields(body[_HEAD.size : begin])
            layout = Layout.from_config(fields)
        except (ValueError, RecursionError, LayoutError) as error:
            raise CorruptStream(f"the header of the encoded tensor can't be read: {error}") from error
        return cls(np.frombuffer(body, np.uint8, offset=begin).copy(), layout, fields["spec"], fields["dictionary_id"])


def _fields(header: bytes) -> dict[str, Any]:
    """The fields of a header: a ValueError if one is missing, given twice or of another type."""
    pairs = json.loads(header.decode(), object_pairs_hook=tuple)  # tells an object, a tuple, from a list
    names = [name for name, _ in pairs] if isinstance(pairs, tuple) else []
    if sorted(names) != sorted(_FIELDS):
        raise CorruptStream(f"an object with {', '.join(_FIELDS)} is expected, there are {', '.join(names) or 'none'}")
    for name, value in pairs:
        if type(value) is not _FIELDS[name]:  # a bool is no int
            raise CorruptStream(f"{name} is no {_FIELDS[name].__name__}: {value!r}")
    fields = dict(pairs)
    if not 0 <= fields["dictionary_id"] < 1 << 32:
        raise CorruptStream(f"dictionary_id is in 0..{(1 << 32) - 1}, got {fields['dictionary_id']}")
    return fields


def is_encoded(message: memoryview) -> bool:
    """Whether bytes begin as those of an :class:`EncodedTensor` do, and as no packed batch does, which has axes."""
    if len(message) < _HEAD.size or message.nbytes != len(message):
        return False
    magic, version, header_nbytes = _HEAD.unpack_from(message)
    return bool(magic == _MAGIC and version == _VERSION and header_nbytes <= _MAX_HEADER_NBYTES)


def check_encoded(encoded: object) -> None:
    """Raise DTypeError unless ``encoded`` is an :class:`EncodedTensor`."""
    described = "an EncodedTensor, such as encode() gives, or EncodedTensor.from_bytes() of bytes"
    check_kind("encoded", encoded, EncodedTensor, described, in_parts(encoded))
