// Bytes as floats: float32(x) * scale, rounded to nearest even.
//
// Defines: THREADS, of a block; OUT: 0 for no conversion, 1 float16, 2 bfloat16, 3 float32.
#pragma once
#include "types.cuh"

// The bits of a float16, without a header of CUDA.
__device__ __forceinline__ u16 to_float16(float x) {
    const u32 bits = __float_as_uint(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    u32 rounded;
    if (size > 0x7f800000)
        rounded = 0x7e00;
    else if (size >= 0x477ff000)  // what is nearer to infinity than to 65504
        rounded = 0x7c00;
    else if (size < 0x38800000)  // subnormal: in this sum, its last bit is the last one of the float32
        rounded = __float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000;
    else
        rounded = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    return static_cast<u16>(sign | rounded);
}

__device__ __forceinline__ u16 to_bfloat16(float x) {
    const u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<u16>(bits >> 16 | 0x40);
    return static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

__device__ __forceinline__ float scaled(u8 x, float scale) {
#ifdef __CUDA_ARCH__
    float product;  // compilers are told to make subnormal products zero, which no one sees in this instruction
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(__uint2float_rn(x)), "f"(scale));
    return product;
#else
    return static_cast<float>(x) * scale;
#endif
}

#if OUT == 1 || OUT == 2
typedef u16 Converted;
__shared__ u16 converted_bytes[256];  // of each byte: there are no more than that

// A barrier must follow.
__device__ __forceinline__ void prepare_conversion(float scale) {
    for (u32 x = threadIdx.x; x < 256; x += THREADS) {
        const float y = scaled(static_cast<u8>(x), scale);
        converted_bytes[x] = OUT == 1 ? to_float16(y) : to_bfloat16(y);
    }
}
__device__ __forceinline__ Converted converted(u8 x, float scale) { return converted_bytes[x]; }
#else
__device__ __forceinline__ void prepare_conversion(float scale) {}
#if OUT == 3
typedef float Converted;
__device__ __forceinline__ Converted converted(u8 x, float scale) { return scaled(x, scale); }
#endif
#endif
