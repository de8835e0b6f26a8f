// Decodes streams of delta-rle, one thread block for each: docs/formats/delta-rle.md.
//
// Defines: THREADS of a block; N_FRAMES of an item, each of FRAME_NBYTES; FRAME_IN_SHARED, 1 if a frame is kept in shared
// memory: so many bytes of it are given to the launch, rounded up to 16; UNIT_NBYTES, 1 to 16, that divide FRAME_NBYTES and
// the address of `out`, what is written at a time.
#include "errors.cuh"
#include "failure.cuh"
#include "frame.cuh"
#include "patch.cuh"
#include "types.cuh"
#include "units.cuh"

// buffer: u8[buffer_nbytes]. offsets, lengths: i64[n], where the streams are in it.
// references: u8[n_references][FRAME_NBYTES], the first one zeros; aligned to 16.
// out: u8[n][N_FRAMES][FRAME_NBYTES]. failure: see failure.cuh; its numbers are those of items, from 1
// on: as on the CPU, a stream outside of the buffer is noticed before any is decoded, so that has number 0.
// scratch: u8[thread blocks][FRAME_NBYTES rounded up to 16] if frames are not in shared memory, aligned to 16.
extern "C" __global__ void __launch_bounds__(THREADS, 2) delta_decode(
    const u8* buffer, u64 buffer_nbytes, const i64* offsets, const i64* lengths, const u8* references, u32 n_references, u8* out,
    i64 n, u64* failure, u8* scratch) {
    u8* frame = frame_of_block(scratch);
    const i32 n_frames = N_FRAMES;
    for (i64 item = blockIdx.x; item < n; item += gridDim.x) {
        const u64 offset = static_cast<u64>(offsets[item]), nbytes = static_cast<u64>(lengths[item]);
        Walk walk = {};
        u32 code = OUTSIDE_BUFFER;
        if (nbytes <= buffer_nbytes && offset <= buffer_nbytes - nbytes)
            code = begin_walk(walk, buffer + offset, nbytes, false, {references, n_references}, n_frames, frame);
        u8* target = out + static_cast<u64>(item) * N_FRAMES * FRAME_NBYTES;
        for (i32 k = 0; code == OK && k < n_frames; k++, target += FRAME_NBYTES) {
            code = next_frame(walk, frame);
            if (code != OK) break;
            put_units(target, frame, FRAME_NBYTES);
            __syncthreads();
        }
        if (code == OK && !is_at_end(walk)) code = LEFT_OVER;
        if (code != OK && threadIdx.x == 0) report(failure, code == OUTSIDE_BUFFER ? 0 : item + 1, code);
    }
}
