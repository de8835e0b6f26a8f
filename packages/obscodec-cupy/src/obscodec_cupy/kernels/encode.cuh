// Runs to streams, by all threads of a block together: what the encoders of rle and delta-rle have in common. The number of
// threads is a multiple of 32, items and frames are below 2^31 bytes.
//
// `marks_of(word)` marks the 32 bytes from 32 * word on, of `nbytes` in all. It returns where runs begin or end, the edges, and
// of which bytes the stream has values, the picks. A stream holds the distance of each edge from the one before it, the first
// one's from position 0, in units of 2^SHIFT bytes.
#pragma once
#include "block_scan.cuh"
#include "bytes.cuh"

struct Marks { u32 edges, picks; };  // a bit for each byte, and for the position behind the last one

struct RunSizes { u32 n_edges, n_picks, distances_nbytes; };

// Call visit(word, marks, before, size) for each word of marks: the edge before the word, and the bytes of its distances in the
// high half of `size`, its picks in the low one.
template <u32 SHIFT, typename MarksOf, typename Visit>
__device__ __forceinline__ void each_word(u32 nbytes, MarksOf marks_of, Visit visit) {
    u32 last = 0;  // edge of the words so far
    for (u32 first = 0; first <= nbytes / 32; first += blockDim.x) {
        const u32 word = first + threadIdx.x;
        const Marks marks = word <= nbytes / 32 ? marks_of(word) : Marks{0, 0};
        const Scanned<u32> edge = scan_block<Max>(marks.edges ? 32 * word + 31 - __clz(marks.edges) : 0);
        const u32 before = Max::of(edge.before, last);
        last = Max::of(edge.total, last);
        u64 size = __popc(marks.picks);
        if (marks.edges) {  // only the first distance of a word can take more than one byte
            const u32 distance = (32 * word + __ffs(marks.edges) - 1 - before) >> SHIFT;
            size += static_cast<u64>(varint_nbytes(distance) + __popc(marks.edges) - 1) << 32;
        }
        visit(word, marks, before, size);
    }
}

// All threads get the sizes.
template <u32 SHIFT, typename MarksOf>
__device__ __forceinline__ RunSizes measure_runs(u32 nbytes, MarksOf marks_of) {
    u32 n_edges = 0;
    u64 sizes = 0;
    each_word<SHIFT>(nbytes, marks_of, [&](u32, Marks marks, u32, u64 size) {
        n_edges += __popc(marks.edges);
        sizes += size;
    });
    n_edges = scan_block<Sum>(n_edges).total;
    sizes = scan_block<Sum>(sizes).total;
    return {n_edges, static_cast<u32>(sizes), static_cast<u32>(sizes >> 32)};
}

// Call pick(position, index) for each pick of the words of a warp, neighbouring lanes for neighbouring positions. All lanes
// take part; their words follow each other, and `index` is that of the first pick of each.
template <typename Pick>
__device__ __forceinline__ void each_pick(u32 picks, u32 word, u32 index, Pick pick) {
    const u32 lane = threadIdx.x % 32;
    for (u32 words = __ballot_sync(ALL_LANES, picks != 0); words; words &= words - 1) {
        const u32 from = __ffs(words) - 1;
        const u32 chosen = __shfl_sync(ALL_LANES, picks, from);
        const u32 first = __shfl_sync(ALL_LANES, index, from);
        if (chosen >> lane & 1) pick(32 * (word - lane + from) + lane, first + __popc(chosen & ((1u << lane) - 1)));
    }
}

// Write the number of runs and the distances of all edges, and call pick(position, index) for each pick.
template <u32 SHIFT, typename MarksOf, typename Pick>
__device__ __forceinline__ void write_runs(u32 nbytes, MarksOf marks_of, u32 n_runs, u8* out, Pick pick) {
    if (threadIdx.x == 0) write_varint(out, n_runs);
    out += varint_nbytes(n_runs);
    u32 n_picks = 0;
    each_word<SHIFT>(nbytes, marks_of, [&](u32 word, Marks marks, u32 before, u64 size) {
        const Scanned<u64> place = scan_block<Sum>(size);
        u8* at = out + (place.before >> 32);
        for (u32 edges = marks.edges; edges; edges &= edges - 1) {
            const u32 edge = 32 * word + __ffs(edges) - 1;
            at = write_varint(at, (edge - before) >> SHIFT);
            before = edge;
        }
        each_pick(marks.picks, word, n_picks + static_cast<u32>(place.before), pick);
        out += place.total >> 32;
        n_picks += static_cast<u32>(place.total);
    });
}
