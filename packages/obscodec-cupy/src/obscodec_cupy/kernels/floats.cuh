// Floating-point numbers of 16 bits, and a product that is rounded as on the CPU.
#pragma once
#include "types.cuh"

// x * scale as IEEE 754 has it. CuPy compiles with -ftz=true, which makes zeros of the smallest products of the operator.
__device__ __forceinline__ float scaled(float x, float scale) {
#ifdef __CUDACC__
    float product;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(x), "f"(scale));
    return product;
#else
    return x * scale;
#endif
}

// Half of the last bit that is kept, less when that bit is even: added before the rest is cut off, it rounds to even.
__device__ __forceinline__ u32 rounded_off(u32 bits, u32 n) {
    return (bits + (1u << (n - 1)) - 1 + (bits >> n & 1)) >> n;
}

// The bits of the bfloat16 that is nearest to x.
__device__ __forceinline__ u16 bfloat16_bits(float x) {
    const u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<u16>(bits >> 16 | 0x40);  // NaN stays NaN
    return static_cast<u16>(rounded_off(bits, 16));
}

// The bits of the float16 that is nearest to x.
__device__ __forceinline__ u16 float16_bits(float x) {
    const u32 bits = __float_as_uint(x);
    const u32 sign = bits >> 16 & 0x8000;
    const u32 size = bits & 0x7fffffff;
    if (size > 0x7f800000) return static_cast<u16>(sign | 0x7e00 | (size >> 13 & 0x3ff));
    if (size >= 0x47800000) return static_cast<u16>(sign | 0x7c00);  // 65,536 and more are infinite
    if (size >= 0x38800000) return static_cast<u16>(sign | rounded_off(size - (112u << 23), 13));
    // Below 2^-14: multiples of 2^-24, and 0 up to half of one.
    const u32 exponent = size >> 23;
    if (exponent < 102) return static_cast<u16>(sign);
    const u32 significand = (size & 0x7fffff) | 0x800000;
    return static_cast<u16>(sign | rounded_off(significand, 126 - exponent));
}
