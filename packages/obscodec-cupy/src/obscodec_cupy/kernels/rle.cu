// Streams of rle to items. ELEMENT_NBYTES: of what it repeats, 1, 2, 4 or 8.
#include "rle.cuh"

// One thread block for each item of `size` elements. A stream must lie in its buffer.
extern "C" __global__ void __launch_bounds__(256, 4) rle_decode(
    const u8* buffer, u64 buffer_nbytes, const i64* offsets, const i64* lengths, u8* rows, u32 size, u64* failure) {
    const u64 number = blockIdx.x, offset = offsets[number], nbytes = lengths[number];
    u32 status = OUTSIDE_BUFFER;
    if (nbytes <= buffer_nbytes && offset <= buffer_nbytes - nbytes)
        status = decode_rle(buffer + offset, nbytes, rows + number * size * ELEMENT_NBYTES, size);
    if (threadIdx.x == 0 && status != OK) report(failure, number, status);
}
