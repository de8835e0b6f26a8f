"""Residuals in groups of 32, and the code words for them: the bits of ``pred``.

Groups become bits and back. They never know which pixels they are of, nor how these were predicted.
"""

from obscodec.codecs.formats.images.groups.books import DICTIONARY_NBYTES, Books, books_of, new_predicted, trained
from obscodec.codecs.formats.images.groups.classes import N_MARKS, SLACK
from obscodec.codecs.formats.images.groups.reader import decode_groups
from obscodec.codecs.formats.images.groups.writer import bits_nbytes, encode_groups

__all__ = [
    "DICTIONARY_NBYTES",
    "N_MARKS",
    "SLACK",
    "Books",
    "bits_nbytes",
    "books_of",
    "decode_groups",
    "encode_groups",
    "new_predicted",
    "trained",
]
