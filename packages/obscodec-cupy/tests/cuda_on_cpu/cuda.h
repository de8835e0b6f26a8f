// What CUDA C++ gives to a kernel, for g++. Each CUDA thread is a fiber (fibers.cpp), and g++ calls memory.cpp before
// each access to memory, as it would call its own detector of races.
#pragma once
#include <stdint.h>
#include <string.h>

#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __constant__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static  // build.py gathers all variables of a kernel in the section cuda_shared

struct uint3 { unsigned x, y, z; };
struct __attribute__((aligned(8))) uint2 { unsigned x, y; };
struct __attribute__((aligned(16))) uint4 { unsigned x, y, z, w; };
struct __attribute__((aligned(16))) ulonglong2 { unsigned long long x, y; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace cuda {

enum Combine { NOTHING, ANY, ALL, COUNT };

extern unsigned char dynamic[];  // shared memory
uint3 thread_index();
uint3 block_index();
uint3 block_size();
uint3 grid_size();
int barrier(Combine combine, int value, int line);
// Meet the other lanes of a mask and give them a value; then from_lane is what one of them gave.
void exchange(unsigned mask, uint64_t value, int line);
void sync_warp(unsigned mask, int line);
uint64_t from_lane(unsigned lane);
unsigned own_lane();
unsigned ballot(unsigned mask, bool value, int line);
void atomic_access(const volatile void* at, unsigned nbytes, const void* where);

template <typename T>
static T shuffled(unsigned mask, T value, unsigned lane, int line) {
    static_assert(sizeof(T) <= 8, "an exchange moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    exchange(mask, bits, line);
    bits = from_lane(lane);
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The lane that a shuffle reads, of a segment of `width` lanes; the own one where that lies outside.
struct Source {
    int64_t by;
    int width = 32;
};
static inline unsigned to(Source s) { return own_lane() / s.width * s.width + unsigned(s.by) % s.width; }
static inline unsigned up(Source s) { return own_lane() % s.width >= s.by ? own_lane() - s.by : own_lane(); }
static inline unsigned down(Source s) { return own_lane() % s.width + s.by < s.width ? own_lane() + s.by : own_lane(); }
static inline unsigned across(Source s) {
    const unsigned lane = own_lane() ^ unsigned(s.by);
    return lane / s.width <= own_lane() / s.width && lane < 32 ? lane : own_lane();
}

template <typename T, typename Change>
__attribute__((no_sanitize("thread"), noinline)) static T changed(T* at, Change change) {
    atomic_access(at, sizeof(T), __builtin_return_address(0));
    const T before = *at;
    *at = change(before);
    return before;
}

template <typename T>
using Same = typename std::common_type<T>::type;  // not deduced from this argument

static inline unsigned mask_or_all(unsigned mask = 0xffffffff) { return mask; }

}  // namespace cuda

#define threadIdx (cuda::thread_index())
#define blockIdx (cuda::block_index())
#define blockDim (cuda::block_size())
#define gridDim (cuda::grid_size())
#define warpSize 32

#define __syncthreads() ((void)cuda::barrier(cuda::NOTHING, 0, __LINE__))
#define __syncthreads_or(x) cuda::barrier(cuda::ANY, (x) != 0, __LINE__)
#define __syncthreads_and(x) cuda::barrier(cuda::ALL, (x) != 0, __LINE__)
#define __syncthreads_count(x) cuda::barrier(cuda::COUNT, (x) != 0, __LINE__)
#define __syncwarp(...) cuda::sync_warp(cuda::mask_or_all(__VA_ARGS__), __LINE__)
#define __ballot_sync(mask, x) cuda::ballot(mask, (x) != 0, __LINE__)
#define __any_sync(mask, x) (cuda::ballot(mask, (x) != 0, __LINE__) != 0)
#define __all_sync(mask, x) (cuda::ballot(mask, (x) != 0, __LINE__) == (mask))
#define __shfl_sync(mask, x, ...) cuda::shuffled(mask, x, cuda::to(cuda::Source{__VA_ARGS__}), __LINE__)
#define __shfl_up_sync(mask, x, ...) cuda::shuffled(mask, x, cuda::up(cuda::Source{__VA_ARGS__}), __LINE__)
#define __shfl_down_sync(mask, x, ...) cuda::shuffled(mask, x, cuda::down(cuda::Source{__VA_ARGS__}), __LINE__)
#define __shfl_xor_sync(mask, x, ...) cuda::shuffled(mask, x, cuda::across(cuda::Source{__VA_ARGS__}), __LINE__)

template <typename T> static T atomicAdd(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return T(old + x); }); }
template <typename T> static T atomicSub(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return T(old - x); }); }
template <typename T> static T atomicOr(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return old | x; }); }
template <typename T> static T atomicAnd(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return old & x; }); }
template <typename T> static T atomicXor(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return old ^ x; }); }
template <typename T> static T atomicMax(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return old > x ? old : x; }); }
template <typename T> static T atomicMin(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return old < x ? old : x; }); }
template <typename T> static T atomicExch(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T) { return x; }); }
template <typename T> static T atomicCAS(T* at, cuda::Same<T> expected, cuda::Same<T> x) {
    return cuda::changed(at, [=](T old) { return old == expected ? x : old; });
}

template <typename T> static T __ldg(const T* at) { return *at; }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __uint2float_rn(unsigned x) { return float(x); }
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t bytes = uint64_t(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned nibble = selector >> 4 * i & 15;
        unsigned byte = unsigned(bytes >> 8 * (nibble & 7)) & 255;
        if (nibble & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned((uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
template <typename T> static T min(T x, T y) { return y < x ? y : x; }
template <typename T> static T max(T x, T y) { return x < y ? y : x; }
