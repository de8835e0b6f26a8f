// The runs of patches, parsed a tile at a time: which bytes of its frame each run replaces, and by which literals.
//
// Defines: THREADS, of a block.
#pragma once
#include "frame.cuh"
#include "scan.cuh"
#include "types.cuh"
#include "varints.cuh"
#include "window.cuh"

#define TILE_RUNS (TILE_NBYTES / 2)
#define LONG_RUN 128       // longer ones are written by the whole thread block
#define BEYOND (1u << 30)  // no frame is larger: skips and lengths from here on are all alike

// The runs of a tile. Positions go on from frame to frame, modulo 2^32: that is exact up to the first bad run.
__shared__ u32 run_at[TILE_RUNS + 1];        // the position where each run is written; of the one behind them, the end
__shared__ u32 run_literals[TILE_RUNS + 1];  // the number of its first literal
__shared__ u32 long_runs, worst_run;

// What is uniform in a thread block, in registers.
struct Walk {
    Window window;
    u32 literals;       // where they begin in the stream
    u32 runs_end;
    u32 n_left;         // frames that are still to be walked
    Tile tile;
    u32 next;           // the byte of the tile behind what was parsed of it
    u32 frame;          // the first frame of the tile that is still to be walked, 0 for the one in which it begins
    u32 run;            // the first run of that frame
    u32 literals_used;  // by the runs before the tile
    bool in_frame;      // whether the tile begins in a frame; its count was in another one, and
    u32 open_runs;      // so many runs are left of it,
    u32 open_position;  // from this position on
};

struct Counts {   // added up, of the frames of a tile
    u32 n_runs;   // of which both varints are in the tile
    u32 n_used;   // varints: counts, and those of these runs
    u32 frame;    // of this thread's first run
    u32 end;      // the run behind that frame
};

// Where the count of a frame is among the varints of the tile, if `run` is its first run: -1 for the one in which the tile
// begins.
__device__ __forceinline__ i32 place_of_count(const Walk& walk, u32 run, u32 frame) {
    return static_cast<i32>(2 * run + frame) - (walk.in_frame ? 1 : 0);
}

__device__ __forceinline__ u32 count_at(const Walk& walk, i32 place) { return place < 0 ? walk.open_runs : values[place]; }

// How many runs are whole in the tile, of `count` behind the one at `place`.
__device__ __forceinline__ u32 whole_runs(const Walk& walk, i32 place, u32 count) {
    return min(count, (walk.tile.n_values - static_cast<u32>(place + 1)) / 2);
}

// Add up the counts: the serial part of a patch, done by every thread for itself.
__device__ __forceinline__ Counts add_counts(const Walk& walk, u32 my_first) {
    Counts counts = {0, 0, 0, 0};
    for (u32 frame = 0; frame < walk.n_left; frame++) {
        const i32 place = place_of_count(walk, counts.n_runs, frame);
        if (place >= static_cast<i32>(walk.tile.n_values)) break;
        const u32 count = count_at(walk, place), whole = whole_runs(walk, place, count);
        if (counts.n_runs <= my_first) counts.frame = frame, counts.end = counts.n_runs + whole;
        counts.n_runs += whole;
        counts.n_used = static_cast<u32>(place + 1) + 2 * whole;
        if (whole < count) break;
    }
    return counts;
}

__device__ __forceinline__ u32 capped(u32 value) { return min(value, BEYOND); }

// Where the runs of a tile are written and where their literals are, by prefix sums over skips and lengths.
__device__ __forceinline__ void place_runs(const Walk& walk, const Counts& counts) {
    const u32 per_thread = PIECE / 2, first = threadIdx.x * per_thread;
    u32 skips[per_thread], lengths[per_thread], frame = counts.frame, end = counts.end, position = 0, n_literals = 0;
    bool is_long = false;
#pragma unroll
    for (u32 i = 0; i < per_thread; i++) {
        skips[i] = lengths[i] = 0;
        const u32 run = first + i;
        if (run >= counts.n_runs) continue;
        while (run >= end) {
            frame++;
            const i32 place = place_of_count(walk, end, frame);
            end += whole_runs(walk, place, values[place]);
        }
        const u32 place = static_cast<u32>(place_of_count(walk, run, frame) + 1);
        skips[i] = capped(values[place]);
        lengths[i] = capped(values[place + 1]);
        is_long |= lengths[i] > LONG_RUN;
        position += skips[i] + lengths[i];
        n_literals += lengths[i];
    }
    if (is_long) atomicOr(&long_runs, 1);
    const Sums sums = sums_before(position, n_literals, 1);
    position = sums.before[0] + walk.open_position;
    n_literals = sums.before[1] + walk.literals_used;
#pragma unroll
    for (u32 i = 0; i < per_thread; i++) {
        if (first + i >= counts.n_runs) break;
        run_at[first + i] = position + skips[i];
        run_literals[first + i] = n_literals;
        position += skips[i] + lengths[i];
        n_literals += lengths[i];
    }
    if (threadIdx.x == 0) {
        run_at[counts.n_runs] = sums.total[0] + walk.open_position;
        run_literals[counts.n_runs] = sums.total[1] + walk.literals_used;
    }
}

// Parse the tile that begins at `begin`. No thread may be reading what is known of the tile before. What was fetched is there
// behind it.
__device__ __forceinline__ void parse_tile(Walk& walk, u32 begin) {
    Tile& tile = walk.tile;
    tile.begin = begin;
    tile.nbytes = min(walk.runs_end - begin, static_cast<u32>(TILE_NBYTES));
    if (!in_window(walk.window, begin, begin + tile.nbytes)) {
        move_window(walk.window, begin);
        __syncthreads();
    }
    if (threadIdx.x == 0) long_runs = 0, tile_end = 0;
    read_varints(walk.window, tile, tile.n_values);
    __syncthreads();
    tile.bad = first_bad != NONE;
    tile.n_values = min(tile.n_values, first_bad);
    const Counts counts = add_counts(walk, threadIdx.x * (PIECE / 2));
    if (counts.n_used) find_end(tile, counts.n_used - 1);
    place_runs(walk, counts);
    wait_for_fetch();
    __syncthreads();
    walk.next = tile_end;
    walk.run = walk.frame = 0;
}
