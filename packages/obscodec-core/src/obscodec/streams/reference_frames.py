"""Reference frames: the first frame of a block is a patch of the nearest of them."""

from typing import Final

import numpy as np

from obscodec.kernels import address, compiled, copy, load_u64
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints
from obscodec.streams.patch import encode_patch

MAX_REFERENCES: Final = 33  # that a store or `fit` makes; the first one is the frame of zeros

# A frame becomes a reference if its patch of the nearest one takes more than this part of it. Measured:
# docs/performance.md.
_JOIN_PART: Final = 8


@compiled
def nearest_reference(frame: int, references: Rows, n_references: int) -> int:
    """The reference with the fewest words that differ from the frame at the address ``frame``."""
    nbytes = references.shape[1]
    best, fewest = 0, nbytes
    for k in range(n_references):
        reference = address(references) + k * nbytes
        different = 0
        for at in range(0, nbytes - 7, 8):
            different += load_u64(frame + at) != load_u64(reference + at)
        if different < fewest:
            best, fewest = k, different
    return best


@compiled
def encode_first(frame: int, references: Rows, n_references: Ints, runs: int, literals: int) -> tuple[int, int, int]:
    """Write the patch that turns the nearest reference into a frame, which becomes a reference if it is far from all.

    ``references``, ``u8[max_references, nbytes]``, are changed, and so is ``n_references``, ``i64[1]``, how many there
    are. ``runs`` and ``literals`` are as in :func:`encode_patch`. Returns the reference, bytes of the runs, and those
    of the literals.
    """
    nbytes, base = references.shape[1], address(references)
    reference = nearest_reference(frame, references, n_references[0])
    runs_nbytes, n_literals = encode_patch(base + reference * nbytes, frame, nbytes, runs, literals)
    if (runs_nbytes + n_literals) * _JOIN_PART > nbytes and n_references[0] < len(references):
        reference = n_references[0]
        copy(base + reference * nbytes, frame, nbytes)
        n_references[0] += 1
        runs_nbytes, n_literals = encode_patch(frame, frame, nbytes, runs, literals)
    return reference, runs_nbytes, n_literals


@compiled
def add_references(frames: Rows, references: Rows, runs: Bytes, literals: Bytes) -> int:
    """Add the ``frames`` that are far from all references before them; returns the number of references."""
    n_references = np.ones(1, np.int64)
    for k in range(len(frames)):
        frame = address(frames) + k * frames.shape[1]
        encode_first(frame, references, n_references, address(runs), address(literals))
    return int(n_references[0])


@compiled
def encode_block(frames: Rows, references: Rows, runs: Bytes, literals: Bytes) -> tuple[int, int, int]:
    """Write the patches of a block, up to the one by which they take more bytes than the frames.

    Frames are ``u8[n, nbytes]``, references ``u8[n_references, nbytes]``, contiguous. ``runs``,
    ``u8[n * nbytes + runs_bound(nbytes)]``, and ``literals``, ``u8[n * nbytes]``, are filled. Returns the reference,
    bytes of the runs, and those of the literals.
    """
    nbytes, frame = frames.shape[1], address(frames)
    reference = nearest_reference(frame, references, len(references)) if len(frames) else 0
    old = address(references) + reference * nbytes
    runs_end, literals_end = address(runs), address(literals)
    for k in range(len(frames)):
        new = frame + k * nbytes
        runs_nbytes, n_literals = encode_patch(old, new, nbytes, runs_end, literals_end)
        runs_end += runs_nbytes
        literals_end += n_literals
        if runs_end - address(runs) + literals_end - address(literals) > frames.size:
            break
        old = new
    return reference, runs_end - address(runs), literals_end - address(literals)
