// Patches, see docs/formats/delta-rle.md: a thread block walks the frames of a stream, each a patch of the one before.
//
// The runs of all frames are parsed by prefix sums, see tiles.cuh. One after the other, it is left to add up the counts, and
// to write the runs of each frame before those of the next. What is wrong is found in the order in which core finds it.
//
// Defines: THREADS, of a block; FRAME_NBYTES, not over 2^30; FRAME_IN_SHARED, 1 if the frame is in shared memory.
#pragma once
#include "errors.cuh"
#include "frame.cuh"
#include "tiles.cuh"
#include "types.cuh"
#include "window.cuh"

#define LANES 8  // that write a run together, unless it is a long one

// The runs of a frame that are in the tile.
struct FrameRuns {
    u32 first, n;
    i32 place;       // of the count before them, see place_of_count
    u32 base;        // the position at which the frame begins
    u32 n_literals;  // of the stream
};

struct Run {
    u32 at, literal, length;
};

// Read one of the runs. Returns what is wrong with it.
__device__ __forceinline__ u32 read_run(const FrameRuns& runs, u32 i, Run& run) {
    run.at = run_at[runs.first + i] - runs.base;
    run.literal = run_literals[runs.first + i];
    run.length = capped(values[static_cast<u32>(runs.place + 2) + 2 * i]);
    if (run.at > FRAME_NBYTES || run.length > FRAME_NBYTES - run.at) return OUTSIDE_FRAME;
    if (run.literal > runs.n_literals || run.length > runs.n_literals - run.literal) return NO_LITERALS;
    return OK;
}

// Write literals to the frame, every `n_threads`-th from `first` on.
__device__ __forceinline__ void write_run(const Walk& walk, const Run& run, u8* frame, u32 first, u32 n_threads) {
    const u32 begin = walk.literals + run.literal;
    u8* target = frame + run.at;
    if (in_window(walk.window, begin, begin + run.length)) {
        const u8* literals = window_bytes + walk.window.at + (begin - walk.window.begin);
#pragma unroll 4
        for (u32 i = first; i < run.length; i += n_threads) target[i] = literals[i];
    } else {
        for (u32 i = first; i < run.length; i += n_threads) target[i] = byte_of(walk.window, begin + i);
    }
}

__device__ __forceinline__ void write_long_runs(const Walk& walk, const FrameRuns& runs, u8* frame) {
    for (u32 first = 0; first < runs.n; first += 32) {
        Run run;
        const u32 i = first + threadIdx.x % 32;
        const bool is_long = i < runs.n && read_run(runs, i, run) == OK && run.length > LONG_RUN;
        for (u32 rest = __ballot_sync(0xffffffff, is_long); rest; rest &= rest - 1) {
            read_run(runs, first + __ffs(rest) - 1, run);
            write_run(walk, run, frame, threadIdx.x, THREADS);
        }
    }
}

// What is wrong with the first bad run.
__device__ __noinline__ u32 first_error(FrameRuns runs) {
    if (threadIdx.x == 0) worst_run = NONE;
    __syncthreads();
    for (u32 i = threadIdx.x; i < runs.n; i += THREADS) {
        Run run;
        const u32 code = read_run(runs, i, run);
        if (code != OK) atomicMin(&worst_run, 2 * i + (code == NO_LITERALS));
    }
    __syncthreads();
    return worst_run % 2 ? NO_LITERALS : OUTSIDE_FRAME;
}

// Write runs to the frame. No thread may be reading it; there is a barrier behind that. Returns what is wrong.
__device__ __forceinline__ u32 write_runs(Walk& walk, const FrameRuns& runs, u8* frame) {
    const u32 begin = walk.literals + run_literals[runs.first], end = walk.literals + run_literals[runs.first + runs.n];
    if (!in_window(walk.window, begin, end) && begin != walk.window.begin && begin < walk.window.nbytes) {
        move_window(walk.window, begin);
        __syncthreads();
    }
    bool bad = false;
    for (u32 i = threadIdx.x / LANES; i < runs.n; i += THREADS / LANES) {
        Run run;
        if (read_run(runs, i, run) != OK)
            bad = true;
        else if (run.length <= LONG_RUN)
            write_run(walk, run, frame, threadIdx.x % LANES, LANES);
    }
    if (long_runs) write_long_runs(walk, runs, frame);
    return __syncthreads_or(bad) ? first_error(runs) : OK;
}

// Go on to the tile behind the one that was walked. Returns what is wrong if there is none.
__device__ __forceinline__ u32 next_tile(Walk& walk) {
    if (walk.tile.bad) return LONG_VARINT;
    if (walk.tile.begin + walk.tile.nbytes == walk.runs_end) return SHORT;
    walk.literals_used = run_literals[walk.run];
    __syncthreads();
    parse_tile(walk, walk.tile.begin + walk.next);
    return OK;
}

// The runs of the next frame, as far as they are in the tile; `place` is that of its count.
__device__ __forceinline__ FrameRuns next_runs(const Walk& walk, i32 place, u32 count) {
    FrameRuns runs = {walk.run, whole_runs(walk, place, count), place, 0, walk.window.nbytes - walk.literals};
    if (place >= 0 && runs.n) runs.base = run_at[runs.first] - capped(values[place + 1]);
    return runs;
}

// Turn the frame into the next one. Returns what is wrong, the same to all threads. No thread may be reading the frame.
__device__ __forceinline__ u32 next_frame(Walk& walk, u8* frame) {
    for (;;) {
        const i32 place = place_of_count(walk, walk.run, walk.frame);
        const bool begins = place < static_cast<i32>(walk.tile.n_values);
        u32 left = 0, position = place < 0 ? walk.open_position : 0, code = OK;
        if (begins) {
            const u32 count = count_at(walk, place);
            const FrameRuns runs = next_runs(walk, place, count);
            if (runs.n) {
                code = write_runs(walk, runs, frame);
                walk.run += runs.n;
                position = run_at[walk.run] - runs.base;
            }
            left = count - runs.n;
            if (code != OK || left == 0) {
                walk.frame++;
                walk.n_left--;
                return code;
            }
        }
        walk.in_frame = begins;
        walk.open_runs = left;
        walk.open_position = position;
        code = next_tile(walk);
        if (code != OK) return code;
    }
}

// A varint at the beginning of a stream; minus what is wrong with it, or the place behind it.
__device__ __forceinline__ i32 read_varint(const Window& w, i32 at, u64& value) {
    value = 0;
    for (u32 k = 0; k < 9; k++) {
        if (static_cast<u32>(at) + k >= w.nbytes) return -static_cast<i32>(SHORT);
        const u64 byte = window_bytes[w.at + at + k];
        value |= (byte & 0x7f) << 7 * k;
        if (byte < 0x80) return byte == 0 && k > 0 ? -static_cast<i32>(LONG_VARINT) : at + static_cast<i32>(k) + 1;
    }
    return -static_cast<i32>(LONG_VARINT);
}

struct References {
    const u8* frames;  // u8[n][FRAME_NBYTES], aligned as FrameWord is
    u64 n;
};

// Begin to walk a stream of `n_frames` frames or more: have the reference of its first frame in `frame`, and a tile parsed.
// Returns what is wrong, the same to all threads.
//
// `stored` streams begin with the version of a block.
__device__ __forceinline__ u32 begin_walk(Walk& walk, const u8* stream, u64 nbytes, bool stored,
                                          const References& references, u32 n_frames, u8* frame) {
    if (nbytes >> 32) return TOO_LONG;
    walk.window.stream = stream;
    walk.window.nbytes = static_cast<u32>(nbytes);
    __syncthreads();
    move_window(walk.window, 0);
    __syncthreads();
    if (stored && nbytes && window_bytes[walk.window.at] != 0) return OTHER_VERSION;
    u64 reference, runs_nbytes;
    i32 at = read_varint(walk.window, stored, reference);
    if (at >= 0) at = read_varint(walk.window, at, runs_nbytes);
    if (at < 0) return static_cast<u32>(-at);
    if (runs_nbytes > walk.window.nbytes - at) return NO_SUCH_SECTION;
    if (reference >= references.n) return NO_SUCH_REFERENCE;
    fetch_frame(frame, references.frames + reference * FRAME_NBYTES);
    walk.literals = walk.runs_end = static_cast<u32>(at + runs_nbytes);
    walk.n_left = n_frames;
    walk.literals_used = walk.open_runs = walk.open_position = 0;
    walk.in_frame = false;
    parse_tile(walk, static_cast<u32>(at));
    return OK;
}

// Whether a stream whose frames were all walked ends with them.
__device__ __forceinline__ bool is_at_end(const Walk& walk) {
    return walk.tile.begin + walk.next == walk.runs_end && walk.literals + run_literals[walk.run] == walk.window.nbytes;
}
