// Items to streams of rle: find where runs end and measure the streams, write them behind each other. An item of which
// runs would take more bytes than itself has no runs: it is copied.
// WIDTH: bytes of an element, 1, 2, 4 or 8. The edges are the ends of the runs, at the position behind the last byte.
#include "copy.cuh"
#include "edges.cuh"
#include "words.cuh"

constexpr u32 SHIFT = WIDTH == 8 ? 3 : WIDTH / 2;  // log2 of WIDTH

__device__ __forceinline__ u32 edge_words(u32 nbytes) { return nbytes / 32 + 1; }

// One bit for each element, at its first byte, of bits for each byte.
__device__ __forceinline__ u32 any_of_each_element(u32 bits) {
    if (WIDTH >= 2) bits |= bits >> 1;
    if (WIDTH >= 4) bits |= bits >> 2;
    if (WIDTH >= 8) bits |= bits >> 4;
    return bits & (WIDTH == 8 ? 0x01010101 : WIDTH == 4 ? 0x11111111 : WIDTH == 2 ? 0x55555555 : 0xffffffff);
}

// Bit i: byte at + i differs from the byte of the element before, for up to 16 bytes.
__device__ __forceinline__ u32 changes_of_16(const u8* row, u32 at, u32 nbytes) {
    u32 bits = 0;
    if (at + 16 <= nbytes) {
        const uint4 own = load_16(row + at);
        const u32 before = at > 0 ? load_4(row + at - 4) : 0;
        uint4 shifted;
        if (WIDTH == 8)
            shifted = make_uint4(at > 0 ? load_4(row + at - 8) : 0, before, own.x, own.y);
        else if (WIDTH == 4)
            shifted = make_uint4(before, own.x, own.y, own.z);
        else
            shifted = make_uint4(__funnelshift_l(before, own.x, 8 * WIDTH), __funnelshift_l(own.x, own.y, 8 * WIDTH),
                                 __funnelshift_l(own.y, own.z, 8 * WIDTH), __funnelshift_l(own.z, own.w, 8 * WIDTH));
        bits = different_bytes(own, shifted);
        return at > 0 ? bits : bits >> WIDTH << WIDTH;  // nothing is before the first element
    }
    for (u32 i = at > 0 ? 0 : WIDTH; at + i < nbytes; ++i)
        bits |= static_cast<u32>(row[at + i] != row[at + i - WIDTH]) << i;
    return bits;
}

__device__ __forceinline__ u32 edges_of(const u8* row, u32 word, u32 nbytes) {
    const u32 changes = changes_of_16(row, 32 * word, nbytes) | changes_of_16(row, 32 * word + 16, nbytes) << 16;
    const u32 end = nbytes > 0 && word == nbytes / 32 ? 1u << nbytes % 32 : 0;
    return any_of_each_element(changes) | end;
}

// One thread block for each item. edges: u32[n, edge_words(nbytes)]; run_counts: u32[n], 0 for an item that is copied.
extern "C" __global__ void __launch_bounds__(256, 4) rle_measure(
    const u8* rows, u32 nbytes, u32* edges, u32* run_counts, i64* lengths) {
    const u64 item = blockIdx.x;
    const u32 n_words = edge_words(nbytes);
    u32 last = 0;
    u64 sizes = 0;  // bytes of the run lengths in the high half, runs in the low one
    for (u32 first = 0; first < n_words; first += blockDim.x) {
        const u32 word = first + threadIdx.x;
        const u32 own = word < n_words ? edges_of(rows + item * nbytes, word, nbytes) : 0;
        if (word < n_words) edges[item * n_words + word] = own;
        const u32 before = edge_before(own, word, last);
        sizes += static_cast<u64>(distances_nbytes<SHIFT>(own, word, before)) << 32 | __popc(own);
    }
    sizes = scan_block<Sum>(sizes).total;
    const u32 n_runs = static_cast<u32>(sizes);
    if (threadIdx.x > 0) return;
    const u64 as_runs = varint_nbytes(n_runs) + (sizes >> 32) + static_cast<u64>(n_runs) * WIDTH;
    const u64 as_it_is = 1 + static_cast<u64>(nbytes);
    run_counts[item] = as_runs <= as_it_is ? n_runs : 0;
    lengths[item] = as_runs <= as_it_is ? as_runs : as_it_is;
}

// One thread block for each item.
extern "C" __global__ void __launch_bounds__(256, 4) rle_write(
    const u8* rows, u32 nbytes, const u32* edges, const u32* run_counts, const i64* offsets,
    const i64* lengths, u8* out) {
    const u64 item = blockIdx.x;
    const u8* row = rows + item * nbytes;
    const u32 n_words = edge_words(nbytes), n_runs = run_counts[item];
    u8* run_lengths = out + offsets[item] + varint_nbytes(n_runs);
    u8* values = out + offsets[item] + lengths[item] - static_cast<u64>(n_runs) * WIDTH;
    if (threadIdx.x == 0) write_varint(out + offsets[item], n_runs);
    if (n_runs == 0) {
        copy_bytes(out + offsets[item] + 1, row, nbytes);
        return;
    }
    u32 last = 0, n_done = 0;
    for (u32 first = 0; first < n_words; first += blockDim.x) {
        const u32 word = first + threadIdx.x;
        const u32 own = word < n_words ? edges[item * n_words + word] : 0;
        const u32 before = edge_before(own, word, last);
        const u64 size = static_cast<u64>(distances_nbytes<SHIFT>(own, word, before)) << 32 | __popc(own);
        const Scanned<u64> place = scan_block<Sum>(size);
        write_distances<SHIFT>(own, word, before, run_lengths + (place.before >> 32));
        each_bit(own, word, n_done + static_cast<u32>(place.before), [&](u32 position, u32 run) {
            for (u32 k = 0; k < WIDTH; ++k) values[static_cast<u64>(run) * WIDTH + k] = row[position - WIDTH + k];
        });
        run_lengths += place.total >> 32;
        n_done += static_cast<u32>(place.total);
    }
}
