"""``rle``: runs of equal elements; one section of run lengths, one of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from obscodec.codec import Codec
from obscodec.codecs.rle_kernel import EXPLANATIONS, OK, decode_runs
from obscodec.errors import CorruptStream
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints, Segments
from obscodec.varint import varint_nbytes, write_varints


@dataclass(frozen=True)
class Rle(Codec):
    """Run-length coding of whole elements, of 1, 2, 4 or 8 bytes. See ``docs/formats/rle.md``."""

    name: ClassVar[str] = "rle"
    format: ClassVar[str] = "rle@1"

    @property
    def width(self) -> int:
        """Bytes of an element: the largest power of two that divides the dtype's, at most 8."""
        itemsize = self.layout.dtype.itemsize
        return min(itemsize & -itemsize, 8)

    @property
    def size(self) -> int:
        """Elements of an item."""
        return self.layout.nbytes // self.width

    def bound(self) -> int:
        """The most bytes that the stream of one item can have: each element is a run."""
        return int(varint_nbytes(np.array([self.size]))[0]) + self.size * (1 + self.width)

    def encode_rows(self, rows: Rows, out: Bytes) -> Ints:
        """Find the runs of all rows at once, then write all streams, section by section."""
        starts, run_counts = self._runs(rows)
        run_lengths = np.diff(starts, append=len(rows) * self.size)
        run_nbytes = varint_nbytes(run_lengths)
        head_nbytes = varint_nbytes(run_counts)
        first_runs = np.cumsum(run_counts) - run_counts
        lengths_before = np.cumsum(run_nbytes) - run_nbytes  # bytes of the run lengths of all runs before

        row_lengths_nbytes = np.diff(np.append(lengths_before, run_nbytes.sum())[np.append(first_runs, len(starts))])
        stream_nbytes = head_nbytes + row_lengths_nbytes + run_counts * self.width
        heads_at = np.cumsum(stream_nbytes) - stream_nbytes
        write_varints(run_counts, heads_at, head_nbytes, out)

        lengths_at = heads_at + head_nbytes  # of each row; below, of each run
        values_at = lengths_at + row_lengths_nbytes
        before = np.append(lengths_before, 0)[first_runs]
        write_varints(run_lengths, lengths_before + np.repeat(lengths_at - before, run_counts), run_nbytes, out)
        _write_values(
            rows.reshape(-1, self.width)[starts],
            np.arange(len(starts)) * self.width + np.repeat(values_at - first_runs * self.width, run_counts),
            out,
        )
        return np.asarray(stream_nbytes)

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        """Fill the runs: one compiled call for all streams of a buffer, without the GIL."""
        elements = rows.view(f"u{self.width}") if rows.size else np.empty((len(rows), 0), f"u{self.width}")
        for number, buffer in enumerate(src.buffers):
            chosen = np.flatnonzero(src.which == number)
            frozen = buffer.view()
            frozen.flags.writeable = False  # one type for the compiler, whoever owns the bytes
            status = decode_runs(frozen, src.offsets[chosen], src.lengths[chosen], elements, chosen)
            if status != OK:
                raise CorruptStream(EXPLANATIONS[status])

    def _runs(self, rows: Rows) -> tuple[Ints, Ints]:
        """The first element of each run, counted through all rows, and the number of runs of each row."""
        if rows.size == 0:
            return np.empty(0, np.int64), np.zeros(len(rows), np.int64)
        elements = rows.view(f"u{self.width}")
        begins = np.ones(elements.shape, np.bool_)
        np.not_equal(elements[:, 1:], elements[:, :-1], out=begins[:, 1:])
        return np.flatnonzero(begins), np.count_nonzero(begins, axis=1).astype(np.int64)


def _write_values(values: Rows, at: Ints, out: Bytes) -> None:
    """Write each of ``values``, ``u8[n, width]``, to ``out`` at the positions ``at``."""
    for k in range(values.shape[1]):
        out[at + k] = values[:, k]
