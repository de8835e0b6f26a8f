// Making patches, by all threads of a block together: what turns one frame into the next, as docs/formats/delta-rle.md
// has it, byte for byte as the CPU makes it. The number of threads is a multiple of 32, frames are below 2^31 bytes.
//
//     find_differences(old, frame, nbytes, differences);
//     PatchSize size = measure_patch(differences, nbytes);
//     write_patch(differences, frame, nbytes, size.n_runs, runs, literals);
#pragma once
#include "edges.cuh"
#include "words.cuh"

struct PatchSize {
    u32 n_runs;
    u32 runs_nbytes;  // their count included
    u32 n_literals;
};

// Words of 32 bits that `differences` takes: a bit for each byte of a frame, and for the end.
__device__ __forceinline__ u32 difference_words(u32 nbytes) { return nbytes / 32 + 1; }

// Bit i: byte at + i is different, for up to 16 bytes.
__device__ __forceinline__ u32 differences_of_16(const u8* old, const u8* frame, u32 at, u32 nbytes) {
    if (at + 16 <= nbytes) return different_bytes(load_16(old + at), load_16(frame + at));
    u32 bits = 0;
    for (u32 i = 0; at + i < nbytes; ++i) bits |= static_cast<u32>(old[at + i] != frame[at + i]) << i;
    return bits;
}

// Fill `differences`, in shared or global memory; any thread may read it behind this.
__device__ __forceinline__ void find_differences(const u8* old, const u8* frame, u32 nbytes, u32* differences) {
    for (u32 word = threadIdx.x; word < difference_words(nbytes); word += blockDim.x)
        differences[word] = differences_of_16(old, frame, 32 * word, nbytes) |
                            differences_of_16(old, frame, 32 * word + 16, nbytes) << 16;
    __syncthreads();
}

// What a patch replaces in one word of 32 bytes.
struct Replaced {
    u32 bytes;  // those in a run
    u32 edges;  // where a run begins, and behind its last byte
};

// A run goes on over three equal bytes or fewer: that is the closing of the differences by four positions.
__device__ __forceinline__ Replaced replaced(const u32* differences, u32 word, u32 n_words) {
    if (word >= n_words) return {0, 0};
    const u64 before = word > 0 ? differences[word - 1] >> 16 : 0;
    const u64 behind = word + 1 < n_words ? differences[word + 1] & 0xffff : 0;
    u64 bits = before | static_cast<u64>(differences[word]) << 16 | behind << 48;
    bits |= bits << 1;
    bits |= bits << 2;
    bits &= bits >> 1;
    bits &= bits >> 2;
    return {static_cast<u32>(bits >> 16), static_cast<u32>((bits ^ bits << 1) >> 16)};
}

// The sizes of a patch; all threads get them.
__device__ __forceinline__ PatchSize measure_patch(const u32* differences, u32 nbytes) {
    const u32 n_words = difference_words(nbytes);
    u32 last = 0, n_edges = 0;
    u64 sizes = 0;  // bytes of the runs in the high half, literals in the low one
    for (u32 first = 0; first < n_words; first += blockDim.x) {
        const u32 word = first + threadIdx.x;
        const Replaced part = replaced(differences, word, n_words);
        const u32 before = edge_before(part.edges, word, last);
        sizes += static_cast<u64>(distances_nbytes<0>(part.edges, word, before)) << 32 | __popc(part.bytes);
        n_edges += __popc(part.edges);
    }
    const u32 n_runs = scan_block<Sum>(n_edges).total / 2;
    sizes = scan_block<Sum>(sizes).total;
    return {n_runs, varint_nbytes(n_runs) + static_cast<u32>(sizes >> 32), static_cast<u32>(sizes)};
}

// Write the runs, their count included, and the literals.
__device__ __forceinline__ void write_patch(const u32* differences, const u8* frame, u32 nbytes, u32 n_runs, u8* runs,
                                            u8* literals) {
    const u32 n_words = difference_words(nbytes);
    if (threadIdx.x == 0) write_varint(runs, n_runs);
    runs += varint_nbytes(n_runs);
    u32 last = 0;
    for (u32 first = 0; first < n_words; first += blockDim.x) {
        const u32 word = first + threadIdx.x;
        const Replaced part = replaced(differences, word, n_words);
        const u32 before = edge_before(part.edges, word, last);
        const u64 size = static_cast<u64>(distances_nbytes<0>(part.edges, word, before)) << 32 | __popc(part.bytes);
        const Scanned<u64> place = scan_block<Sum>(size);
        write_distances<0>(part.edges, word, before, runs + (place.before >> 32));
        each_bit(part.bytes, word, static_cast<u32>(place.before),
                 [&](u32 position, u32 index) { literals[index] = frame[position]; });
        runs += place.total >> 32;
        literals += static_cast<u32>(place.total);
    }
}

// Whether the words of 8 bytes at two addresses differ, as 0 or 1.
__device__ __forceinline__ u32 word_differs(const u8* x, const u8* y) {
    return load_4(x) != load_4(y) || load_4(x + 4) != load_4(y + 4);
}

// How many words of 8 bytes differ, for a warp; what follows the last whole word does not count.
__device__ __forceinline__ u32 different_words(const u8* frame, const u8* other, u32 nbytes) {
    const u32 lane = threadIdx.x % 32, pairs_nbytes = nbytes / 16 * 16;
    u32 different = 0;
#pragma unroll 4
    for (u32 at = 16 * lane; at < pairs_nbytes; at += 16 * 32) {
        const uint4 x = load_16(frame + at), y = load_16(other + at);
        different += (x.x != y.x || x.y != y.y) + (x.z != y.z || x.w != y.w);
    }
    if (lane == 0 && nbytes % 16 >= 8) different += word_differs(frame + pairs_nbytes, other + pairs_nbytes);
    for (u32 distance = 16; distance > 0; distance /= 2) different += __shfl_xor_sync(ALL_LANES, different, distance);
    return different;
}

// The reference with the fewest words that differ from the frame, the first of those; all threads get it.
// references: u8[n_references, nbytes], at least one.
__device__ __forceinline__ u32 nearest_reference(const u8* frame, const u8* references, u32 n_references, u32 nbytes) {
    u64 nearest = 0;  // ~(words that differ << 32 | reference)
    for (u32 k = threadIdx.x / 32; k < n_references; k += blockDim.x / 32) {
        const u32 different = different_words(frame, references + static_cast<u64>(k) * nbytes, nbytes);
        nearest = Max::of(nearest, ~(static_cast<u64>(different) << 32 | k));
    }
    return static_cast<u32>(~scan_block<Max>(nearest).total);
}
