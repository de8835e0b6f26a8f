// Where streams of known lengths begin that lie one behind the other.
#include "block_scan.cuh"

// One thread block.
extern "C" __global__ void __launch_bounds__(1024) offsets(const i64* lengths, u64 n, i64* offsets) {
    u64 done = 0;
    for (u64 first = 0; first < n; first += blockDim.x) {
        const u64 i = first + threadIdx.x;
        const Scanned<u64> place = scan_block<Sum>(i < n ? static_cast<u64>(lengths[i]) : 0);
        if (i < n) offsets[i] = static_cast<i64>(done + place.before);
        done += place.total;
    }
}
