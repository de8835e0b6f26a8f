// Many copies in one launch, one thread block for each.
#include "bytes.cuh"

// staged: u64[n][3] of (offset in staged, destination address, nbytes), and the bytes that it speaks of behind it.
extern "C" __global__ void scatter(const u8* staged) {
    const u64* piece = reinterpret_cast<const u64*>(staged) + 3 * static_cast<u64>(blockIdx.x);
    copy_bytes(reinterpret_cast<u8*>(piece[1]), staged + piece[0], piece[2]);
}
