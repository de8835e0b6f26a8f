// What threads write at a time.
//
// Defines: THREADS, of a block; UNIT_NBYTES, a power of two up to 16.
#pragma once
#include "types.cuh"

#if UNIT_NBYTES == 16
typedef uint4 Unit;
#elif UNIT_NBYTES == 8
typedef u64 Unit;
#elif UNIT_NBYTES == 4
typedef u32 Unit;
#elif UNIT_NBYTES == 2
typedef u16 Unit;
#else
typedef u8 Unit;
#endif

// Copy whole units, all threads of a block together.
__device__ __forceinline__ void put_units(u8* target, const u8* source, u32 nbytes) {
    Unit* to = reinterpret_cast<Unit*>(target);
    const Unit* from = reinterpret_cast<const Unit*>(source);
    for (u32 i = threadIdx.x; i < nbytes / UNIT_NBYTES; i += THREADS) to[i] = from[i];
}
