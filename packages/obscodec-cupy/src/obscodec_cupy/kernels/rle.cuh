// Streams of rle to items, one at a time by all threads of a block. Defines: ELEMENT_NBYTES, 1, 2, 4 or 8.
//
// A tile is some bytes of the run lengths, a few for each thread. A sum over the bytes that end a varint numbers the
// runs, one over their lengths gives where they begin in the item. Then each thread looks up the runs that 16 bytes of
// the item lie in, so that all threads have the same to do, whether runs are long or short.
#pragma once
#include "block_scan.cuh"
#include "copy.cuh"
#include "errors.cuh"
#include "types.cuh"
#include "words.cuh"

namespace rle {

typedef u32 Status;

constexpr u32 N_THREADS = 256;  // of a block
constexpr u32 THREAD_NBYTES = 4;
constexpr u32 TILE_NBYTES = N_THREADS * THREAD_NBYTES;
constexpr u32 MAX_VARINT_NBYTES = 9;
constexpr u32 CHUNK = 16 / ELEMENT_NBYTES;  // elements

template <u32 NBYTES> struct Unsigned;
template <> struct Unsigned<1> { typedef u8 Type; };
template <> struct Unsigned<2> { typedef u16 Type; };
template <> struct Unsigned<4> { typedef u32 Type; };
template <> struct Unsigned<8> { typedef u64 Type; };
typedef Unsigned<ELEMENT_NBYTES>::Type Element;

// A stream behind its number of runs, and how many elements these fill.
struct Runs {
    const u8* lengths;
    u64 lengths_nbytes;
    const u8* values;
    u32 n;
    u32 size;
};

// What is done: runs, and the elements that they fill.
struct Done {
    u64 n_runs;
    u64 size;
};

// What the threads of a block share of a tile.
struct Tile {
    u32 starts[TILE_NBYTES];  // the first element of each run
    Element values[TILE_NBYTES];
    u64 failure;  // ~(run << 8 | status) of the first run that is bad, 0 for none
    u64 end;      // the element behind the last run of the item
};

// The number of runs at the begin of a stream, and where their lengths begin.
__device__ __forceinline__ Status read_count(const u8* stream, u64 nbytes, u64& count, u64& at) {
    count = 0;
    for (at = 0; at < MAX_VARINT_NBYTES;) {
        if (at >= nbytes) return SHORT;
        const u64 byte = stream[at];
        count |= (byte & 0x7f) << 7 * at++;
        if (byte < 0x80) return byte == 0 && at > 1 ? LONG_VARINT : OK;
    }
    return LONG_VARINT;
}

__device__ __forceinline__ bool ends_varint(const Runs& runs, u64 at) { return runs.lengths[at] < 0x80; }

// The varint whose last byte is at `at`.
__device__ __forceinline__ Status read_varint_backwards(const Runs& runs, u64 at, u64& value) {
    value = runs.lengths[at];
    if (at == 0 || ends_varint(runs, at - 1)) return OK;
    const Status status = value == 0 ? LONG_VARINT : OK;
    for (u32 nbytes = 1; nbytes <= at && !ends_varint(runs, at - nbytes); ++nbytes) {
        if (nbytes == MAX_VARINT_NBYTES) return LONG_VARINT;
        value = value << 7 | (runs.lengths[at - nbytes] & 0x7f);
    }
    return status;
}

__device__ __forceinline__ Element load_element(const u8* at) {
    u64 value = 0;
    for (u32 k = 0; k < ELEMENT_NBYTES; ++k) value |= static_cast<u64>(at[k]) << 8 * k;
    return static_cast<Element>(value);
}

// Put one run into the tile, or the failure that it is.
__device__ __forceinline__ void place_run(const Runs& runs, u64 run, u32 place, u64 start, u64 length, Status status,
                                          Tile& tile) {
    if (run >= runs.n) return;  // no run: what is between the lengths and the values
    if (status == OK && (length < 1 || start > runs.size || length > runs.size - start)) status = WRONG_LENGTH;
    if (status != OK) {
        atomicMax(&tile.failure, ~(run << 8 | status));
        return;
    }
    tile.starts[place] = start;
    tile.values[place] = load_element(runs.values + run * ELEMENT_NBYTES);
    if (run + 1 == runs.n) tile.end = start + length;
}

// Find the runs whose lengths end in the tile that begins at byte `first`. Returns what is done with these; behind this
// any thread may read the tile.
__device__ __forceinline__ Done place_runs(const Runs& runs, u64 first, Done done, Tile& tile) {
    u64 lengths[THREAD_NBYTES], filled[THREAD_NBYTES], sums = 0;  // runs in the highest 16 bits, elements below
    Status statuses[THREAD_NBYTES];
    bool ends[THREAD_NBYTES];
    for (u32 k = 0; k < THREAD_NBYTES; ++k) {
        const u64 at = first + THREAD_NBYTES * threadIdx.x + k;
        ends[k] = at < runs.lengths_nbytes && ends_varint(runs, at);
        if (!ends[k]) continue;
        statuses[k] = read_varint_backwards(runs, at, lengths[k]);
        filled[k] = lengths[k] > runs.size ? static_cast<u64>(runs.size) + 1 : lengths[k];  // too many, and no overflow
        sums += (1ull << 48) + filled[k];
    }
    constexpr u64 ELEMENTS = (1ull << 48) - 1;
    const Scanned<u64> scanned = scan_block<Sum>(sums);
    u32 place = scanned.before >> 48;
    u64 start = done.size + (scanned.before & ELEMENTS);
    for (u32 k = 0; k < THREAD_NBYTES; ++k) {
        if (!ends[k]) continue;
        place_run(runs, done.n_runs + place, place, start, lengths[k], statuses[k], tile);
        ++place;
        start += filled[k];
    }
    __syncthreads();
    done.n_runs += scanned.total >> 48;
    done.size = done.n_runs >= runs.n ? tile.end : done.size + (scanned.total & ELEMENTS);
    return done;
}

// The last of n > 0 runs that begins at an element or before it; the first one does.
__device__ __forceinline__ u32 run_at(const u32* starts, u32 n, u32 element) {
    u32 low = 0, high = n;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (starts[middle] <= element) low = middle;
        else high = middle;
    }
    return low;
}

// Fill the elements from `begin` to `end` with the n runs of a tile.
__device__ __forceinline__ void fill(u8* item, u32 begin, u32 end, const Tile& tile, u32 n) {
    for (u32 first = (begin / CHUNK + threadIdx.x) * CHUNK; first < end; first += blockDim.x * CHUNK) {
        const u32 from = Max::of(first, begin), to = first + CHUNK < end ? first + CHUNK : end;
        u32 run = run_at(tile.starts, n, from);
        u32 next = run + 1 < n ? tile.starts[run + 1] : end;
        u64 words[2] = {0, 0};
        for (u32 k = 0; k < CHUNK; ++k) {
            if (first + k < from || first + k >= to) continue;
            if (first + k >= next) {
                ++run;
                next = run + 1 < n ? tile.starts[run + 1] : end;
            }
            words[k * ELEMENT_NBYTES / 8] |= static_cast<u64>(tile.values[run]) << 8 * (k * ELEMENT_NBYTES % 8);
        }
        u8* out = item + static_cast<u64>(first) * ELEMENT_NBYTES;
        if (to - from == CHUNK)
            store_16(out, words[0], words[1]);
        else
            for (u32 i = (from - first) * ELEMENT_NBYTES; i < (to - first) * ELEMENT_NBYTES; ++i)
                out[i] = (i < 8 ? words[0] : words[1]) >> 8 * (i % 8);
    }
}

// What is wrong with a stream of which all run lengths up to byte `read` were good, if anything.
__device__ __forceinline__ Status verdict(const Runs& runs, Done done, u64 read) {
    const u64 nbytes = runs.lengths_nbytes;
    if (done.n_runs < runs.n) {
        u64 behind = 0;  // bytes of a varint without an end
        while (behind < MAX_VARINT_NBYTES && behind < nbytes && !ends_varint(runs, nbytes - 1 - behind)) ++behind;
        return behind < MAX_VARINT_NBYTES ? SHORT : LONG_VARINT;
    }
    if (done.size != runs.size) return WRONG_SUM;
    const bool complete = done.n_runs == runs.n && read >= nbytes && (nbytes == 0 || ends_varint(runs, nbytes - 1));
    return complete ? OK : WRONG_SECTION;
}

// Fill an item from a stream without runs, which holds it as it is.
__device__ __forceinline__ Status copy_item(const u8* stream, u64 nbytes, u8* item, u64 item_nbytes) {
    if (nbytes != item_nbytes) return WRONG_SIZE;
    copy_bytes(item, stream, nbytes);
    return OK;
}

// Decode one item, by all threads of the block; thread 0 gets the status that counts.
__device__ __forceinline__ Status decode_item(const u8* stream, u64 nbytes, u8* item, u32 size, Tile& tile) {
    u64 count, at;
    const Status status = read_count(stream, nbytes, count, at);
    if (status != OK) return status;
    if (count == 0) return copy_item(stream + at, nbytes - at, item, static_cast<u64>(size) * ELEMENT_NBYTES);
    if (count > size || count * ELEMENT_NBYTES > nbytes - at) return WRONG_COUNT;
    const u64 lengths_nbytes = nbytes - at - count * ELEMENT_NBYTES;
    const Runs runs = {stream + at, lengths_nbytes, stream + at + lengths_nbytes, static_cast<u32>(count), size};
    if (threadIdx.x == 0) tile.failure = 0;  // threads meet before it is changed
    Done done = {0, 0};
    u64 read = 0;
    for (; read < lengths_nbytes && done.n_runs < runs.n; read += TILE_NBYTES) {
        const Done before = done;
        done = place_runs(runs, read, done, tile);
        if (tile.failure) return ~tile.failure & 0xff;
        const u64 n = (done.n_runs < runs.n ? done.n_runs : runs.n) - before.n_runs;
        fill(item, before.size, done.size, tile, n);
    }
    return verdict(runs, done, read);
}

}  // namespace rle
