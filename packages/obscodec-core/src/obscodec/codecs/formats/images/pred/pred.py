"""``pred``: images as the differences of their pixels from a prediction by their neighbours."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from obscodec.codecs.formats.images.geometry import SIDE
from obscodec.codecs.formats.images.groups import Books, books_of, new_predicted, trained
from obscodec.codecs.formats.images.image_codec import ImageCodec
from obscodec.codecs.formats.images.pred.decode import decode_items
from obscodec.codecs.formats.images.pred.encode import encode_items
from obscodec.codecs.formats.images.scratch import new_scratch
from obscodec.codecs.formats.images.sections import PREDICTED
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints, Segments
from obscodec.statuses import check
from obscodec.varint import encode_varint

_FEW_COLOURS: Final = 64
_N_SAMPLES: Final = 128  # frames that a dictionary is trained on


@dataclass(frozen=True)
class Pred(ImageCodec):
    """Images in tiles that are predicted from the pixels around them, or from the frame before; also of two bytes.

    See ``docs/formats/pred.md``.

    The dictionary is the code lengths of all books.
    """

    name: ClassVar[str] = "pred"
    format: ClassVar[str] = "pred@1"

    takes_depth: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dictionary:
            _ = self._books

    @cached_property
    def _books(self) -> Books:
        return books_of(self.dictionary, self.spec)

    def fit(self, samples: npt.NDArray[np.generic]) -> Self:
        """A codec with books trained on up to 128 frames of ``samples``, or a few more."""
        rows = self.layout.rows(samples)
        n_frames, geometry = self._frames
        if not rows.size:
            return self
        chosen = self._some(rows, _N_SAMPLES)
        predicted = new_predicted(len(chosen) * n_frames, geometry)
        self._encode(chosen, predicted.reshape(-1), PREDICTED)
        return self.with_dictionary(trained(predicted, geometry.n_groups).dictionary())

    def suits(self, samples: npt.NDArray[np.generic]) -> bool:
        """See ``Codec.suits``: not if all images have very few colours, for which ``palette`` is made."""
        rows, geometry = self.layout.rows(samples), self._frames[1]
        if not rows.size:
            return bool(self.misreads) or min(geometry.height, geometry.width) >= SIDE
        if geometry.n_channels == 2:  # `palette` takes no depths
            return True
        numbers, _, most = self._count_colours(rows)
        return bool(numbers.max() > min(_FEW_COLOURS, most))

    def bound(self) -> int:
        """The bytes that an item takes while it is encoded: all frames as they are, and their lengths.

        A stream that is longer than the item becomes the item as it is, behind one byte.
        """
        n_frames, geometry = self._frames
        size_nbytes = len(encode_varint(1 + geometry.frame_nbytes))
        return self.layout.nbytes + n_frames + size_nbytes * max(0, n_frames - 1)

    def encode_rows(self, rows: Rows, out: Bytes) -> Ints:
        """Encode all items in one compiled call, without the GIL."""
        if not rows.size:
            return np.zeros(len(rows), np.int64)
        return self._encode(rows, out, self._books.codes.ctypes.data)

    def _encode(self, rows: Rows, out: Bytes, codes: int) -> Ints:
        (n_frames, geometry), classes = self._frames, self._books.classes.ctypes.data
        lengths, (memory, scratch) = np.zeros(len(rows), np.int64), new_scratch(geometry, n_frames)
        encode_items(rows, n_frames, tuple(geometry), classes, codes, out, lengths, scratch)
        del memory  # not before
        return lengths

    def _decode(self, src: Segments, rows: Rows, n_wanted: Ints) -> None:
        """Decode all items in one compiled call, without the GIL."""
        (n_frames, geometry), tables = self._frames, self._books.tables.ctypes.data
        memory, scratch = new_scratch(geometry, n_frames)
        where = src.addresses(), src.lengths
        status = decode_items(*where, rows, n_frames, n_wanted, tuple(geometry), tables, scratch)
        del memory  # not before
        check(status)
