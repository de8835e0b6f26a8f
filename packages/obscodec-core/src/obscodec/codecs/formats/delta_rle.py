"""``delta-rle``: a block of frames, each stored as what changed since the one before it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from obscodec.codecs.codec import Codec
from obscodec.errors import SpecError
from obscodec.layout import Rows
from obscodec.segments import Bytes, Segments, joined, put_streams
from obscodec.statuses import OK, OUTSIDE_BUFFER, check
from obscodec.streams import (
    MAX_REFERENCES,
    NO_PATCHES,
    NO_VERSIONS,
    add_references,
    encode_block,
    frame_scratch,
    read_blocks,
    runs_bound,
)
from obscodec.varint import MAX_VARINT_NBYTES, encode_varint

_NO_PATCHES = encode_varint(NO_PATCHES)
_MOST_IN_DICTIONARY = NO_PATCHES - 1  # frames; reference 0 is zeros


@dataclass(frozen=True)
class DeltaRle(Codec):
    """Delta and run-length coding along the first axis, byte by byte. See ``docs/formats/delta-rle.md``.

    The dictionary is reference frames, one behind the other. The first frame is a patch of the nearest, or of zeros.
    """

    name: ClassVar[str] = "delta-rle"
    format: ClassVar[str] = "delta-rle@1"

    dictionary: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dictionary and (not self.frame_nbytes or len(self.dictionary) % self.frame_nbytes):
            raise SpecError(
                f"{self.spec} takes a dictionary of whole frames of {self.frame_nbytes} bytes, "
                f"got {len(self.dictionary)} bytes"
            )
        if len(self.dictionary) > _MOST_IN_DICTIONARY * self.frame_nbytes:
            raise SpecError(
                f"{self.spec} takes a dictionary of at most {_MOST_IN_DICTIONARY} frames, "
                f"got {len(self.dictionary) // self.frame_nbytes}"
            )

    @property
    def n_frames(self) -> int:
        """Frames of an item: its first axis; one for a scalar, none for an item without bytes."""
        return self.layout.nbytes // self.frame_nbytes if self.frame_nbytes else 0

    @property
    def frame_nbytes(self) -> int:
        """Bytes of a frame; 0 if the item has none."""
        return math.prod(self.layout.shape[1:]) * self.layout.dtype.itemsize if self.layout.nbytes else 0

    def fit(self, samples: npt.NDArray[np.generic]) -> Self:
        """A codec whose reference frames are the first frames of ``samples`` that are far from each other."""
        rows = self.layout.rows(samples)
        if not rows.size:
            return self
        references = np.zeros((MAX_REFERENCES, self.frame_nbytes), np.uint8)
        firsts = np.ascontiguousarray(rows[:, : self.frame_nbytes])
        n = add_references(firsts, references, *self._scratch())
        return self.with_dictionary(references[1:n].tobytes())

    def bound(self) -> int:
        """A number in the place of a reference, and the frames as they are."""
        return len(_NO_PATCHES) + self.layout.nbytes

    def read_bound(self) -> int:
        """The most bytes that patches can have, which a :class:`FrameStore` keeps however many they are.

        Runs behind the first of a frame take no more bytes than the gaps before them save, plus one for each 2 MiB.
        The count, and the skip and the length of the first run, are varints of numbers up to the size of the frame.
        """
        nbytes, of_frame = self.layout.nbytes, 3 * len(encode_varint(self.frame_nbytes))
        return nbytes + (nbytes >> 21) + self.n_frames * of_frame + 2 * MAX_VARINT_NBYTES

    def encode_rows(self, rows: Rows, out: Bytes) -> list[int]:
        """Encode patch by patch; what these make longer stays as it is."""
        return put_streams(self._streams(rows), out)

    def _streams(self, rows: Rows) -> Iterator[Bytes]:
        references = self._references()
        runs, literals = self._scratch()
        most = self.bound()
        for row in rows:
            frames = row.reshape(self.n_frames, self.frame_nbytes)
            reference, runs_nbytes, n_literals = encode_block(frames, references, runs, literals)
            head = encode_varint(reference) + encode_varint(runs_nbytes)
            if len(head) + runs_nbytes + n_literals <= most:
                yield joined(head, runs[:runs_nbytes].data, literals[:n_literals].data)
            else:
                yield joined(_NO_PATCHES, row.data)

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        """Decode all blocks in one compiled call, without the GIL."""
        n = self.n_frames
        check(OK if src.inside().all() else OUTSIDE_BUFFER)
        src = src.contiguous()
        starts, all_frames = np.arange(len(rows) + 1) * n, np.empty(0, np.int64)
        wanted = starts, all_frames, all_frames, rows.reshape(len(rows) * n, self.frame_nbytes)
        references, scratch = self._references(), frame_scratch(self.frame_nbytes)
        check(read_blocks(*wanted, src.addresses(), src.lengths, references, n, NO_VERSIONS, scratch))

    def _references(self) -> Rows:
        """``u8[n, frame_nbytes]``: a frame of zeros, and the dictionary."""
        # Writable, though nobody writes: numba would compile the kernels once more for arrays that are read-only.
        known = np.frombuffer(bytearray(self.frame_nbytes) + self.dictionary, np.uint8)
        return known.reshape(1 + len(self.dictionary) // max(1, self.frame_nbytes), self.frame_nbytes)

    def _scratch(self) -> tuple[Bytes, Bytes]:
        """Memory for the runs and for the literals of an item, see :func:`encode_block`."""
        nbytes = self.layout.nbytes
        return np.empty(nbytes + runs_bound(self.frame_nbytes), np.uint8), np.empty(nbytes, np.uint8)
