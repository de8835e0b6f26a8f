// Sums and maxima over the threads of a block, whose number is a multiple of 32; all of them take part.
#include "basics.cuh"

struct Sum { template <typename T> static __device__ __forceinline__ T of(T x, T y) { return x + y; } };
struct Max { template <typename T> static __device__ __forceinline__ T of(T x, T y) { return x > y ? x : y; } };

template <typename T>
struct Scanned {
    T before;  // of the threads before this one, 0 for the first
    T total;   // of all
};

template <typename Combine, typename T>
__device__ __forceinline__ Scanned<T> scan_block(T value) {
    __shared__ T warp_totals[32];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    T through = value;
    for (u32 distance = 1; distance < 32; distance *= 2) {
        const T other = __shfl_up_sync(ALL_LANES, through, distance);
        if (lane >= distance) through = Combine::of(other, through);
    }
    T before = __shfl_up_sync(ALL_LANES, through, 1);
    if (lane == 0) before = 0;
    __syncthreads();  // the totals of the scan before this one have been read
    if (lane == 31) warp_totals[warp] = through;
    __syncthreads();
    T total = 0;
    for (u32 i = 0; i < n_warps; ++i) {
        if (i == warp) before = Combine::of(total, before);
        total = Combine::of(total, warp_totals[i]);
    }
    return {before, total};
}
