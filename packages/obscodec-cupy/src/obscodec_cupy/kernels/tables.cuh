// What a kernel knows of a store: mirrors of its tables in device memory.
#pragma once
#include "types.cuh"

// The header of a store, u64[16] in device memory: where its tables are, and how long. Who changes any of that keeps it apart
// from the kernels that read, by events. A kernel asks for a word when it needs it, to have registers for other things.
enum {
    BLOCKS,      // u64[n_blocks][2]: the address and the bytes of the stream of each block; 0 for frames of zeros
    N_BLOCKS,
    PREVIOUS,    // i32[n_ids], of each frame the one before it; not read for stacks of one frame
    N_IDS,
    LISTED,      // i32[n_listed][DEPTH], stacks; likewise
    N_LISTED,
    REFERENCES,  // u8[n_references][FRAME_NBYTES], the first one zeros, aligned to 16; not read of plain blocks
    N_REFERENCES,
    FAILURE,     // u64[1], see failure.cuh
};

template <typename T>
__device__ __forceinline__ T* table(const u64* header, u32 word) {
    return reinterpret_cast<T*>(header[word]);
}
