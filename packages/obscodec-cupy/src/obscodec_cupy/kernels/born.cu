// Frames in the memory of the device on their way into a store: which are equal, and the patches of those that are new.
#include "encode.cuh"

// A word of a frame as a number that depends on its place: the mixing steps of splitmix64.
__device__ __forceinline__ u64 mixed(u64 word, u32 number) {
    u64 x = word + (number + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// The 16 bytes from `at`, zeros behind the end of the frame.
__device__ __forceinline__ uint4 load_up_to_16(const u8* frame, u32 at, u32 nbytes) {
    if (at + 16 <= nbytes) return load_16(frame + at);
    u32 words[4] = {0, 0, 0, 0};
#pragma unroll
    for (u32 i = 0; i < 16; ++i)
        if (at + i < nbytes) words[i / 4] |= static_cast<u32>(frame[at + i]) << 8 * (i % 4);
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// The mark of each frame, one thread block each: 0 for zeros, else a number that tells frames apart and is not 0.
extern "C" __global__ void __launch_bounds__(256) born_mark(const u8* frames, u32 nbytes, u64* marks) {
    const u8* frame = frames + static_cast<u64>(blockIdx.x) * nbytes;
    u64 sum = 0;
    u32 any = 0;
    for (u32 at = 16 * threadIdx.x; at < nbytes; at += 16 * blockDim.x) {
        const uint4 x = load_up_to_16(frame, at, nbytes);
        any |= x.x | x.y | x.z | x.w;
        sum += mixed(x.x | static_cast<u64>(x.y) << 32, at / 8) + mixed(x.z | static_cast<u64>(x.w) << 32, at / 8 + 1);
    }
    const u64 total = scan_block<Sum>(sum).total;
    const bool is_zeros = !__syncthreads_or(any != 0);
    if (threadIdx.x == 0) marks[blockIdx.x] = is_zeros ? 0 : total | 1;
}

struct Pair {
    const u8* frame;
    const u8* other;
};

// Set `different` if the frames of a pair are, one thread block for each pair.
extern "C" __global__ void __launch_bounds__(256) born_compare(const Pair* pairs, u32 nbytes, u32* different) {
    const Pair pair = pairs[blockIdx.x];
    u32 bits = 0;
    for (u32 at = 16 * threadIdx.x; at < nbytes; at += 16 * blockDim.x)
        bits |= differences_of_16(pair.frame, pair.other, at, nbytes);
    if (__syncthreads_or(bits != 0) && threadIdx.x == 0) atomicOr(different, 1u);
}

struct Measured {
    u32 n_runs;
    u32 runs_nbytes;
    u32 n_literals;
    u32 reference;
};

// The size of the patch that turns `other` into `frame`, one thread block for each pair. Without another one it is the
// nearest reference.
extern "C" __global__ void __launch_bounds__(256) born_measure(const Pair* pairs, u32 nbytes, const u8* references,
                                                               u32 n_references, u32* differences, Measured* measured) {
    const Pair pair = pairs[blockIdx.x];
    const u8* other = pair.other;
    u32 reference = 0;
    if (other == nullptr) {
        reference = nearest_reference(pair.frame, references, n_references, nbytes);
        other = references + static_cast<u64>(reference) * nbytes;
    }
    u32* own = differences + static_cast<u64>(blockIdx.x) * difference_words(nbytes);
    find_differences(other, pair.frame, nbytes, own);
    const PatchSize size = measure_patch(own, nbytes);
    if (threadIdx.x == 0) measured[blockIdx.x] = {size.n_runs, size.runs_nbytes, size.n_literals, reference};
}

// Write the patches that were measured, each from its start on, runs before literals; those with a negative start not.
extern "C" __global__ void __launch_bounds__(256) born_write(const Pair* pairs, u32 nbytes, const u32* differences,
                                                             const Measured* measured, const i64* starts, u8* out) {
    const i64 start = starts[blockIdx.x];
    if (start < 0) return;
    const Measured size = measured[blockIdx.x];
    const u32* own = differences + static_cast<u64>(blockIdx.x) * difference_words(nbytes);
    write_patch(own, pairs[blockIdx.x].frame, nbytes, size.n_runs, out + start, out + start + size.runs_nbytes);
}
