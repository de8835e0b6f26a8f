// Decodes streams of delta-rle, one thread block for each: docs/formats/delta-rle.md.
//
// Defines: THREADS of a block; N_FRAMES of an item, each of FRAME_NBYTES; FRAME_IN_SHARED, see frame.cuh.
#include "bytes.cuh"
#include "patches.cuh"

// buffer: u8[buffer_nbytes]. offsets, lengths: i64[items], where the streams are in it.
// references: u8[n_references][FRAME_NBYTES], the first one zeros; aligned to 16.
// out: u8[items][N_FRAMES][FRAME_NBYTES]. failure: see `report`; its numbers are those of items, from 1 on, and 0 for a stream
// outside of the buffer: that is noticed before any is decoded, as on the CPU.
// scratch: u8[items][FRAME_ROOM] if FRAME_IN_SHARED is 0, aligned to 16.
extern "C" __global__ void __launch_bounds__(THREADS, 8) delta_decode(
    const u8* buffer, u64 buffer_nbytes, const i64* offsets, const i64* lengths, const u8* references, u32 n_references, u8* out,
    u64* failure, u8* scratch) {
    u8* frame = frame_of_block(scratch);
    const u64 item = blockIdx.x, offset = static_cast<u64>(offsets[item]), nbytes = static_cast<u64>(lengths[item]);
    u8* target = out + item * N_FRAMES * FRAME_NBYTES;
    u32 code = OUTSIDE_BUFFER;
    if (nbytes <= buffer_nbytes && offset <= buffer_nbytes - nbytes)
        code = read_frames(buffer + offset, nbytes, references, n_references, N_FRAMES, true, frame, [&](u32) {
            copy_bytes(target, frame, FRAME_NBYTES);
            target += FRAME_NBYTES;
            __syncthreads();
        });
    if (code != OK && threadIdx.x == 0) report(failure, code == OUTSIDE_BUFFER ? 0 : item + 1, code);
}
