// Bytes as floats: float32(x) * scale, rounded to nearest even.
//
// Defines: THREADS, of a block; OUT: 0 for no conversion, 1 float16, 2 bfloat16, 3 float32.
#pragma once
#include "floats.cuh"
#include "types.cuh"

#if OUT == 1 || OUT == 2
typedef u16 Converted;
__shared__ u16 converted_bytes[256];  // of each byte: there are no more than that

// A barrier must follow before something is converted.
__device__ __forceinline__ void prepare_conversion(float scale) {
    for (u32 x = threadIdx.x; x < 256; x += THREADS) {
        const float y = scaled(static_cast<float>(x), scale);
        converted_bytes[x] = OUT == 1 ? float16_bits(y) : bfloat16_bits(y);
    }
}
__device__ __forceinline__ Converted converted(u8 x, float scale) { return converted_bytes[x]; }
#else
__device__ __forceinline__ void prepare_conversion(float scale) {}
#if OUT == 3
typedef float Converted;
__device__ __forceinline__ Converted converted(u8 x, float scale) { return scaled(static_cast<float>(x), scale); }
#endif
#endif
