// What all kernels use: names of types, what can be wrong with a stream or an id, and how a kernel says so.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

constexpr u32 ALL_LANES = 0xffffffff;  // all threads of a warp, as a mask

// The statuses of the core's codecs/statuses.py, and those of codecs/failures.py.
enum : u32 {
    OK = 0,
    SHORT = 1,
    LONG_VARINT = 2,
    OUTSIDE_FRAME = 3,
    NO_LITERALS = 4,
    NO_SUCH_REFERENCE = 16,
    NO_SUCH_SECTION = 17,
    LEFT_OVER = 18,
    OTHER_VERSION = 19,
    FEW_FRAMES = 20,
    BAD_ID = 32,
    OUTSIDE_BUFFER = 33,
    TOO_LONG = 34,
    WRONG_COUNT = 52,
    WRONG_LENGTH = 53,
    WRONG_SUM = 54,
    WRONG_SECTION = 55,
    WRONG_SIZE = 56,
};

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
