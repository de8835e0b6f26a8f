"""The codecs of obscodec as a codec of zarr arrays of version 3: from the array of a chunk to bytes.

zarr finds it by its entry point, so a program that reads such arrays need not import obscodec.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from obscodec.codecs import EncodedTensor, check_encodable, decode, encode
from obscodec.errors import CorruptStream, MissingPackage
from obscodec.installing import install_command
from obscodec.layout import Layout

try:
    from zarr.abc.codec import ArrayBytesCodec
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer, NDBuffer
    from zarr.core.chunk_grids import ChunkGrid
    from zarr.core.common import JSON, parse_named_configuration
    from zarr.core.dtype import ZDType
except ImportError as error:
    raise MissingPackage(f"obscodec.zarr needs zarr 3.1 or newer: {install_command('zarr>=3.1')}") from error


@dataclass(frozen=True)
class Obscodec(ArrayBytesCodec):
    """Encodes a chunk as an :class:`obscodec.EncodedTensor`, with a checksum; the ``serializer`` of an array.

    Further compressors would gain nothing: pass ``compressors=None``. Each chunk names its codec, so that chunks of
    different codecs can be in one array.

    Attributes:
        spec: the codec, as for :func:`obscodec.encode`; ``"auto"`` to choose one for each chunk.

    Raises:
        SpecError: the spec is malformed, or names no codec.

    Example:
        >>> import zarr
        >>> array = zarr.create_array({}, data=np.arange(9.0), serializer=Obscodec("zstd:3"), compressors=None)
        >>> array[3:5]
        array([3., 4.])
    """

    is_fixed_size = False

    spec: str = "auto"

    def __post_init__(self) -> None:
        check_encodable(self.spec)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """The codec that the metadata of an array describe."""
        _, options = parse_named_configuration(data, "obscodec", require_configuration=False)
        return cls(**(options or {}))  # type: ignore[arg-type] # checked by the constructor

    def to_dict(self) -> dict[str, JSON]:
        """What is in the metadata of an array."""
        return {"name": "obscodec", "configuration": {"spec": self.spec}}

    def validate(self, *, shape: tuple[int, ...], dtype: ZDType[Any, Any], chunk_grid: ChunkGrid) -> None:
        """Raise DTypeError if the elements of an array can't be stored."""
        del shape, chunk_grid
        Layout((), dtype.to_native_dtype())

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        return await asyncio.to_thread(self._encode_sync, chunk_data, chunk_spec)

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)

    def _encode_sync(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        return chunk_spec.prototype.buffer.from_bytes(encode(chunk_data.as_numpy_array(), self.spec).to_bytes())

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        layout = Layout(chunk_spec.shape, chunk_spec.dtype.to_native_dtype())
        message = EncodedTensor.from_bytes(chunk_data.to_bytes(), max_bytes=layout.nbytes)
        if message.layout != layout:
            raise CorruptStream(f"a chunk of the array is {layout}, there is one of {message.layout}")
        return chunk_spec.prototype.nd_buffer.from_numpy_array(np.asarray(decode(message)))

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Unknown before a chunk is encoded, so zarr asks for a NotImplementedError."""
        raise NotImplementedError
