"""``encode`` and ``decode``: one tensor, one call."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from obscodec.codecs.codec import Codec
from obscodec.codecs.encoded import EncodedTensor, check_encoded
from obscodec.codecs.registry import new_codec
from obscodec.codecs.spec import check_spec
from obscodec.errors import CorruptStream, LayoutError, SpecError
from obscodec.layout import ArrayLike, Layout, as_array


@lru_cache(maxsize=64)
def _cached_codec(spec: str, layout: Layout) -> Codec:
    return new_codec(spec, layout)


def encode(tensor: ArrayLike, spec: str) -> EncodedTensor:
    """Encode one tensor without loss.

    Args:
        tensor: a numpy array of any strides and byte order, or an object with DLPack (a torch CPU tensor) or the buffer
            protocol; of bool, integers, floats, complex, datetime64, timedelta64, bfloat16 or float8.
        spec: the codec, such as ``"zstd:3"`` or ``"shuffle|lz4"``; ``obscodec.available()`` lists the names.

    Returns:
        The stream with its layout (always little-endian) and its canonical spec.

    Raises:
        SpecError: the spec names no codec, or one that does not take this tensor.
        DTypeError: the tensor is no array, has another dtype, a mask or a unit, or is on another device.
        MissingPackage: the codec needs a package that is not installed.

    Example:
        >>> import numpy as np
        >>> encoded = encode(np.zeros((84, 84), np.uint8), "zstd:3")
        >>> encoded.stream.nbytes < 30
        True
    """
    array = as_array(tensor)
    return _cached_codec(check_spec(spec), Layout.of(array)).encode(array)


def decode(encoded: EncodedTensor, out: ArrayLike | None = None) -> npt.NDArray[np.generic]:
    """Decode one tensor, bit for bit as it was encoded.

    Args:
        encoded: from :func:`encode` or ``EncodedTensor.from_bytes``.
        out: an array of the same shape and dtype to fill, numpy or any other with DLPack; None for a new numpy array.

    Returns:
        The tensor, in little-endian byte order; a numpy view of ``out`` if given.

    Raises:
        CorruptStream: the stream is truncated, altered or of another format, or its spec and its layout name no codec.
        ShapeError: ``out`` has another shape.
        DTypeError: ``encoded`` is no EncodedTensor, or ``out`` has another dtype or is read-only.
        DictionaryMissing: the stream needs a dictionary; decode it with the codec that encoded it.
        MissingPackage: the codec needs a package that is not installed.
        MemoryError: no room for ``encoded.layout.nbytes``; ``EncodedTensor.from_bytes`` has a limit for strangers.

    Example:
        >>> import numpy as np
        >>> decode(encode(np.array([1.5, -0.0]), "raw"))
        array([ 1.5, -0. ])
    """
    check_encoded(encoded)
    try:
        decoder = _cached_codec(encoded.spec, encoded.layout)
    except (SpecError, LayoutError) as error:
        raise CorruptStream(f"an encoded tensor of {encoded.layout} names no codec for it: {error}") from error
    return decoder.decode(encoded, out)
