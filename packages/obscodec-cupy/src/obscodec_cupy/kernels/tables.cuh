// What a kernel knows of a store: mirrors of its tables in device memory.
#pragma once
#include "types.cuh"

// The header of a store, u64[16] in device memory. Who changes what it speaks of keeps that apart from the kernels that
// read, by events. Words from 9 on are not read.
enum { BLOCKS, N_BLOCKS, PREVIOUS, N_IDS, LISTED, N_LISTED, REFERENCES, N_REFERENCES, FAILURE };

struct Tables {
    const u64* blocks;      // u64[n_blocks][2]: address and bytes of the stream of each block; 0 for frames of zeros
    u64 n_blocks;
    const i32* previous;    // i32[n_ids], of each frame the one before it; not read for stacks of one frame
    u64 n_ids;
    const i32* listed;      // i32[n_listed][DEPTH], stacks; likewise
    u64 n_listed;
    const u8* references;   // u8[n_references][FRAME_NBYTES], the first one zeros, aligned to 16; not read of plain blocks
    u64 n_references;
    u64* failure;           // see failure.cuh
};

__device__ __forceinline__ Tables tables_of(const u64* header) {
    return {
        reinterpret_cast<const u64*>(header[BLOCKS]),    header[N_BLOCKS],
        reinterpret_cast<const i32*>(header[PREVIOUS]),  header[N_IDS],
        reinterpret_cast<const i32*>(header[LISTED]),    header[N_LISTED],
        reinterpret_cast<const u8*>(header[REFERENCES]), header[N_REFERENCES],
        reinterpret_cast<u64*>(header[FAILURE]),
    };
}
