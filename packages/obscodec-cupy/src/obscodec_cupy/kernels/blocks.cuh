// Reading frames out of a stored block, see docs/formats/frame-block.md, and writing each to all of its places in a batch.
//
// Every warp holds the same: lane DEPTH * field + k stands for the frame at place k of the sample's stack for a field.
// Defines: THREADS, of a block; FRAME_NBYTES; PLAIN_BLOCKS; ELEMENT_NBYTES, if plain blocks of one frame are compressed by
// rle, of so many bytes at a time; and those of output.cuh and frame.cuh.
#pragma once
#include "errors.cuh"
#include "frame.cuh"
#include "lanes.cuh"
#include "output.cuh"
#include "patch.cuh"
#include "rle.cuh"
#include "tables.cuh"
#include "types.cuh"

// Where the stacks of a sample are written, for each field, and how.
struct Stacks {
    u8* out[2];
    Shift shift[2];
    float scale;
};

// The lanes that want a frame of a block, and which one each lane wants; of other lanes that is nothing.
struct Wanted {
    u32 lanes;
    u32 place;
};

struct Block {
    const u8* stream;
    u64 nbytes;  // 0 if its frames are zeros
};

__device__ __forceinline__ Block block_of(const u64* header, u32 number) {
    const u64* row = table<const u64>(header, BLOCKS) + 2 * static_cast<u64>(number);
    const u64 address = row[0], nbytes = row[1];
    return {reinterpret_cast<const u8*>(address), address ? nbytes : 0};
}

// Have the cache ask for the beginning of a block that is read later; all warps do that together.
__device__ __forceinline__ void expect(const Block& block) {
#ifdef __CUDA_ARCH__
    const u64 nbytes = min(block.nbytes, 4096ull);
    for (u64 at = threadIdx.x / 32 * 128; at < nbytes; at += THREADS / 32 * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(block.stream + at));
#endif
}

__device__ __forceinline__ void put_everywhere(const Stacks& stacks, const u8* frame, u32 lanes) {
#pragma unroll
    for (u32 field = 0; field < 2; field++) {
        const u32 places = lanes >> field * DEPTH & ((1u << DEPTH) - 1);
        if (places) put_frame(stacks.out[field], frame, places, stacks.shift[field], stacks.scale);
    }
}

// The lanes that want the frame `place` of the block.
__device__ __forceinline__ u32 lanes_for(const Wanted& wanted, u32 place) {
    return __ballot_sync(ALL_LANES, wanted.place == place) & wanted.lanes;
}

#if PLAIN_BLOCKS

// Copy a frame from any address. Nothing outside of it is read.
__device__ __forceinline__ void copy_frame(u8* frame, const u8* source) {
    const u32 n_words = FRAME_NBYTES / 4, misaligned = static_cast<u32>(reinterpret_cast<u64>(source) % 4);
    const u32* aligned = reinterpret_cast<const u32*>(source - misaligned);
    u32* words = reinterpret_cast<u32*>(frame);
    for (u32 i = threadIdx.x; i < n_words; i += THREADS)
        if (misaligned == 0)
            words[i] = aligned[i];
        else if (0 < i && i + 1 < n_words)
            words[i] = __funnelshift_r(aligned[i], aligned[i + 1], 8 * misaligned);
        else
            for (u32 k = 4 * i; k < 4 * i + 4; k++) frame[k] = source[k];
    for (u32 k = 4 * n_words + threadIdx.x; k < FRAME_NBYTES; k += THREADS) frame[k] = source[k];
}

#ifdef ELEMENT_NBYTES

// Decode the frame of a block that is compressed. Returns what is wrong, the same to all threads.
__device__ __forceinline__ u32 decode_frame(u8* frame, const u8* stream, u64 nbytes) {
    static_assert(BLOCK_FRAMES == 1, "a stream of rle has one frame");
    return rle::decode_item<ELEMENT_NBYTES>(stream, nbytes, frame, FRAME_NBYTES / ELEMENT_NBYTES);
}

#endif

// Get a frame of a block of frames as they are, or compressed ones. Returns what is wrong, the same to all threads.
__device__ __forceinline__ u32 read_frame(const Block& block, u32 place, u8* frame) {
    const u8 version = block.stream[0];
#ifdef ELEMENT_NBYTES
    if (version == 1) return decode_frame(frame, block.stream + 1, block.nbytes - 1);
#endif
    if (version != 0) return OTHER_VERSION;
    if ((static_cast<u64>(place) + 1) * FRAME_NBYTES > block.nbytes - 1) return FEW_FRAMES;
    copy_frame(frame, block.stream + 1 + static_cast<u64>(place) * FRAME_NBYTES);
    return OK;
}

// Write the wanted frames of a block. Returns what is wrong, the same to all threads; frames that can't be read are written
// as zeros.
__device__ __forceinline__ u32 read_block(const u64* header, const Block& block, const Wanted& wanted, u8* frame,
                                          const Stacks& stacks) {
    u32 code = OK;
    for (u32 rest = wanted.lanes; rest;) {
        const u32 place = __shfl_sync(ALL_LANES, wanted.place, __ffs(rest) - 1), lanes = lanes_for(wanted, place);
        __syncthreads();
        if (code == OK) {
            code = read_frame(block, place, frame);
            __syncthreads();
        }
        put_everywhere(stacks, code == OK ? frame : nullptr, lanes);
        rest &= ~lanes;
    }
    return code;
}

#else

__device__ __forceinline__ u32 last_place(const Wanted& wanted) {
    u32 last = wanted.lanes >> threadIdx.x % 32 & 1 ? wanted.place : 0;
#pragma unroll
    for (u32 step = 16; step; step /= 2) last = max(last, __shfl_xor_sync(ALL_LANES, last, step));
    return last;
}

// Write the wanted frames of a block of patches, which is walked once. Returns what is wrong, the same to all threads; frames
// that can't be read are written as zeros.
__device__ __forceinline__ u32 read_block(const u64* header, const Block& block, const Wanted& wanted, u8* frame,
                                          const Stacks& stacks) {
    const u32 n_frames = last_place(wanted) + 1;
    Walk walk;
    const References references = {table<const u8>(header, REFERENCES), header[N_REFERENCES]};
    u32 code = begin_walk(walk, block.stream, block.nbytes, true, references, n_frames, frame);
    u32 rest = wanted.lanes;
    for (u32 place = 0; code == OK && place < n_frames; place++) {
        code = next_frame(walk, frame);
        const u32 lanes = code == OK ? lanes_for(wanted, place) : 0;
        if (lanes) {
            put_everywhere(stacks, frame, lanes);
            __syncthreads();
            rest &= ~lanes;
        }
    }
    put_everywhere(stacks, nullptr, rest);
    return code;
}

#endif
