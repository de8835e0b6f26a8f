// Varints, all of a tile at once: a byte below 128 ends one, so a prefix sum over these bytes numbers them.
//
// Defines: THREADS, of a block.
#pragma once
#include "scan.cuh"
#include "types.cuh"
#include "window.cuh"

#define PIECE 8                          // bytes of a tile that are a thread's
#define TILE_NBYTES (PIECE * THREADS)
#define NONE 0xffffffffu

__shared__ u32 values[TILE_NBYTES];      // of the varints that end in the tile; what takes more than 32 bits is NONE
__shared__ u32 first_bad, tile_end;

struct Tile {
    u32 begin;          // in the stream; a varint begins there
    u32 nbytes;
    u32 n_values;       // the good varints of it: those before the first bad one
    bool bad;           // whether there is a bad one
    u32 first, ends;    // the varints of this thread: the number of the first one, and a bit for each byte that ends one
};

// The bytes from 8 before a place of the window to 8 behind it.
__device__ __forceinline__ void bytes_around(u32 place, u32 words[4]) {
    const u32 begin = place - 8, shift = begin % 4 * 8;
    const u32* aligned = reinterpret_cast<const u32*>(window_bytes + (begin - begin % 4));
    u32 last = aligned[0];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        const u32 next = aligned[i + 1];
        words[i] = __funnelshift_r(last, next, shift);
        last = next;
    }
}

// A bit for each of the four bytes of a word that is below 128.
__device__ __forceinline__ u32 low_bytes(u32 word) {
    const u32 high_bits = ~word & 0x80808080;
    return high_bits * 0x00204081 >> 28;
}

// A varint of which some bytes were read.
struct Partial {
    u32 value, n;
    bool bad;  // longer than it needs to be, or than 9 bytes
};

__device__ __forceinline__ void add_byte(Partial& varint, u32 byte) {
    const u32 digit = byte & 0x7f;
    if (varint.n < 4) {
        varint.value |= digit << 7 * varint.n;
    } else {  // rare
        if (varint.n > 4 ? digit != 0 : digit > 15) varint.value = NONE;
        else if (varint.n == 4 && varint.value != NONE) varint.value |= digit << 28;
        varint.bad |= varint.n >= 8 && byte >= 0x80;
    }
    varint.bad |= byte == 0 && varint.n > 0;
    varint.n++;
}

// What the 8 bytes in front of a place hold of a varint that ends behind it. They are 8 of one that is too long as well.
__device__ __forceinline__ Partial begun_before(u32 low, u32 high) {
    const u64 bytes = static_cast<u64>(high) << 32 | low;
    const u32 n = __clzll(~bytes & 0x8080808080808080) / 8;
    Partial varint = {0, 0, false};
    for (u32 i = 8 - n; i < 8; i++) add_byte(varint, bytes >> 8 * i & 0xff);
    return varint;
}

// Number the varints of `tile.begin` to `tile.begin + tile.nbytes`, which are in the window, and write their values.
// There is a barrier in it, and one behind it is needed before values are read.
__device__ __forceinline__ void read_varints(const Window& w, Tile& tile, u32& n_ends) {
    const u32 mine = threadIdx.x * PIECE, n_mine = mine < tile.nbytes ? min(tile.nbytes - mine, static_cast<u32>(PIECE)) : 0;
    u32 words[4] = {0, 0, 0, 0};
    if (n_mine) bytes_around(w.at + (tile.begin - w.begin) + mine, words);
    tile.ends = (low_bytes(words[2]) | low_bytes(words[3]) << 4) & ((1u << n_mine) - 1);
    if (threadIdx.x == 0) first_bad = NONE;
    const Sums sums = counts_before(__popc(tile.ends), 0);
    tile.first = sums.before[0];
    n_ends = sums.total[0];
    if (n_mine == 0) return;
    Partial varint = {0, 0, false};
    if (mine) varint = begun_before(words[0], words[1]);
    u32 number = tile.first;
#pragma unroll
    for (u32 i = 0; i < PIECE; i++) {
        if (i >= n_mine) break;
        const u32 byte = words[2 + i / 4] >> i % 4 * 8 & 0xff;
        add_byte(varint, byte);
        if (varint.bad) atomicMin(&first_bad, number);
        if (byte < 0x80) {
            values[number++] = varint.value;
            varint = {0, 0, false};
        }
    }
}

// The byte of the tile behind the varint `number`, by the thread that it belongs to; a barrier must follow.
__device__ __forceinline__ void find_end(const Tile& tile, u32 number) {
    const u32 n_mine = static_cast<u32>(__popc(tile.ends));
    u32 nth = number - tile.first;
    if (number < tile.first || nth >= n_mine) return;
    u32 ends = tile.ends;
    for (; nth; nth--) ends &= ends - 1;
    tile_end = threadIdx.x * PIECE + __ffs(ends);
}
