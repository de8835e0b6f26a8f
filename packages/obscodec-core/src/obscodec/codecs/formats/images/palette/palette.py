"""``palette``: images of few colours, as what their pixels are among the colours that follow their neighbours."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from obscodec.codecs.formats.images.geometry import plane_geometry
from obscodec.codecs.formats.images.image_codec import ImageCodec
from obscodec.codecs.formats.images.palette.decode import PLAIN, PRED, decode_items
from obscodec.codecs.formats.images.palette.dictionary import Tables, tables_in
from obscodec.codecs.formats.images.palette.encode import encode_with
from obscodec.codecs.formats.images.palette.training import train
from obscodec.codecs.formats.images.pred import Pred
from obscodec.codecs.formats.images.scratch import N_COLOURS, new_scratch
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints, Segments
from obscodec.statuses import check

_N_SAMPLES: Final = 256  # frames that a dictionary is trained on
_MIN_SHARE: Final = 0.75  # of images of few colours
_MOST_GREYS: Final = 64  # more of them are rather smooth than a palette


@dataclass(frozen=True)
class Palette(ImageCodec):
    """Images of at most 256 colours, in tiles that are predicted from the pixels around them, or from the frame before.

    Items of more colours are stored by ``pred``. See ``docs/formats/palette.md``.

    The dictionary is a palette, the orders in which its colours follow each other, and the code lengths of all books.
    """

    name: ClassVar[str] = "palette"
    format: ClassVar[str] = "palette@1"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dictionary:
            _ = self._pred

    @cached_property
    def _tables(self) -> Tables:
        return tables_in(self.dictionary, self._frames[1].n_channels, self.spec)

    @cached_property
    def _pred(self) -> Pred:
        """The codec of items of more than 256 colours."""
        return Pred(self.layout, dictionary=self._tables.pred)

    @cached_property
    def _plain(self) -> Self:
        """The codec of items of at most 256 colours that are more together with those of the dictionary."""
        return self.with_dictionary(b"")

    def fit(self, samples: npt.NDArray[np.generic]) -> Self:
        """A codec with a dictionary trained on up to 256 frames of ``samples``, or a few more.

        The colours of this codec's dictionary keep their places, unless those of the samples find no room behind them.
        Samples of more than 256 colours train the books of ``pred`` alone; this codec if there are no others.
        """
        rows = self.layout.rows(samples)
        if not rows.size:
            return self
        trained = train(self._some(rows, _N_SAMPLES), Pred(self.layout), self._tables.keys)
        return self if trained is None else self.with_dictionary(trained.to_bytes())

    def suits(self, samples: npt.NDArray[np.generic]) -> bool:
        """See ``Codec.suits``: if three quarters of the images have few colours; the others are stored by ``pred``."""
        rows = self.layout.rows(samples)
        if not rows.size:
            return False
        numbers, are_grey, most = self._count_colours(rows)
        return bool(np.mean(numbers <= min(_MOST_GREYS if are_grey else N_COLOURS, most)) >= _MIN_SHARE)

    def bound(self) -> int:
        """The bytes that an item takes while it is encoded: those of ``pred``, and the byte that says so."""
        return Pred(self.layout).bound() + (1 if self.layout.nbytes else 0)

    def encode_rows(self, rows: Rows, out: Bytes) -> Ints:
        """Encode all items of few colours in one compiled call, without the GIL, and the others in another one."""
        if not rows.size:
            return np.zeros(len(rows), np.int64)
        lengths = self._encode_few(rows, out)
        if lengths.all():
            return lengths
        parts = [stream.tobytes() for stream in Segments.packed(out, lengths)]
        for behind, encode in ((PLAIN, self._plain._encode_few), (PRED, self._pred.encode_rows)):
            which = [i for i, part in enumerate(parts) if not part]
            if self.dictionary or behind == PRED:
                scratch = np.empty(len(which) * self.bound(), np.uint8)
                for i, stream in zip(which, Segments.packed(scratch, encode(rows[which], scratch)), strict=True):
                    parts[i] = behind + stream.tobytes() if len(stream) else b""
        joined = b"".join(parts)
        out[: len(joined)] = np.frombuffer(joined, np.uint8)
        return np.array([len(part) for part in parts])

    def _decode(self, src: Segments, rows: Rows, n_wanted: Ints) -> None:
        """Decode all items of few colours in one compiled call, without the GIL, and the others in another one."""
        n_frames, geometry = self._frames
        tables, others = self._tables, np.empty(len(rows), np.uint8)
        memory, scratch = new_scratch(geometry, n_frames)
        status = decode_items(
            src.addresses(),
            src.lengths,
            rows,
            others,
            n_frames,
            n_wanted,
            tuple(geometry),
            tuple(plane_geometry(geometry)),
            tables.known.ctypes.data,
            len(tables.keys),
            tuple(tables.orders),
            tables.books.tables.ctypes.data,
            scratch,
        )
        del memory  # not before
        check(status)
        if others.any():
            for behind, other in ((PRED, self._pred), (PLAIN, self._plain)):
                which = np.flatnonzero(others == len(behind))
                if which.size:
                    decoded = np.empty((len(which), rows.shape[1]), np.uint8)
                    other._decode(src.take(which).behind(np.full(len(which), len(behind))), decoded, n_wanted[which])
                    rows[which] = decoded

    def _encode_few(self, rows: Rows, out: Bytes) -> Ints:
        """Write the streams of items that the palette suits, and return their lengths, 0 for the others."""
        tables = self._tables
        return encode_with(tables, rows, *self._frames, out, tables.books.codes.ctypes.data)
