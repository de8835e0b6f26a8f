// Bytes at any address, and varints.
#include "basics.cuh"

constexpr u32 NO_PATCHES = 0x7f;  // in place of a reference of delta-rle, before frames that are kept as they are

__device__ __forceinline__ u32 load_4(const u8* at) {
    if (reinterpret_cast<u64>(at) % 4 == 0) return *reinterpret_cast<const u32*>(at);
    return at[0] | at[1] << 8 | at[2] << 16 | static_cast<u32>(at[3]) << 24;
}

// 16 bytes. The threads of a warp come with addresses that are 16 bytes or a multiple apart, so they don't diverge.
__device__ __forceinline__ uint4 load_16(const u8* at) {
    if (reinterpret_cast<u64>(at) % 16 == 0) return *reinterpret_cast<const uint4*>(at);
    return make_uint4(load_4(at), load_4(at + 4), load_4(at + 8), load_4(at + 12));
}

// Copy bytes by all threads of a block: 16 at a time where the target is aligned, the first and the last ones one by one.
__device__ __forceinline__ void copy_bytes(u8* to, const u8* from, u64 nbytes) {
    const u64 misaligned = (16 - reinterpret_cast<u64>(to) % 16) % 16, head = misaligned < nbytes ? misaligned : nbytes;
    const u64 body = (nbytes - head) / 16 * 16;
    for (u64 at = head + 16 * threadIdx.x; at < head + body; at += 16 * blockDim.x)
        *reinterpret_cast<uint4*>(to + at) = load_16(from + at);
    for (u64 i = threadIdx.x; i < nbytes - body; i += blockDim.x) {
        const u64 at = i < head ? i : body + i;
        to[at] = from[at];
    }
}

// Bit i: byte i of x is not that of y.
__device__ __forceinline__ u32 different_bytes(u32 x, u32 y) {
    const u32 different = x ^ y;
    const u32 high_bits = (((different & 0x7f7f7f7f) + 0x7f7f7f7f) | different) & 0x80808080;
    return (high_bits >> 7) * 0x10204080 >> 28;  // gathers bits 0, 8, 16, 24 in the highest four
}

// Varints: 7 bits a byte, low bits first, the high bit set on all bytes but the last.
__device__ __forceinline__ u32 varint_nbytes(u32 value) { return (38 - __clz(value | 1)) / 7; }

// Returns the address behind it.
__device__ __forceinline__ u8* write_varint(u8* at, u32 value) {
    for (; value > 0x7f; value >>= 7) *at++ = value | 0x80;
    *at = value;
    return at + 1;
}

// Read the varint at `at`, which goes on behind it. Returns what is wrong with it.
template <typename Place>
__device__ __forceinline__ u32 read_varint(const u8* stream, Place& at, Place end, u64& value) {
    value = 0;
    for (u32 n = 0; n < 9; ++n) {
        if (at >= end) return SHORT;
        const u64 byte = stream[at++];
        value |= (byte & 0x7f) << 7 * n;
        if (byte < 0x80) return byte == 0 && n > 0 ? LONG_VARINT : OK;
    }
    return LONG_VARINT;
}
