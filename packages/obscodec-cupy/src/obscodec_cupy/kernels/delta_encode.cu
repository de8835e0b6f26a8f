// Blocks of frames to streams of delta-rle, see docs/formats/delta-rle.md: measure the patch of each frame, place them, write
// them.
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

// Bit i: byte at + i is different, for up to 16 bytes.
__device__ __forceinline__ u32 differences_of_16(const u8* old, const u8* frame, u32 at, u32 nbytes) {
    u32 bits = 0;
    if (at + 16 > nbytes) {
        for (u32 i = 0; at + i < nbytes; ++i) bits |= static_cast<u32>(old[at + i] != frame[at + i]) << i;
        return bits;
    }
    const uint4 x = load_16(old + at), y = load_16(frame + at);
    return different_bytes(x.x, y.x) | different_bytes(x.y, y.y) << 4 | different_bytes(x.z, y.z) << 8 |
           different_bytes(x.w, y.w) << 12;
}

// The runs of a patch. They go on over three equal bytes or fewer: that is the closing of the differences by four positions.
__device__ __forceinline__ Marks replaced(const u8* old, const u8* frame, u32 word, u32 nbytes) {
    const u32 at = 32 * word;
    u64 bits = at > 0 ? different_bytes(load_4(old + at - 4), load_4(frame + at - 4)) : 0;
    for (u32 i = 0; i < 48; i += 16) bits |= static_cast<u64>(differences_of_16(old, frame, at + i, nbytes)) << (4 + i);
    bits |= bits << 1;
    bits |= bits << 2;
    bits &= bits >> 1;
    bits &= bits >> 2;
    return {static_cast<u32>((bits ^ bits << 1) >> 4), static_cast<u32>(bits >> 4)};
}

// The reference with the fewest words of 8 bytes that differ from the frame, the first of those; what follows the last whole
// word does not count. All threads get it. references: u8[n_references, nbytes], at least one.
__device__ __forceinline__ u32 nearest_reference(const u8* frame, const u8* references, u32 n_references, u32 nbytes) {
    u64 nearest = 0;  // ~(words that differ << 32 | reference)
    for (u32 k = threadIdx.x / 32; k < n_references; k += blockDim.x / 32) {
        const u8* reference = references + static_cast<u64>(k) * nbytes;
        u64 n_different = 0;
#pragma unroll 4
        for (u32 at = 16 * (threadIdx.x % 32); at < nbytes; at += 16 * 32) {
            const u32 bits = differences_of_16(reference, frame, at, nbytes / 8 * 8);
            n_different += ((bits & 0xff) != 0) + (bits > 0xff);
        }
        for (u32 step = 16; step > 0; step /= 2) n_different += __shfl_xor_sync(ALL_LANES, n_different, step);
        nearest = Max::of(nearest, ~(n_different << 32 | k));
    }
    return static_cast<u32>(~scan_block<Max>(nearest).total);
}

// One thread block for each frame; it also finds the reference of the first frames.
extern "C" __global__ void __launch_bounds__(256, 4) delta_measure(
    const u8* frames, u32 nbytes, u32 n_frames, const u8* references, u32 n_references, Patch* patches, Block* blocks) {
    const u64 number = blockIdx.x;
    const u8* frame = frames + number * nbytes;
    const u8* old = frame - nbytes;
    if (number % n_frames == 0) {
        const u32 reference = nearest_reference(frame, references, n_references, nbytes);
        old = references + static_cast<u64>(reference) * nbytes;
        if (threadIdx.x == 0) blocks[number / n_frames].reference = reference;
    }
    const RunSizes sizes = measure_runs<0>(nbytes, [=](u32 word) { return replaced(old, frame, word, nbytes); });
    const u32 n_runs = sizes.n_edges / 2;
    if (threadIdx.x == 0) patches[number] = {n_runs, varint_nbytes(n_runs) + sizes.distances_nbytes, sizes.n_picks};
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
    const u8* frames, u32 nbytes, u32 n_frames, const u8* references, const Patch* patches, const Block* blocks,
    const i64* offsets, u8* out) {
    const u64 number = blockIdx.x, item = n_frames ? number / n_frames : number;
    const bool is_first = n_frames == 0 || number % n_frames == 0;
    const Block block = blocks[item];
    u8* runs = out + offsets[item];
    if (is_first && threadIdx.x == 0) write_varint(write_varint(runs, block.reference), block.runs_nbytes);
    if (n_frames == 0) return;
    runs += head_nbytes(block);
    const Patch patch = patches[number];
    u8* literals = runs + block.runs_nbytes + patch.literals;
    const u8* frame = frames + number * nbytes;
    const u8* old = is_first ? references + static_cast<u64>(block.reference) * nbytes : frame - nbytes;
    write_runs<0>(nbytes, [=](u32 word) { return replaced(old, frame, word, nbytes); }, patch.n_runs, runs + patch.runs,
                  [=](u32 position, u32 index) { literals[index] = frame[position]; });
}
