// What all kernels use: names of types, and how a kernel says what is wrong with a stream or an id. The statuses for that, from
// OK on, are above all text: see device/sources.py.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

constexpr u32 ALL_LANES = 0xffffffff;  // all threads of a warp, as a mask

// Keep the status of the lowest number, as ~number << 32 | status in one word for a whole batch: 0 while all is well. The word
// may be in pinned memory of the host.
__device__ __noinline__ void report(u64* failure, u64 number, u32 status) {
    const u64 word = (~number & 0xffffffff) << 32 | status;
    u64 known = 0;
    while (known < word) {
        const u64 found = atomicCAS(failure, known, word);
        if (found == known) break;
        known = found;
    }
}
