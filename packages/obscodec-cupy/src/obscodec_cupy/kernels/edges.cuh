// Edges: the positions where runs begin and end, one bit each, 32 in a word. A stream holds the distance of each edge
// from the one before it, the first one's from position 0, in units of 2^SHIFT positions.
#pragma once
#include "block_scan.cuh"
#include "varint.cuh"

// The last edge before the word that this thread has; `last` is the one before the words of all threads, and becomes
// that before the words that they have next.
__device__ __forceinline__ u32 edge_before(u32 edges, u32 word, u32& last) {
    const Scanned<u32> edge = scan_block<Max>(edges ? 32 * word + 31 - __clz(edges) : 0);
    const u32 before = Max::of(edge.before, last);
    last = Max::of(edge.total, last);
    return before;
}

// Only the first distance of a word can take more than one byte.
template <u32 SHIFT>
__device__ __forceinline__ u32 distances_nbytes(u32 edges, u32 word, u32 before) {
    return edges ? varint_nbytes((32 * word + __ffs(edges) - 1 - before) >> SHIFT) + __popc(edges) - 1 : 0;
}

template <u32 SHIFT>
__device__ __forceinline__ void write_distances(u32 edges, u32 word, u32 before, u8* out) {
    for (; edges; edges &= edges - 1) {
        const u32 edge = 32 * word + __ffs(edges) - 1;
        out = write_varint(out, (edge - before) >> SHIFT);
        before = edge;
    }
}

// Call visit(position, index) for each bit of the words of a warp, neighbouring lanes for neighbouring positions.
// All lanes take part; their words follow each other, and `index` is that of the first bit of each.
template <typename Visit>
__device__ __forceinline__ void each_bit(u32 bits, u32 word, u32 index, Visit visit) {
    const u32 lane = threadIdx.x % 32;
    for (u32 words = __ballot_sync(ALL_LANES, bits != 0); words; words &= words - 1) {
        const u32 from = __ffs(words) - 1;
        const u32 chosen = __shfl_sync(ALL_LANES, bits, from);
        const u32 first = __shfl_sync(ALL_LANES, index, from);
        if (chosen >> lane & 1) visit(32 * (word - lane + from) + lane, first + __popc(chosen & ((1u << lane) - 1)));
    }
}
