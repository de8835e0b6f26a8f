// Items to streams of rle and back, see docs/formats/rle.md. WIDTH: bytes of an element, 1, 2, 4 or 8.
//
// An encoder measures the streams and writes them behind each other. An item of which runs would take more bytes than itself
// has no runs: it is copied.
#include "encode.cuh"
#include "rle.cuh"

constexpr u32 SHIFT = WIDTH == 8 ? 3 : WIDTH / 2;  // log2 of WIDTH

// Bit i: byte at + i differs from the byte of the element before, for up to 16 bytes.
__device__ __forceinline__ u32 changes_of_16(const u8* row, u32 at, u32 nbytes) {
    u32 bits = 0;
    if (at + 16 > nbytes) {
        for (u32 i = at > 0 ? 0 : WIDTH; at + i < nbytes; ++i)
            bits |= static_cast<u32>(row[at + i] != row[at + i - WIDTH]) << i;
        return bits;
    }
    const uint4 own = load_16(row + at);
    const u32 words[6] = {at > 0 ? load_4(row + at - 8) : 0, at > 0 ? load_4(row + at - 4) : 0, own.x, own.y, own.z, own.w};
    constexpr u32 BACK = (WIDTH + 3) / 4, BITS = (32 - 8 * WIDTH) & 31;  // an element before, as words and bits of the next one
#pragma unroll
    for (u32 k = 2; k < 6; ++k)
        bits |= different_bytes(words[k], __funnelshift_r(words[k - BACK], words[k - BACK + 1], BITS)) << 4 * (k - 2);
    return at > 0 ? bits : bits >> WIDTH << WIDTH;  // nothing is before the first element
}

// The edges are the ends of runs, at the position behind the last byte; the element before each is a value.
__device__ __forceinline__ Marks run_ends(const u8* row, u32 word, u32 nbytes) {
    u32 bits = changes_of_16(row, 32 * word, nbytes) | changes_of_16(row, 32 * word + 16, nbytes) << 16;
    for (u32 n = 1; n < WIDTH; n *= 2) bits |= bits >> n;
    bits &= 0xffffffff / ((1ull << WIDTH) - 1);  // one bit for each element, at its first byte
    if (nbytes > 0 && word == nbytes / 32) bits |= 1u << nbytes % 32;
    return {bits, bits};
}

// One thread block for each item. run_counts: u32[n], 0 for an item that is copied.
extern "C" __global__ void __launch_bounds__(256, 4) rle_measure(
    const u8* rows, u32 nbytes, u32* run_counts, i64* lengths) {
    const u64 item = blockIdx.x;
    const u8* row = rows + item * nbytes;
    const RunSizes sizes = measure_runs<SHIFT>(nbytes, [=](u32 word) { return run_ends(row, word, nbytes); });
    if (threadIdx.x > 0) return;
    const u64 values_nbytes = static_cast<u64>(sizes.n_edges) * WIDTH, as_it_is = 1 + static_cast<u64>(nbytes);
    const u64 as_runs = varint_nbytes(sizes.n_edges) + sizes.distances_nbytes + values_nbytes;
    run_counts[item] = as_runs <= as_it_is ? sizes.n_edges : 0;
    lengths[item] = as_runs <= as_it_is ? as_runs : as_it_is;
}

// One thread block for each item.
extern "C" __global__ void __launch_bounds__(256, 4) rle_write(
    const u8* rows, u32 nbytes, const u32* run_counts, const i64* offsets, const i64* lengths, u8* out) {
    const u64 item = blockIdx.x;
    const u8* row = rows + item * nbytes;
    const u32 n_runs = run_counts[item];
    u8* stream = out + offsets[item];
    u8* values = stream + lengths[item] - static_cast<u64>(n_runs) * WIDTH;
    if (n_runs == 0) {
        if (threadIdx.x == 0) *stream = 0;
        copy_bytes(stream + 1, row, nbytes);
        return;
    }
    write_runs<SHIFT>(nbytes, [=](u32 word) { return run_ends(row, word, nbytes); }, n_runs, stream, [=](u32 end, u32 run) {
        for (u32 k = 0; k < WIDTH; ++k) values[static_cast<u64>(run) * WIDTH + k] = row[end - WIDTH + k];
    });
}

// One thread block for each item of `size` elements. A stream must lie in its buffer.
extern "C" __global__ void __launch_bounds__(256, 4) rle_decode(
    const u8* buffer, u64 buffer_nbytes, const i64* offsets, const i64* lengths, u8* rows, u32 size, u64* failure) {
    const u64 number = blockIdx.x, offset = offsets[number], nbytes = lengths[number];
    u32 status = OUTSIDE_BUFFER;
    if (nbytes <= buffer_nbytes && offset <= buffer_nbytes - nbytes)
        status = rle::decode_item<WIDTH>(buffer + offset, nbytes, rows + number * size * WIDTH, size);
    if (threadIdx.x == 0 && status != OK) report(failure, number, status);
}
