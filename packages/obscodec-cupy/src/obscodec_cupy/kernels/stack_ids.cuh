// Ids of stacks as the ids of their frames, one lane of a warp for each frame: the inverse of core's kernels/stacks.py.
//
// Defines: DEPTH, frames of a stack, 16 at most.
#pragma once
#include "tables.cuh"
#include "types.cuh"

#define NO_FRAME 0xffffffffu

// The frame at place `k` of a stack, NO_FRAME if the store has none. All lanes of a warp call it together, each group of
// DEPTH lanes for the places 0 to DEPTH - 1 of one stack.
__device__ __forceinline__ u32 frame_of_stack(const u64* header, i64 id, u32 k) {
#if DEPTH == 1
    return id >= 0 && static_cast<u64>(id) < header[N_IDS] ? static_cast<u32>(id) : NO_FRAME;
#else
    const u64 n_ids = header[N_IDS];
    const i32* previous = table<const i32>(header, PREVIOUS);
    const bool listed = id < 0;
    const u32 newest = listed ? 0 : static_cast<u32>(id / DEPTH), again = listed ? 0 : static_cast<u32>(id % DEPTH);
    bool good = listed ? static_cast<u64>(-1 - id) < header[N_LISTED] : newest < n_ids && !(0 < id && id < DEPTH);
    u32 listed_frame = NO_FRAME;
    if (good && listed) {
        const i32* row = table<const i32>(header, LISTED) + static_cast<u64>(-1 - id) * DEPTH;
        good = row[0] >= 0 && row[k] >= 0;
        listed_frame = static_cast<u32>(row[k]);
    }
    // Most stacks are frames that follow each other by number: ask for what came before all of these at once.
    const u32 before = good && !listed && k <= newest ? static_cast<u32>(previous[newest - k]) : NO_FRAME;
    const u32 first_lane = threadIdx.x % 32 - k;
    const u32 n_steps = DEPTH - 1 - again > k ? DEPTH - 1 - again - k : 0;
    u32 frame = newest;
    for (u32 step = 0; step < DEPTH - 1; step++) {
        const u32 behind = newest - frame;
        u32 next = __shfl_sync(0xffffffff, before, (first_lane + (behind < DEPTH ? behind : 0)) % 32);
        if (good && !listed && step < n_steps) {
            if (behind >= DEPTH) next = static_cast<u32>(previous[frame]);
            good = next < n_ids;
            frame = next;
        }
    }
    if (!good) return NO_FRAME;
    frame = listed ? listed_frame : frame;
    return frame < n_ids ? frame : NO_FRAME;
#endif
}
