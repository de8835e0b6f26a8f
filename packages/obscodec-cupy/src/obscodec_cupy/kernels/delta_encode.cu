// Blocks of frames to streams of delta-rle: measure the patch of each frame, place them, write them.
#include "encode.cuh"

// One for each frame; delta_place turns the sizes into where its parts begin in those of its block.
struct Patch {
    u32 n_runs;
    u32 runs;
    u32 literals;
};

// One for each block of frames.
struct Block {
    u32 reference;
    u32 runs_nbytes;
};

__device__ __forceinline__ u32 head_nbytes(Block block) {
    return varint_nbytes(block.reference) + varint_nbytes(block.runs_nbytes);
}

// One thread block for each frame; it also finds the reference of the first frames.
extern "C" __global__ void __launch_bounds__(256, 4) delta_measure(
    const u8* frames, u32 nbytes, u32 n_frames, const u8* references, u32 n_references, u32* differences,
    Patch* patches, Block* blocks) {
    const u64 number = blockIdx.x;
    const u8* frame = frames + number * nbytes;
    const u8* old = frame - nbytes;
    if (number % n_frames == 0) {
        const u32 reference = nearest_reference(frame, references, n_references, nbytes);
        old = references + static_cast<u64>(reference) * nbytes;
        if (threadIdx.x == 0) blocks[number / n_frames].reference = reference;
    }
    u32* own = differences + number * difference_words(nbytes);
    find_differences(old, frame, nbytes, own);
    const PatchSize size = measure_patch(own, nbytes);
    if (threadIdx.x == 0) patches[number] = {size.n_runs, size.runs_nbytes, size.n_literals};
}

// One thread block for each block of frames.
extern "C" __global__ void __launch_bounds__(256, 4) delta_place(
    u32 n_frames, Patch* patches, Block* blocks, i64* lengths) {
    Patch* own = patches + static_cast<u64>(blockIdx.x) * n_frames;
    u64 done = 0;  // bytes of the runs in the high half, literals in the low one
    for (u32 first = 0; first < n_frames; first += blockDim.x) {
        const u32 k = first + threadIdx.x;
        const u64 size = k < n_frames ? static_cast<u64>(own[k].runs) << 32 | own[k].literals : 0;
        const Scanned<u64> place = scan_block<Sum>(size);
        if (k < n_frames) {
            own[k].runs = static_cast<u32>((done + place.before) >> 32);
            own[k].literals = static_cast<u32>(done + place.before);
        }
        done += place.total;
    }
    if (threadIdx.x > 0) return;
    Block& block = blocks[blockIdx.x];
    if (n_frames == 0) block.reference = 0;
    block.runs_nbytes = static_cast<u32>(done >> 32);
    lengths[blockIdx.x] = head_nbytes(block) + (done >> 32) + static_cast<u32>(done);
}

// One thread block for each frame, and one for each block without frames.
extern "C" __global__ void __launch_bounds__(256, 4) delta_write(
    const u8* frames, u32 nbytes, u32 n_frames, const u32* differences, const Patch* patches,
    const Block* blocks, const i64* offsets, u8* out) {
    const u64 number = blockIdx.x;
    const u64 item = n_frames ? number / n_frames : number;
    const Block block = blocks[item];
    u8* runs = out + offsets[item];
    if (n_frames == 0 || number % n_frames == 0)
        if (threadIdx.x == 0) write_varint(write_varint(runs, block.reference), block.runs_nbytes);
    if (n_frames == 0) return;
    runs += head_nbytes(block);
    const Patch patch = patches[number];
    write_patch(differences + number * difference_words(nbytes), frames + number * nbytes, nbytes, patch.n_runs,
                runs + patch.runs, runs + block.runs_nbytes + patch.literals);
}
