"""The arguments of ``sb3-extra-buffers`` 0.5, and what to use instead."""

from collections.abc import Iterable

_FORMER = {
    "compression_method": "name the codec instead, as in codec='zstd:3', or leave it out for the best one",
    "compression_kwargs": "write the level into the codec, as in codec='zstd:3'",
    "decompression_kwargs": "leave it out: a stream says how it is decoded",
    "dtypes": "leave it out: the dtype of the observation space is kept, and codecs find their own",
    "normalize_images": "leave it out: the policy divides images by 255 (normalize_images in policy_kwargs)",
    "output_dtype": "leave it out: samples have the dtype of the observation space, as in Stable-Baselines3",
}


def refuse_former(names: Iterable[str]) -> None:
    """Make sure that none of ``names`` is an argument of ``sb3-extra-buffers``.

    Raises:
        TypeError: one is; the message says what replaces it.
    """
    for name in sorted(_FORMER.keys() & set(names)):
        raise TypeError(f"{name}= is an argument of sb3-extra-buffers: {_FORMER[name]}")
