// The tensors of a batch, for one or two fields of it, in one launch: one thread block for each sample. It finds out which
// frames the sample is made of, walks each block that holds some of them once, with the frame in shared memory, and writes
// each frame to all of its places while it is at hand.
//
// Defines: THREADS of a block; FRAME_NBYTES, BLOCK_FRAMES and DEPTH of the store; PLAIN_BLOCKS, 1 if blocks hold their frames
// as they are, and ELEMENT_NBYTES if these may be compressed by rle; FRAME_IN_SHARED, 1 if the launch gives FRAME_NBYTES
// rounded up to 16 of shared memory, else 0; and those of output.cuh: ITEM_NBYTES, OUT, UNIT_NBYTES, CHANNELS, HEIGHT, WIDTH,
// PIXEL_ITEMS.
#include "blocks.cuh"
#include "errors.cuh"
#include "failure.cuh"
#include "frame.cuh"
#include "output.cuh"
#include "stack_ids.cuh"
#include "tables.cuh"
#include "types.cuh"

// header: see tables.cuh.
// places: i64[n], the indices of `ids` that are the samples; null for 0 to n - 1.
// n_fields: 1, or 2 for two fields of the same store; the second four are not read if it is 1.
// ids: i32[n_ids], of stacks, or of frames if DEPTH is 1. out: [n][DEPTH][frame], or as CHANNELS says; aligned to UNIT_NBYTES.
// shifts: i32[n][2], rows and columns; null if there is no HEIGHT.
// scale: what bytes are multiplied with if OUT is not 0.
// scratch: u8[thread blocks][FRAME_NBYTES rounded up to 16], aligned to 16, if FRAME_IN_SHARED is 0.
//
// A sample whose id is out of range, or a frame that can't be read, is zeros where it is wrong, and is reported:
// the number of the block, or of the sample for an id.
extern "C" __global__ void __launch_bounds__(THREADS, 2) gather(
    const u64* header, const i64* places, i64 n, u32 n_fields, const i32* ids0, i64 n_ids0, u8* out0, const i32* shifts0,
    const i32* ids1, i64 n_ids1, u8* out1, const i32* shifts1, float scale, u8* scratch) {
    u8* frame = frame_of_block(scratch);
    prepare_conversion(scale);
    // Every warp finds out the same: lane DEPTH * field + k is for the frame at place k of a stack.
    const u32 lane = threadIdx.x % 32, field = lane / DEPTH;
    for (i64 sample = blockIdx.x; sample < n; sample += gridDim.x) {
        const i64 place = places ? places[sample] : sample;
        const bool wanted = field < n_fields, known = place >= 0 && place < (field ? n_ids1 : n_ids0);
        const i64 id = wanted && known ? (field ? ids1 : ids0)[place] : 0;
        const u32 found = frame_of_stack(header, id, lane % DEPTH);
        const bool is_frame = wanted && known && found != NO_FRAME && found / BLOCK_FRAMES < header[N_BLOCKS];
        if (__any_sync(ALL_LANES, wanted && !is_frame) && threadIdx.x == 0)
            report(table<u64>(header, FAILURE), static_cast<u64>(sample), BAD_ID);

        const u32 number = is_frame ? found / BLOCK_FRAMES : 0;
        Block block = {nullptr, 0};
        if (is_frame) block = block_of(header, number);
        const u64 row = static_cast<u64>(sample) * DEPTH * FRAME_OUT_NBYTES;
        const Stacks stacks = {{out0 + row, out1 + row}, {shift_of(shifts0, sample), shift_of(shifts1, sample)}, scale};
        const u32 stored = __ballot_sync(ALL_LANES, block.nbytes != 0);
        put_everywhere(stacks, nullptr, __ballot_sync(ALL_LANES, wanted) & ~stored);
        for (u32 rest = stored; rest;) {
            const u32 first = __ffs(rest) - 1, next = __shfl_sync(ALL_LANES, number, first);
            const Wanted frames = {__ballot_sync(ALL_LANES, number == next) & stored, found % BLOCK_FRAMES};
            const Block one = {reinterpret_cast<const u8*>(__shfl_sync(ALL_LANES, reinterpret_cast<u64>(block.stream), first)),
                               __shfl_sync(ALL_LANES, block.nbytes, first)};
            rest &= ~frames.lanes;
            if (rest >> lane & 1) expect(block);
            const u32 code = read_block(header, one, frames, frame, stacks);
            if (code != OK && threadIdx.x == 0) report(table<u64>(header, FAILURE), next, code);
        }
    }
}
