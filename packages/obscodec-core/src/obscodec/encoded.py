"""EncodedTensor: one stream together with all that it takes to decode it."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from obscodec.errors import CorruptStream, ObscodecError
from obscodec.layout import Layout
from obscodec.segments import Bytes

_MAGIC = b"OBSC"
_VERSION = 1
_HEAD = struct.Struct("<4sBI")  # magic, version, bytes of the JSON header
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True, eq=False)
class EncodedTensor:
    """One encoded tensor.

    Attributes:
        stream: ``u8[:]``, the encoded bytes.
        layout: shape and dtype of the tensor.
        spec: the codec, in canonical form.
        dictionary_id: names the dictionary that the stream needs, 0 for none.
    """

    stream: Bytes
    layout: Layout
    spec: str
    dictionary_id: int = 0

    def to_bytes(self) -> bytes:
        """A self-describing form, see ``docs/formats/encoded-tensor.md``: magic, version, header, stream, CRC-32."""
        header = {"spec": self.spec, **self.layout.config(), "dictionary_id": self.dictionary_id}
        text = json.dumps(header, separators=(",", ":")).encode()
        body = _HEAD.pack(_MAGIC, _VERSION, len(text)) + text + self.stream.tobytes()
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def from_bytes(cls, encoded: bytes | bytearray | memoryview) -> EncodedTensor:
        """The inverse of :meth:`to_bytes`; copies the stream.

        Raises:
            CorruptStream: the bytes are truncated, altered, of another version, or no encoded tensor at all.
            TypeError: ``encoded`` has no bytes.
        """
        encoded = bytes(memoryview(encoded))  # bytes(20) would be 20 zeros
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
        return cls._from_checked(body, header_nbytes)

    @classmethod
    def _from_checked(cls, body: bytes, header_nbytes: int) -> EncodedTensor:
        try:
            header = json.loads(body[_HEAD.size : _HEAD.size + header_nbytes])
            layout = Layout.from_config(header)
            spec, dictionary_id = header["spec"], header["dictionary_id"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ObscodecError) as error:
            raise CorruptStream(f"the header of the encoded tensor can't be read: {error}") from error
        if not isinstance(spec, str) or type(dictionary_id) is not int:
            raise CorruptStream(f"the header of the encoded tensor has values out of range: {header}")
        stream = np.frombuffer(body, np.uint8, offset=_HEAD.size + header_nbytes).copy()
        return cls(stream, layout, spec, dictionary_id)
