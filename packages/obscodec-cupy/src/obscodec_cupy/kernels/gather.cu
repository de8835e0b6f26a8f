// The tensors of a batch, for one or two fields of it, in one launch: PARTS thread blocks for each sample. They find out which
// frames the sample is made of, take turns at the blocks that hold some of them, read each once, and write each frame to all of
// its places while it is at hand.
//
// Defines: THREADS of a thread block; PARTS; FRAME_NBYTES, BLOCK_FRAMES and DEPTH of the store; CODEC of its blocks,
// ELEMENT_NBYTES, of what rle repeats, and LZ4_NBYTES, see lz4.cuh; FRAME_IN_SHARED, see frame.cuh; JUMPS, see jump.cuh; and
// those of output.cuh.
#include "jump.cuh"
#include "lz4.cuh"
#include "output.cuh"
#include "patches.cuh"
#include "rle.cuh"
#include "tables.cuh"

enum { DELTA_RLE, RAW, RLE };  // CODEC

// One frame of a sample: its block, without bytes if that is of zeros, and its place in the block.
struct Wanted {
    const u8* stream;
    u64 nbytes;
    u32 block, place;
};
__shared__ Wanted wanted[32];  // looked up by one warp, so that all agree on it

// Get a frame of a block that holds frames as they are or, one alone, compressed by rle: see docs/formats/frame-block.md. It is
// there behind a barrier. Returns what is wrong, the same to all threads.
__device__ __forceinline__ u32 read_plain(const Wanted& one, u32 place, u8* frame) {
    if (CODEC == RLE && one.stream[0] == 1)
        return decode_rle(one.stream + 1, one.nbytes - 1, frame, FRAME_NBYTES / ELEMENT_NBYTES);
    if (one.stream[0] != 0) return OTHER_VERSION;
    if ((place + 1ull) * FRAME_NBYTES > one.nbytes - 1) return FEW_FRAMES;
    copy_bytes(frame, one.stream + 1 + static_cast<u64>(place) * FRAME_NBYTES, FRAME_NBYTES);
    return OK;
}

// Thread blocks of a multiprocessor, at least: as many as spill no registers.
constexpr u32 LEAST_BLOCKS = (CODEC == RLE || CONVERTS || SHIFTS ? 512 : 768) / THREADS;

// tables: of the store. first: the sample of the first thread block.
// places: i64[samples], the indices of `ids` that are the samples; null for 0, 1, 2, ...
// n_fields: 1, or 2 for two fields of the same store; the second four are not read if it is 1.
// ids: i32[n_ids], of stacks, or of frames if DEPTH is 1. shifts: i32[samples][2], rows and columns, if there is a HEIGHT.
// out: [samples][DEPTH][frame], or as PIXELS says; aligned to what is written at once.
// known_values: OutItem[256], what each byte becomes; not read if bytes stay bytes.
// scratch: aligned to 16, u8[thread blocks][FRAME_ROOM] if FRAME_IN_SHARED is 0, then u8[thread blocks][LZ4_ROOM] if
// patches that LZ4 has compressed may not fit into shared memory.
//
// A sample whose id is out of range, or a frame that can't be read, is zeros where it is wrong, and is reported:
// the number of the block, or of the sample for an id.
extern "C" __global__ void __launch_bounds__(THREADS, LEAST_BLOCKS) gather(
    const Tables* tables, i64 first, const i64* places, u32 n_fields, const i32* ids0, i64 n_ids0, OutItem* out0, const i32* shifts0,
    const i32* ids1, i64 n_ids1, OutItem* out1, const i32* shifts1, const OutItem* known_values, u8* scratch) {
    u8* frame = frame_of_block(scratch);
    u8* room = scratch + (FRAME_IN_SHARED ? 0 : static_cast<u64>(gridDim.x) * FRAME_ROOM) + blockIdx.x * LZ4_ROOM;
    const i64 sample = first + blockIdx.x / PARTS;
    const u32 part = blockIdx.x % PARTS;
    if (CONVERTS)
        for (u32 x = threadIdx.x; x < 256; x += THREADS) converted[x] = known_values[x];
    if (threadIdx.x < 32) {  // lane DEPTH * field + k is for the frame at place k of a stack
        const u32 field = threadIdx.x / DEPTH;
        const u64 n_blocks = tables->n_blocks;
        const u64 (*blocks)[2] = tables->blocks;
        const i64 at = places ? places[sample] : sample;
        const bool known = field < n_fields && at >= 0 && at < (field ? n_ids1 : n_ids0);
        const Found found = frame_of_stack(tables, known ? (field ? ids1 : ids0)[at] : 0, threadIdx.x % DEPTH);
        const bool is_frame = known && found.frame != NO_FRAME && found.frame / BLOCK_FRAMES < n_blocks;
        if (__any_sync(ALL_LANES, field < n_fields && !is_frame) && threadIdx.x == 0 && part == 0)
            report(tables->failure, sample, BAD_ID);
        ulonglong2 row = found.row;
        if (is_frame && found.frame / BLOCK_FRAMES != found.block)
            row = *reinterpret_cast<const ulonglong2*>(blocks[found.frame / BLOCK_FRAMES]);
        const u64 address = is_frame ? row.x : 0;
        wanted[threadIdx.x] = {reinterpret_cast<const u8*>(address), address ? row.y : 0, found.frame / BLOCK_FRAMES,
                               found.frame % BLOCK_FRAMES};
    }
    __syncthreads();
    const u32 lane = threadIdx.x % 32, block = wanted[lane].block, place = wanted[lane].place;
    const u64 row = static_cast<u64>(sample) * DEPTH * FRAME_ITEMS;
    const auto target = [&](u32 of_lane) {
        OutItem* out = (of_lane < DEPTH ? out0 : out1) + row;
        return reinterpret_cast<Unit*>(out) + static_cast<u64>(of_lane % DEPTH) * (FRAME_UNITS / PIXELS);
    };
    const auto put_frames = [&](const u8* one, u32 lanes) {
#ifdef HEIGHT
#pragma unroll
        for (u32 field = 0; field < 2; field++)
            if (const u32 of_field = lanes & ((1u << DEPTH) - 1) << field * DEPTH)
                put_frame(one, of_field, (field ? shifts1 : shifts0) + 2 * sample, target);
#else
        put_frame(one, lanes, nullptr, target);
#endif
    };
    u32 rest = __ballot_sync(ALL_LANES, wanted[lane].nbytes != 0), turn = 0;
    if (part == 0) put_frames(nullptr, __ballot_sync(ALL_LANES, lane / DEPTH < n_fields) & ~rest);
    while (rest) {
        const Wanted& one = wanted[__ffs(rest) - 1];
        u32 left = __ballot_sync(ALL_LANES, block == one.block) & rest, code = OK;  // of this block
        rest &= ~left;
        if (turn++ % PARTS != part) continue;
        const auto put_from = [&](u32 k, const u8* from) {
            const u32 now = __ballot_sync(ALL_LANES, place == k) & left;
            put_frames(from, now);
            left &= ~now;
        };
        const auto put = [&](u32 k) {
            const u32 now = __ballot_sync(ALL_LANES, place == k) & left;
            if (now == 0) return;
            put_frames(frame, now);
            left &= ~now;
            __syncthreads();
        };
        const u8* stream = one.stream;
        u64 nbytes = one.nbytes;
        if (CODEC == DELTA_RLE) {
            bool is_done = false;
            u32 n_before = 1;
            if (LZ4_NBYTES) code = read_lz4_block(tables, room, stream, nbytes), n_before = 0;
            if constexpr (JUMPS) {
                const u32 places_of_block = or_of_warp(left >> lane & 1 ? 1u << place : 0);
                if (code == OK) is_done = jump(stream, nbytes, n_before, tables, places_of_block, frame, put_from);
                if (!is_done) __syncthreads();
            }
            if (!is_done && n_before) {
                if (*stream == 0) stream++, nbytes--;
                else code = OTHER_VERSION;
            }
            u32 n_frames = left >> lane & 1 ? place + 1 : 0;
#pragma unroll
            for (u32 step = 16; step; step /= 2) n_frames = max(n_frames, __shfl_xor_sync(ALL_LANES, n_frames, step));
            if (code == OK && !is_done)
                code = read_frames(stream, nbytes, tables->references, tables->n_references, n_frames, false, frame, put);
        } else {
            if constexpr (JUMPS && CODEC == RAW) {
                const u32 places_of_block = or_of_warp(left >> lane & 1 ? 1u << place : 0), n_frames = 32 - __clz(places_of_block);
                if (nbytes > static_cast<u64>(n_frames) * FRAME_NBYTES && *stream == 0)
                    jump_to_plain(stream + 1, places_of_block, frame, put_from);
            }
            while (left && code == OK) {
                const u32 next = wanted[__ffs(left) - 1].place;
                code = read_plain(one, next, frame);
                __syncthreads();
                if (code == OK) put(next);
            }
        }
        if (code != OK) {
            put_frames(nullptr, left);
            if (threadIdx.x == 0) report(tables->failure, one.block, code);
            __syncthreads();
        }
    }
}
