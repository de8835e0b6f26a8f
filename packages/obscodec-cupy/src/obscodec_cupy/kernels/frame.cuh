// The frame that a thread block works on, in shared memory or, if it is too large, in a scratch in global memory.
//
// Defines: THREADS, of a block; FRAME_NBYTES; FRAME_IN_SHARED, 1 or 0; NO_ASYNC, 1 for copies through registers.
#pragma once
#include "types.cuh"

#define FRAME_ROOM ((FRAME_NBYTES + 15) / 16 * 16)

// What a frame can be copied by, one behind the other.
#if FRAME_NBYTES % 16 == 0
typedef uint4 FrameWord;
#elif FRAME_NBYTES % 8 == 0
typedef u64 FrameWord;
#elif FRAME_NBYTES % 4 == 0
typedef u32 FrameWord;
#else
typedef u8 FrameWord;
#endif

#if FRAME_IN_SHARED
extern __shared__ uint4 frame_memory[];
#endif

// Where the frame of this thread block is; `scratch` has FRAME_ROOM bytes for each.
__device__ __forceinline__ u8* frame_of_block(u8* scratch) {
#if FRAME_IN_SHARED
    return reinterpret_cast<u8*>(frame_memory);
#else
    return scratch + static_cast<u64>(blockIdx.x) * FRAME_ROOM;
#endif
}

// Begin to copy a frame from global memory; it is there after wait_for_fetch and a barrier.
__device__ __forceinline__ void fetch_frame(u8* frame, const u8* source) {
    const FrameWord* from = reinterpret_cast<const FrameWord*>(source);
    FrameWord* to = reinterpret_cast<FrameWord*>(frame);
    const i32 n_words = FRAME_NBYTES / sizeof(FrameWord);
    for (i32 i = threadIdx.x; i < n_words; i += THREADS) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !NO_ASYNC && FRAME_IN_SHARED && FRAME_NBYTES % 4 == 0
        // Past the registers, so that the runs are parsed meanwhile.
        const u32 target = static_cast<u32>(__cvta_generic_to_shared(to + i));
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(target), "l"(from + i), "n"(sizeof(FrameWord)) : "memory");
#else
        to[i] = from[i];
#endif
    }
}

__device__ __forceinline__ void wait_for_fetch() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !NO_ASYNC
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
