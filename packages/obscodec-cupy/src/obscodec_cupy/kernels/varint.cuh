// Varints: 7 bits a byte, low bits first, the high bit set on all bytes but the last.
#pragma once
#include "types.cuh"

__device__ __forceinline__ u32 varint_nbytes(u32 value) { return (38 - __clz(value | 1)) / 7; }

// Returns the address behind it.
__device__ __forceinline__ u8* write_varint(u8* at, u32 value) {
    for (; value > 0x7f; value >>= 7) *at++ = value | 0x80;
    *at = value;
    return at + 1;
}
