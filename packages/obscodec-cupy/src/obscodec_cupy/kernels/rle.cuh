// Streams of rle to items, one at a time by all threads of a block: a multiple of 32, at most 256. ELEMENT_NBYTES: 1, 2, 4 or 8.
//
// A tile is some bytes of the run lengths, a few for each thread. A sum over the bytes that end a varint numbers the runs, one
// over their lengths gives where they begin in the item. Then each thread looks up the runs that 16 bytes of the item lie in,
// so that all threads have the same to do, whether runs are long or short. That only finds out whether a stream is good:
// `rle_verdict` reads a bad one again, run by run, to say what is wrong with it.
#include "block_scan.cuh"
#include "bytes.cuh"

constexpr u32 THREAD_NBYTES = 4, MOST_RUNS = 256 * THREAD_NBYTES;  // of a tile

__device__ __forceinline__ u64 value_of(const u8* values, u64 run) {
    u64 value = 0;
    for (u32 k = 0; k < ELEMENT_NBYTES; ++k) value |= static_cast<u64>(values[run * ELEMENT_NBYTES + k]) << 8 * k;
    return value;
}

// The run length of which the last byte is at `at`: 0 if none ends there, size + 1 for one that no item has, or a bad varint.
__device__ __forceinline__ u32 length_ending_at(const u8* lengths, u64 nbytes, u64 at, u32 size) {
    if (at >= nbytes || lengths[at] >= 0x80) return 0;
    u64 length = lengths[at];
    if (length == 0) return size + 1;
    for (u32 k = 1; k <= at && lengths[at - k] >= 0x80; ++k) {
        if (k == 5) return size + 1;
        length = length << 7 | (lengths[at - k] & 0x7f);
    }
    return length <= size ? length : size + 1;
}

// The last of n > 0 runs that begins at an element or before it; the first one does.
__device__ __forceinline__ u32 run_at(const u32* starts, u32 n, u32 element) {
    u32 run = 0;
    for (u32 step = 1u << (31 - __clz(n)); step; step /= 2)
        if (run + step < n && starts[run + step] <= element) run += step;
    return run;
}

// Fill the elements from `begin` to `end`, counted from `base`, with n runs. starts: of each, and `end` behind them.
__device__ __forceinline__ void fill(u8* base, u32 begin, u32 end, const u32* starts, const u8* values, u32 n) {
    constexpr u32 CHUNK = 16 / ELEMENT_NBYTES;  // elements
    for (u32 first = (begin / CHUNK + threadIdx.x) * CHUNK; first < end; first += blockDim.x * CHUNK) {
        const u32 from = Max::of(first, begin), to = first + CHUNK < end ? first + CHUNK : end;
        u32 run = run_at(starts, n, from), next = starts[run + 1];
        u64 value = value_of(values, run), words[2] = {0, 0};
#pragma unroll
        for (u32 k = 0; k < CHUNK; ++k) {
            if (first + k < from || first + k >= to) continue;
            if (first + k >= next) {
                next = starts[++run + 1];
                value = value_of(values, run);
            }
            words[k * ELEMENT_NBYTES / 8] |= value << 8 * (k * ELEMENT_NBYTES % 8);
        }
        u8* out = base + static_cast<u64>(first) * ELEMENT_NBYTES;
        if (to - from == CHUNK && reinterpret_cast<u64>(out) % 16 == 0)
            *reinterpret_cast<uint4*>(out) = make_uint4(words[0], words[0] >> 32, words[1], words[1] >> 32);
        else
            for (u32 i = (from - first) * ELEMENT_NBYTES; i < (to - first) * ELEMENT_NBYTES; ++i)
                out[i] = (i < 8 ? words[0] : words[1]) >> 8 * (i % 8);
    }
}

// Fill an item of `size` elements from its runs. Returns whether the stream is good, the same to all threads.
__device__ __forceinline__ bool decode_runs(const u8* lengths, u64 nbytes, const u8* values, u64 n_runs, u8* item, u32 size) {
    __shared__ u32 starts[MOST_RUNS + 1];  // of the runs of a tile
    constexpr u64 ONE_RUN = 1ull << 48;    // runs in the highest 16 bits of a sum, elements below
    const u32 skipped = reinterpret_cast<u64>(item) % 16 / ELEMENT_NBYTES;  // count from a multiple of 16, for vector stores
    item -= skipped * ELEMENT_NBYTES;
    u64 n_done = 0, filled = skipped;
    for (u64 first = 0; first < nbytes; first += blockDim.x * THREAD_NBYTES) {
        u32 own[THREAD_NBYTES];
        u64 sums = 0;
        for (u32 k = 0; k < THREAD_NBYTES; ++k) {
            own[k] = length_ending_at(lengths, nbytes, first + THREAD_NBYTES * threadIdx.x + k, size);
            if (own[k]) sums += ONE_RUN + own[k];
        }
        const Scanned<u64> scanned = scan_block<Sum>(sums);
        const u64 n = scanned.total / ONE_RUN, end = filled + scanned.total % ONE_RUN;
        if (n == 0 || n_done + n > n_runs || end > skipped + size) return false;
        u32 place = scanned.before / ONE_RUN;
        u32 start = filled + scanned.before % ONE_RUN;
        for (u32 k = 0; k < THREAD_NBYTES; ++k) {
            if (own[k]) starts[place++] = start;
            start += own[k];
        }
        if (threadIdx.x == 0) starts[n] = end;
        __syncthreads();
        fill(item, filled, end, starts, values + n_done * ELEMENT_NBYTES, n);
        n_done += n, filled = end;
    }
    return n_done == n_runs && filled == skipped + size && (nbytes == 0 || lengths[nbytes - 1] < 0x80);
}

// What is wrong with runs, in the order in which the CPU finds it: every thread reads them one after the other.
__device__ __noinline__ u32 rle_verdict(const u8* stream, u64 at, u64 end, u64 n_runs, u64 size) {
    for (; n_runs > 0; --n_runs) {
        u64 length;
        const u32 status = read_varint(stream, at, end, length);
        if (status != OK) return status;
        if (length < 1 || length > size) return WRONG_LENGTH;
        size -= length;
    }
    return size > 0 ? WRONG_SUM : WRONG_SECTION;
}

// Decode one item of `size` elements. Returns its status, the same to all threads.
__device__ __forceinline__ u32 decode_rle(const u8* stream, u64 nbytes, u8* item, u32 size) {
    u64 n_runs, at = 0;
    const u32 status = read_varint(stream, at, nbytes, n_runs);
    if (status != OK) return status;
    if (n_runs == 0) {  // the item as it is
        if (nbytes - at != static_cast<u64>(size) * ELEMENT_NBYTES) return WRONG_SIZE;
        copy_bytes(item, stream + at, nbytes - at);
        return OK;
    }
    if (n_runs > size || n_runs * ELEMENT_NBYTES > nbytes - at) return WRONG_COUNT;
    const u64 end = nbytes - n_runs * ELEMENT_NBYTES;
    if (decode_runs(stream + at, end - at, stream + end, n_runs, item, size)) return OK;
    return rle_verdict(stream, at, end, n_runs, size);
}
