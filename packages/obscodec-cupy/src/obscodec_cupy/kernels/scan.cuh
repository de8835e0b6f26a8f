// Prefix sums over the threads of a block.
//
// Defines: THREADS, of a block, whole warps.
#pragma once
#include "types.cuh"

#define WARPS (THREADS / 32)

__shared__ u32 warp_sums[2][2][WARPS];

struct Sums {
    u32 before[2];  // of the threads with lower numbers
    u32 total[2];
};

// Prefix sums of two numbers of each thread. There is one barrier in it; `turn` is another one (0 or 1) in calls that
// follow each other without a barrier between them.
__device__ __forceinline__ Sums sums_before(u32 a, u32 b, u32 turn) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 until[2] = {a, b};
#pragma unroll
    for (u32 step = 1; step < 32; step *= 2) {
        const u32 left_a = __shfl_up_sync(0xffffffff, until[0], step);
        const u32 left_b = __shfl_up_sync(0xffffffff, until[1], step);
        if (lane >= step) until[0] += left_a, until[1] += left_b;
    }
    if (lane == 31) warp_sums[turn][0][warp] = until[0], warp_sums[turn][1][warp] = until[1];
    __syncthreads();
    Sums sums = {{until[0] - a, until[1] - b}, {0, 0}};
#pragma unroll
    for (u32 w = 0; w < WARPS; w++) {
#pragma unroll
        for (u32 which = 0; which < 2; which++) {
            const u32 sum = warp_sums[turn][which][w];
            sums.total[which] += sum;
            if (w < warp) sums.before[which] += sum;
        }
    }
    return sums;
}

// Prefix sums of one number of each thread that is 8 or less, by ballots.
__device__ __forceinline__ Sums counts_before(u32 n, u32 turn) {
    const u32 lower = (1u << threadIdx.x % 32) - 1, warp = threadIdx.x / 32;
    Sums sums = {{0, 0}, {0, 0}};
    u32 of_warp = 0;
#pragma unroll
    for (u32 bit = 0; bit < 4; bit++) {
        const u32 set = __ballot_sync(0xffffffff, n >> bit & 1);
        sums.before[0] += __popc(set & lower) << bit;
        of_warp += __popc(set) << bit;
    }
    if (threadIdx.x % 32 == 0) warp_sums[turn][0][warp] = of_warp;
    __syncthreads();
#pragma unroll
    for (u32 w = 0; w < WARPS; w++) {
        const u32 sum = warp_sums[turn][0][w];
        sums.total[0] += sum;
        if (w < warp) sums.before[0] += sum;
    }
    return sums;
}
