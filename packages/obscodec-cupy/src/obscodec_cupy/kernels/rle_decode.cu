// Streams of rle to items. WIDTH: bytes of an element, 1, 2, 4 or 8.
#define ELEMENT_NBYTES WIDTH
#include "failure.cuh"
#include "rle.cuh"

using namespace rle;

// Whether a stream lies in its buffer.
__device__ __forceinline__ bool inside(i64 offset, i64 length, u64 buffer_nbytes) {
    return offset >= 0 && length >= 0 && offset <= static_cast<i64>(buffer_nbytes) - length;
}

// One thread block of N_THREADS for each item of `size` elements.
extern "C" __global__ void __launch_bounds__(N_THREADS, 4) rle_decode(
    const u8* buffer, u64 buffer_nbytes, const i64* offsets, const i64* lengths, u8* rows, u32 size,
    u64* failure) {
    __shared__ Tile tile;
    const u64 number = blockIdx.x;
    Status status = OUTSIDE_BUFFER;
    if (inside(offsets[number], lengths[number], buffer_nbytes))
        status = decode_item(buffer + offsets[number], lengths[number], rows + number * size * ELEMENT_NBYTES, size, tile);
    if (threadIdx.x == 0 && status != OK) report(failure, number, status);
}
