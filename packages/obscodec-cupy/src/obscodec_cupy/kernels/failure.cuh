// How a decoder says that a stream is bad: one word for a whole batch, 0 while all is well.
#pragma once
#include "types.cuh"

// Keep the status code of the lowest number, as ~number << 32 | status. The word may be in pinned memory of the host.
__device__ __noinline__ void report(u64* failure, u64 number, u32 status) {
    const u64 word = (~number & 0xffffffff) << 32 | status;
    u64 known = 0;
    while (known < word) {
        const u64 found = atomicCAS(failure, known, word);
        if (found == known) break;
        known = found;
    }
}
