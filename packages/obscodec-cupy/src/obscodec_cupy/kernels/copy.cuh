// The threads of a block copy bytes of any alignment from one place to another.
#pragma once
#include "types.cuh"

template <typename Word>
__device__ __forceinline__ void copy_words(u8* to, const u8* from, u64 nbytes) {
    const u64 n_words = nbytes / sizeof(Word);
    Word* to_words = reinterpret_cast<Word*>(to);
    const Word* from_words = reinterpret_cast<const Word*>(from);
    for (u64 i = threadIdx.x; i < n_words; i += blockDim.x) to_words[i] = from_words[i];
}

// Words of 16 or 4 bytes between the first and the last address that are aligned for both, single bytes elsewhere.
template <typename Word>
__device__ __forceinline__ void copy_between_words(u8* to, const u8* from, u64 nbytes) {
    const u64 misaligned = (sizeof(Word) - reinterpret_cast<u64>(to) % sizeof(Word)) % sizeof(Word);
    const u64 head = misaligned < nbytes ? misaligned : nbytes;
    const u64 body = (nbytes - head) / sizeof(Word) * sizeof(Word);
    copy_words<u8>(to, from, head);
    copy_words<Word>(to + head, from + head, body);
    copy_words<u8>(to + head + body, from + head + body, nbytes - head - body);
}

__device__ __forceinline__ void copy_bytes(u8* to, const u8* from, u64 nbytes) {
    const u64 apart = reinterpret_cast<u64>(to) ^ reinterpret_cast<u64>(from);
    if (apart % 16 == 0)
        copy_between_words<uint4>(to, from, nbytes);
    else if (apart % 4 == 0)
        copy_between_words<u32>(to, from, nbytes);
    else
        copy_words<u8>(to, from, nbytes);
}
