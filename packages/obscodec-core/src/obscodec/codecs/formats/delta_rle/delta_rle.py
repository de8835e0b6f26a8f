"""``delta-rle``: a block of frames, each stored as what changed since the one before it."""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from obscodec.codecs.codec import Codec
from obscodec.codecs.formats.delta_rle.blocks import check, read_blocks
from obscodec.codecs.formats.delta_rle.patch import MAX_VARINT_NBYTES, frame_room, runs_bound
from obscodec.codecs.formats.delta_rle.reference_frames import MAX_REFERENCES
from obscodec.codecs.formats.delta_rle.references import add_references, encode_block
from obscodec.codecs.varint import encode_varint
from obscodec.errors import CorruptStream, SpecError
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints, Segments


@dataclass(frozen=True)
class DeltaRle(Codec):
    """Delta and run-length coding along the first axis, byte by byte. See ``docs/formats/delta-rle.md``.

    The first frame is a patch of the nearest of some reference frames, which are the dictionary of the codec; without
    one it is a patch of zeros.
    """

    name: ClassVar[str] = "delta-rle"
    format: ClassVar[str] = "delta-rle@1"

    reference_frames: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reference_frames and (not self.frame_nbytes or len(self.reference_frames) % self.frame_nbytes):
            raise SpecError(
                f"{self.spec} takes a dictionary of whole frames of {self.frame_nbytes} bytes, "
                f"got {len(self.reference_frames)} bytes"
            )

    @property
    def n_frames(self) -> int:
        """Frames of an item: its first axis; one for a scalar, none for an item without bytes."""
        return self.layout.nbytes // self.frame_nbytes if self.frame_nbytes else 0

    @property
    def frame_nbytes(self) -> int:
        """Bytes of a frame; none if the item has none, however long its other axes are."""
        return math.prod(self.layout.shape[1:]) * self.layout.dtype.itemsize if self.layout.nbytes else 0

    @property
    def dictionary(self) -> bytes:
        """The reference frames, one behind the other."""
        return self.reference_frames

    def with_dictionary(self, dictionary: bytes) -> Self:
        """This codec with other reference frames.

        Raises:
            SpecError: the bytes are no whole number of frames.
        """
        return replace(self, reference_frames=dictionary)

    def fit(self, samples: npt.NDArray[np.generic]) -> Self:
        """A codec whose reference frames are those first frames of ``samples`` that are far from each other."""
        rows = self.layout.rows(samples)
        if not rows.size:
            return self
        references = np.zeros((MAX_REFERENCES, self.frame_nbytes), np.uint8)
        firsts = np.ascontiguousarray(rows[:, : self.frame_nbytes])
        n = add_references(firsts, references, *self._scratch(1))
        return self.with_dictionary(references[1:n].tobytes())

    def bound(self) -> int:
        """The most bytes that the stream of one item can have.

        A run takes no more than the gap in front of it saves, apart from the first one of each frame, and from one byte
        for every run of 2 MiB. The count of runs, and the skip and the length of the first one, are at most the frame.
        """
        nbytes, of_frame = self.layout.nbytes, 3 * len(encode_varint(self.frame_nbytes))
        return nbytes + (nbytes >> 21) + self.n_frames * of_frame + 2 * MAX_VARINT_NBYTES

    def encode_rows(self, rows: Rows, out: Bytes) -> list[int]:
        """Patch by patch."""
        lengths = []
        end = 0
        references = self._references()
        runs, literals = self._scratch(self.n_frames)
        for row in rows:
            frames = row.reshape(self.n_frames, self.frame_nbytes)
            reference, runs_nbytes, literals_nbytes = encode_block(frames, references, runs, literals)
            head = encode_varint(reference) + encode_varint(runs_nbytes)
            stream = np.concatenate([np.frombuffer(head, np.uint8), runs[:runs_nbytes], literals[:literals_nbytes]])
            out[end : end + len(stream)] = stream
            lengths.append(len(stream))
            end += len(stream)
        return lengths

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        """All blocks in one compiled call, without the GIL."""
        n = self.n_frames
        if not all(buffer.flags.c_contiguous for buffer in src.buffers):
            src = Segments.of([np.ascontiguousarray(stream) for stream in src])
        all_frames = np.empty(0, np.int64)
        status = read_blocks(
            np.arange(len(rows) + 1) * n,
            all_frames,
            all_frames,
            rows.reshape(len(rows) * n, self.frame_nbytes),
            _addresses(src),
            src.lengths,
            self._references(),
            n,
            0,
            frame_room(self.frame_nbytes),
        )
        check(status)

    def _references(self) -> Rows:
        known = np.frombuffer(bytes(self.frame_nbytes) + self.reference_frames, np.uint8)
        return known.reshape(1 + len(self.reference_frames) // max(1, self.frame_nbytes), self.frame_nbytes)

    def _scratch(self, n_frames: int) -> tuple[Bytes, Bytes]:
        runs_nbytes = n_frames * runs_bound(self.frame_nbytes)
        return np.empty(runs_nbytes, np.uint8), np.empty(n_frames * self.frame_nbytes, np.uint8)


def _addresses(src: Segments) -> Ints:
    nbytes = np.array([buffer.nbytes for buffer in src.buffers], np.int64)[src.which]
    if ((src.offsets < 0) | (src.lengths < 0) | (src.offsets > nbytes - src.lengths)).any():
        raise CorruptStream("it lies outside of its buffer")
    return src.addresses()
