"""The codecs of obscodec as a codec of numcodecs: for zarr arrays of version 2 and whatever else uses numcodecs.

numcodecs finds it by its entry point, so a program that reads such data need not import obscodec.
"""

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from obscodec.codecs import EncodedTensor, check_encodable, decode, encode
from obscodec.errors import DTypeError, MissingPackage, ShapeError
from obscodec.installing import install_command
from obscodec.layout import ArrayLike, storable

try:
    from numcodecs.abc import Codec
    from numcodecs.compat import ensure_ndarray, ndarray_copy
except ImportError as error:
    raise MissingPackage(f"obscodec.numcodecs needs numcodecs: {install_command('numcodecs')}") from error

_MAX_CHUNK_NBYTES = 1 << 30  # what EncodedTensor.from_bytes lets any message announce


class Obscodec(Codec):  # type: ignore[misc] # numcodecs has no types
    """Encodes a chunk of any shape and dtype as an :class:`obscodec.EncodedTensor`, with a checksum.

    The bytes of the memory of a chunk come back as they were, in C or in Fortran order and of any byte order. Texts and
    structured dtypes are encoded as bytes. Each chunk names its codec, so that chunks of different codecs can be in one
    array.

    Args:
        spec: the codec, as for :func:`obscodec.encode`; ``"auto"`` to choose one for each chunk.

    Raises:
        SpecError: the spec is malformed, or names no codec.

    Example:
        >>> codec = Obscodec()
        >>> chunk = np.arange(1000.0).reshape(10, 100)
        >>> encoded = codec.encode(chunk)
        >>> len(encoded) < chunk.nbytes / 3, np.array_equal(codec.decode(encoded), chunk)
        (True, True)
    """

    codec_id: ClassVar[str] = "obscodec"

    def __init__(self, spec: str = "auto") -> None:
        self.spec = check_encodable(spec)

    def encode(self, buf: ArrayLike) -> bytes:
        """A chunk, an array or other bytes, as a message.

        Raises:
            DTypeError: it is an array of objects, or of a dtype that the codec does not take.
            ShapeError: it has more than 1 GiB.
        """
        array = _as_stored(ensure_ndarray(buf))
        if array.nbytes > _MAX_CHUNK_NBYTES:
            raise ShapeError(f"a chunk has at most {_MAX_CHUNK_NBYTES:,} bytes, got {array.nbytes:,}: make it smaller")
        return encode(array, self.spec).to_bytes()

    def decode(self, buf: bytes | npt.NDArray[np.uint8], out: ArrayLike | None = None) -> npt.NDArray[np.generic]:
        """The chunk in a message, copied into the memory of ``out`` if given.

        Its dtype is that of the encoded chunk in little-endian byte order; an array in Fortran order comes back
        transposed, in C order: in both cases the bytes in memory are those of the chunk.

        Raises:
            CorruptStream: the message is truncated, altered, or none; or it announces more than 1 GiB.
        """
        message = EncodedTensor.from_bytes(ensure_ndarray(buf).tobytes(), max_bytes=_MAX_CHUNK_NBYTES)
        array: npt.NDArray[np.generic] = ndarray_copy(decode(message), out)
        return array

    def __repr__(self) -> str:
        return f"Obscodec({self.spec!r})"


def _as_stored(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """An array whose little-endian bytes in C order are the bytes of ``array`` in memory."""
    if array.dtype.hasobject:
        raise DTypeError("an array of objects has no bytes: put a codec that makes bytes of them before obscodec")
    if array.flags.f_contiguous:
        array = array.T
    try:
        return array.view(storable(array.dtype))
    except DTypeError:  # numpy has texts and fields, too
        return np.ascontiguousarray(array).reshape(array.shape)[..., None].view(np.uint8)
