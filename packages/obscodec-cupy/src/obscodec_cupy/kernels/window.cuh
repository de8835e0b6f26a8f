// A window on a stream: a part of it in shared memory, loaded by all threads of a block with vectors of 16 bytes.
//
// Defines: THREADS, of a block.
#pragma once
#include "types.cuh"

#define WINDOW_NBYTES 16384  // most blocks of 16 frames are smaller, so that they are loaded once
#define BEFORE 16            // so many bytes before the window may be read, whatever they are

__shared__ __align__(16) u8 window_bytes[BEFORE + 16 + WINDOW_NBYTES + 16];

struct Window {
    const u8* stream;
    u32 nbytes;    // of the stream
    u32 begin;     // the first byte of the stream that is in the window
    u32 n;         // how many are
    u32 at;        // where in window_bytes that one lies: aligned as it is in the stream
};

__device__ __forceinline__ bool in_window(const Window& w, u32 begin, u32 end) {
    return begin >= w.begin && end - w.begin <= w.n && end >= begin;
}

__device__ __forceinline__ u8 byte_of(const Window& w, u32 offset) {
    const u32 place = offset - w.begin;
    return place < w.n ? window_bytes[w.at + place] : w.stream[offset];
}

// Move the window so that it begins at a byte of the stream. No thread may be reading it, and none may before the next
// barrier. Nothing outside of the stream is read: its first and last bytes go one by one.
__device__ __forceinline__ void move_window(Window& w, u32 begin) {
    const u8* source = w.stream + begin;
    const u32 misaligned = static_cast<u32>(reinterpret_cast<u64>(source) % 16);
    w.begin = begin;
    w.n = min(w.nbytes - begin, static_cast<u32>(WINDOW_NBYTES));
    w.at = BEFORE + misaligned;
    const u32 head = min((16 - misaligned) % 16, w.n);
    const u32 n_vectors = (w.n - head) / 16;
    const uint4* vectors = reinterpret_cast<const uint4*>(source + head);
    uint4* target = reinterpret_cast<uint4*>(window_bytes + w.at + head);
#pragma unroll 4
    for (u32 i = threadIdx.x; i < n_vectors; i += THREADS) target[i] = vectors[i];
    const u32 tail = head + n_vectors * 16;
    const u32 rest = threadIdx.x < 16 ? threadIdx.x : tail + threadIdx.x - 16;  // one thread for each
    if (threadIdx.x < 16 ? rest < head : threadIdx.x < 32 && rest < w.n) window_bytes[w.at + rest] = source[rest];
}
