"""``encode`` and ``decode``: one tensor, one call."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from obscodec.arguments import says_arguments
from obscodec.codecs.auto import AUTO, is_worth, sample_of, worth_trying
from obscodec.codecs.codec import Codec
from obscodec.codecs.encoded import EncodedTensor, check_encoded
from obscodec.codecs.registry import check_codec, new_codec
from obscodec.codecs.spec import check_spec
from obscodec.errors import CorruptStream, LayoutError, SpecError
from obscodec.layout import ArrayLike, Layout, as_array


@lru_cache(maxsize=64)
def _cached_codec(spec: str, layout: Layout) -> Codec:
    return new_codec(spec, layout)


@says_arguments
def encode(tensor: ArrayLike, spec: str = AUTO) -> EncodedTensor:
    """Encode one tensor without loss.

    With ``"auto"``, equal tensors always get the same codec: of ``raw``, ``zstd:3``, and ``zstd:3`` behind ``rle``,
    ``shuffle``, ``delta|shuffle``, ``lorenzo|shuffle``, ``bitpack`` or ``delta-rle``, as far as dtype and shape suit,
    the one with the shortest stream. A tensor that none of them makes at least a twentieth smaller, or that has less
    than 64 bytes, is stored ``raw``. They are tried on the tensor if it has at most 256 KiB, else on a sample of this
    size, so that a large tensor takes hardly longer than with the codec that is chosen. The first call compiles some
    kernels, within seconds, and keeps them on disk.

    Args:
        tensor: a numpy array of any strides and byte order, or an object with DLPack (a torch CPU tensor) or the buffer
            protocol; of bool, integers, floats, complex, datetime64, timedelta64, bfloat16 or float8.
        spec: the codec, such as ``"zstd:3"`` or ``"shuffle|lz4"``; ``obscodec.available()`` lists the names. With
            ``"auto"``, the tensor decides.

    Returns:
        The stream with its layout (always little-endian) and its canonical spec, never ``"auto"``.

    Raises:
        SpecError: the spec names no codec, or one that does not take this tensor, or takes it for other images.
        DTypeError: the tensor is no array, has another dtype, a mask or a unit, or is on another device.

    Example:
        >>> import numpy as np
        >>> encoded = encode(np.zeros((84, 84), np.uint8), "zstd:3")
        >>> encoded.stream.nbytes < 30
        True
        >>> encode(np.arange(1000)).spec
        'shuffle|zstd:3'
    """
    array = as_array(tensor)
    if check_spec(spec) == AUTO:
        return _smallest(array)
    named = _cached_codec(spec, Layout.of(array))
    if named.misreads:
        raise SpecError(
            f"{named.spec} takes no images of {array.shape[-1]} channels, and would take {named.layout} for "
            f"{named.misreads} pixels: use 'auto' or zstd:3, or encode channels apart"
        )
    return named.encode(array)


def check_encodable(spec: object) -> str:
    """``spec``, which :func:`encode` takes for some tensor.

    Raises:
        SpecError: it is malformed, names no codec, or has a level that the codec does not offer.
    """
    checked = check_spec(spec)
    if checked != AUTO:
        check_codec(checked)
    return checked


def _encoded(array: npt.NDArray[np.generic], spec: str) -> EncodedTensor:
    return _cached_codec(spec, Layout.of(array)).encode(array)


def _smallest(array: npt.NDArray[np.generic]) -> EncodedTensor:
    """The tensor by the codec that makes a sample of it smallest, or as it is."""
    sample = sample_of(array)
    trials = [_encoded(sample, spec) for spec in worth_trying(array)]
    if trials:
        best = min(trials, key=lambda trial: trial.stream.nbytes)
        if is_worth(best.stream.nbytes, sample.nbytes):
            if sample is not array:
                best = _encoded(array, best.spec)
            if is_worth(best.stream.nbytes, array.nbytes):
                return best
    return _encoded(array, "raw")


@says_arguments
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
