// Bytes at any address, some at once.
#pragma once
#include "types.cuh"

__device__ __forceinline__ u32 load_4(const u8* at) {
    if (reinterpret_cast<u64>(at) % 4 == 0) return *reinterpret_cast<const u32*>(at);
    return at[0] | at[1] << 8 | at[2] << 16 | static_cast<u32>(at[3]) << 24;
}

// 16 bytes. The threads of a warp come with addresses that are 16 bytes or a multiple apart, so they don't diverge.
__device__ __forceinline__ uint4 load_16(const u8* at) {
    if (reinterpret_cast<u64>(at) % 16 == 0) return *reinterpret_cast<const uint4*>(at);
    return make_uint4(load_4(at), load_4(at + 4), load_4(at + 8), load_4(at + 12));
}

// Bit i: byte i of x is not that of y, for 4 bytes.
__device__ __forceinline__ u32 different_bytes(u32 x, u32 y) {
    const u32 different = x ^ y;
    const u32 high_bits = (((different & 0x7f7f7f7f) + 0x7f7f7f7f) | different) & 0x80808080;
    return (high_bits >> 7) * 0x10204080 >> 28;  // gathers bits 0, 8, 16, 24 in the highest four
}

// The same for 16 bytes.
__device__ __forceinline__ u32 different_bytes(uint4 x, uint4 y) {
    return different_bytes(x.x, y.x) | different_bytes(x.y, y.y) << 4 | different_bytes(x.z, y.z) << 8 |
           different_bytes(x.w, y.w) << 12;
}

// The 16 bytes of two words to any address.
__device__ __forceinline__ void store_16(u8* at, u64 low, u64 high) {
    if (reinterpret_cast<u64>(at) % 16 == 0) {
        *reinterpret_cast<uint4*>(at) = make_uint4(low, low >> 32, high, high >> 32);
    } else if (reinterpret_cast<u64>(at) % 4 == 0) {
        u32* words = reinterpret_cast<u32*>(at);
        words[0] = low, words[1] = low >> 32, words[2] = high, words[3] = high >> 32;
    } else {
        for (u32 i = 0; i < 8; ++i) at[i] = low >> 8 * i, at[8 + i] = high >> 8 * i;
    }
}
