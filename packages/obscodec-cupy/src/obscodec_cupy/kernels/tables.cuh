// What a kernel knows of a store: where its tables are in device memory, and which frames an id stands for.
#include "basics.cuh"

// In device memory, at one place for a store. Who changes any of it keeps it apart from the kernels that read, by events.
struct Tables {
    const u64 (*blocks)[2];  // the address and the bytes of the stream of each block; 0 for frames of zeros
    u64 n_blocks;
    const i32* previous;     // of each frame, the one before it; for stacks of one frame, anything
    u64 n_ids;
    const i32* listed;       // i32[n_listed][DEPTH], stacks; likewise
    u64 n_listed;
    const u8* references;    // u8[n_references][FRAME_NBYTES], the first one zeros, aligned to 16; not read of plain blocks
    u64 n_references;
    u64* failure;            // see `report`
    const u64 (*dictionaries)[2];  // of each version of LZ4, where it ends, and its bytes; 0 for no such version
    u64 n_versions;
};

#define NO_FRAME 0xffffffffu

struct Found {
    u32 frame;       // NO_FRAME if the store has none
    u32 block;       // the block that it is likely to be of, NO_FRAME if not known
    ulonglong2 row;  // the entry of that block
};

// The frame at place `k` of a stack of DEPTH frames: the inverse of core's kernels/stacks.py. All lanes of a warp call it
// together, each group of DEPTH lanes for the places 0 to DEPTH - 1 of one stack.
__device__ __forceinline__ Found frame_of_stack(const Tables* tables, i64 id, u32 k) {
    const u64 n_ids = tables->n_ids, n_blocks = tables->n_blocks, row = static_cast<u64>(-1 - id);
    const i32* previous = tables->previous;
    const u64 (*blocks)[2] = tables->blocks;
    u32 newest = NO_FRAME, n_steps = 0;
    if (id < 0 && row < tables->n_listed && tables->listed[row * DEPTH] >= 0) {
        newest = static_cast<u32>(tables->listed[row * DEPTH + k]);
    } else if (id == 0 || id >= DEPTH) {
        newest = static_cast<u32>(id / DEPTH);
        const u32 n_newest = static_cast<u32>(id % DEPTH) + 1;  // places that the newest frame takes
        n_steps = n_newest + k < DEPTH ? DEPTH - n_newest - k : 0;
    }
    // Most stacks are frames that follow each other by number: ask for what came before all of these at once, and for the block
    // that the frame is in then.
    const u32 likely = newest - min(n_steps, newest);
    Found found = {NO_FRAME, likely < n_ids && likely / BLOCK_FRAMES < n_blocks ? likely / BLOCK_FRAMES : NO_FRAME, {0, 0}};
    if (found.block != NO_FRAME) found.row = *reinterpret_cast<const ulonglong2*>(blocks[found.block]);
    const u32 before = id >= 0 && newest < n_ids && k <= newest ? static_cast<u32>(previous[newest - k]) : NO_FRAME;
    u32 frame = newest;
    for (u32 step = 0; step + 1 < DEPTH; step++) {
        const u32 behind = newest - frame, asked = __shfl_sync(ALL_LANES, before, (threadIdx.x - k + min(behind, DEPTH - 1u)) % 32);
        if (step < n_steps && frame < n_ids) frame = behind < DEPTH ? asked : static_cast<u32>(previous[frame]);
    }
    found.frame = frame < n_ids ? frame : NO_FRAME;
    return found;
}
