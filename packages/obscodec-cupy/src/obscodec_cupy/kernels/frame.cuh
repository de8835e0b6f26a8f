// The frame that a thread block works on: in its shared memory, or in a scratch in global memory if it is too large.
//
// Defines: THREADS, of a block; FRAME_NBYTES; FRAME_IN_SHARED, 1 if the launch gives FRAME_ROOM bytes of shared memory, else 0;
// NO_ASYNC, for kernels without asynchronous copies.
#include "basics.cuh"

template <u32 NBYTES> struct Sized;  // words that are loaded and stored whole
template <> struct Sized<1> { typedef u8 Type; };
template <> struct Sized<2> { typedef u16 Type; };
template <> struct Sized<4> { typedef u32 Type; };
template <> struct Sized<8> { typedef u64 Type; };
template <> struct Sized<16> { typedef uint4 Type; };

constexpr u32 FRAME_ROOM = (FRAME_NBYTES + 15) / 16 * 16;
extern __shared__ uint4 frame_memory[];

// Where the frame of this thread block is; `scratch` has FRAME_ROOM bytes for each, aligned to 16.
__device__ __forceinline__ u8* frame_of_block(u8* scratch) {
    return FRAME_IN_SHARED ? reinterpret_cast<u8*>(frame_memory) : scratch + static_cast<u64>(blockIdx.x) * FRAME_ROOM;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && FRAME_IN_SHARED && !defined(NO_ASYNC)
#define ASYNC
#endif

// Begin to copy words from global to shared memory, or to a frame. They are there after wait_for_copies and a barrier.
template <typename Word>
__device__ __forceinline__ void begin_copy(u8* to, const u8* from, u32 nbytes) {
    for (u32 at = threadIdx.x * sizeof(Word); at < nbytes; at += THREADS * sizeof(Word)) {
#ifdef ASYNC
        if constexpr (sizeof(Word) >= 4) {
            const u32 target = static_cast<u32>(__cvta_generic_to_shared(to + at));
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(target), "l"(from + at), "n"(sizeof(Word)) : "memory");
            continue;
        }
#endif
        *reinterpret_cast<Word*>(to + at) = *reinterpret_cast<const Word*>(from + at);
    }
}

__device__ __forceinline__ void wait_for_copies() {
#ifdef ASYNC
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
