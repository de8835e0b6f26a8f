"""Items of ``pred`` to streams."""

from obscodec.codecs.formats.images.geometry import Geometry, Scratch, clear_margins, put_frame
from obscodec.codecs.formats.images.sections import AS_IS, PREDICTED, size_bound, write_frame, write_sizes
from obscodec.codecs.formats.images.tiles import apply_tiles, find_vectors
from obscodec.kernels import address, compiled, copy, store_u8, store_u64, unsigned
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints


@compiled
def encode_items(
    rows: Rows,
    n_frames: int,
    of_frame: tuple[int, ...],
    classes: int,
    codes: int,
    out: Bytes,
    lengths: Ints,
    places: tuple[int, ...],
) -> None:
    """Encode some items, ``u8[n, nbytes]``, each of ``n_frames`` frames, one or more.

    ``out`` is filled with the streams, one behind the other, or for :data:`PREDICTED` with all frames; ``lengths``,
    ``i64[n]``, with their bytes. ``classes`` and ``codes`` are as in ``write_frame``; ``places`` are those of a
    ``Scratch``, which no other call uses meanwhile.
    """
    geometry, scratch = Geometry(*of_frame), Scratch(*places)
    frame_nbytes, item_nbytes = geometry.frame_nbytes, rows.shape[1]
    work, before, here = scratch.work, scratch.work + geometry.work_nbytes, address(out)
    clear_margins(work, geometry)
    sizes_nbytes = 0 if codes == PREDICTED else size_bound(frame_nbytes) * (n_frames - 1)
    for i in range(len(rows)):
        begin, body, source = here, here + sizes_nbytes, address(rows) + i * item_nbytes
        at = body
        for k in range(n_frames):
            put_frame(work, source, geometry)
            n_vectors = find_vectors(work, before, geometry, scratch) if k else 0
            largest = apply_tiles(work, before, n_vectors, geometry, scratch)
            nbytes = write_frame(at, frame_nbytes, largest, geometry, classes, codes, scratch)
            if nbytes > frame_nbytes and codes != PREDICTED:
                store_u8(at, unsigned(AS_IS))
                copy(at + 1, source, frame_nbytes)
                nbytes = 1 + frame_nbytes
                put_frame(work, source, geometry)
            store_u64(scratch.sizes + 8 * k, unsigned(nbytes))
            at += nbytes
            source += frame_nbytes
            work, before = before, work
        here = at if codes == PREDICTED else write_sizes(here, body, at, n_frames, scratch)
        if here - begin > item_nbytes and codes != PREDICTED:
            store_u8(begin, unsigned(AS_IS))
            copy(begin + 1, address(rows) + i * item_nbytes, item_nbytes)
            here = begin + 1 + item_nbytes
        lengths[i] = here - begin
