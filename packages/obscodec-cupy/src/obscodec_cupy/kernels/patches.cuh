// Frames from a stream of patches, see docs/formats/delta-rle.md: each is made of the one before it, in one place.
//
// The runs of several frames, a tile, are parsed together: a byte below 128 ends a varint, so a prefix sum over these bytes
// numbers the varints; one over skips and lengths places the runs and their literals. A frame that no tile has, as it is
// damaged, unusual or too large, is read run by run. That alone says what is wrong with a stream, in the order of the core.
//
// Defines: THREADS, of a block, 128 or more; FRAME_NBYTES; those of frame.cuh.
#include "basics.cuh"
#include "block_scan.cuh"
#include "bytes.cuh"
#include "frame.cuh"

constexpr u32 STAGED_NBYTES = 16384;                 // most blocks of 16 frames are smaller
constexpr u32 TILE_NBYTES = 4096, TILE_FRAMES = 32;  // at most
constexpr u32 UNUSUAL = (1u << 20) - 1;              // in place of larger values, and of varints that are damaged
constexpr u32 MOST_MOVED = FRAME_NBYTES < UNUSUAL ? FRAME_NBYTES : UNUSUAL - 1;  // by the runs of a frame of a tile

__shared__ __align__(16) u8 staged[16 + STAGED_NBYTES];  // the beginning of the stream, aligned as it is in global memory
__shared__ __align__(16) u32 values[TILE_NBYTES + 4];  // of varints; of runs, in the end, what they and those before move and use
__shared__ u32 first_run[TILE_FRAMES + 1], runs_begin[TILE_FRAMES + 1], tile_frames;  // of each frame of the tile, and the end

// A stream, and how far it is read; the same in all threads.
struct Patches {
    const u8* stream;
    u32 nbytes;
    u32 runs, runs_end;   // the runs that are left behind the tile
    u32 literals;         // the literals that are left, up to nbytes
    u32 frame, n_frames;  // the next frame of the tile, and how many it has
    u32 moved, used;      // the positions that the runs before it in the tile passed, and the literals that they used
};

// Copy a stream to shared memory, unless it is long or there. Returns where it is after a barrier. Nothing outside of it is read.
__device__ __forceinline__ const u8* staged_stream(u8* room, const u8* stream, u32 nbytes) {
    if (nbytes > STAGED_NBYTES || stream == room) return stream;
    const u32 misaligned = static_cast<u32>(reinterpret_cast<u64>(stream) % 16), head = min((16 - misaligned) % 16, nbytes);
    const u32 body = (nbytes - head) / 16 * 16, single = threadIdx.x < head ? threadIdx.x : threadIdx.x + body;
    begin_copy<uint4>(room + misaligned + head, stream + head, body);
    if (single < nbytes) room[misaligned + single] = stream[single];
    wait_for_copies();
    return room + misaligned;
}

// Write the value of each varint of the tile, above it the place of its last byte. Returns how many there are.
__device__ __forceinline__ u32 read_values(const u8* runs, u32 nbytes) {
    const u32 each = (nbytes + THREADS - 1) / THREADS, begin = min(threadIdx.x * each, nbytes), end = min(begin + each, nbytes);
    u32 ends = 0;
    for (u32 at = begin; at < end; at++) ends |= (runs[at] < 0x80 ? 1u : 0u) << (at - begin);
    const Scanned<u32> count = scan_block<Sum>(static_cast<u32>(__popc(ends)));
    for (u32 number = count.before; ends; number++, ends &= ends - 1) {
        const u32 at = begin + __ffs(ends) - 1;
        u32 value = runs[at], n = 1;
        for (; n < 4 && n <= at && runs[at - n] >= 0x80; n++) value = value << 7 | (runs[at - n] & 0x7f);
        const bool usual = n == 1 || (n < 4 && value < UNUSUAL && runs[at] != 0);
        values[number] = at << 20 | (usual ? value : UNUSUAL);
    }
    return count.total;
}

// Call visit(skip, length) for the values of each run of this thread.
template <typename Visit>
__device__ __forceinline__ void each_run(u32 n_runs, Visit visit) {
    const u32 each = (n_runs + THREADS - 1) / THREADS, end = min((threadIdx.x + 1) * each, n_runs);
    for (u32 run = threadIdx.x * each, frame = 0; run < end; run++) {
        while (first_run[frame + 1] <= run) frame++;
        visit(values[2 * run + frame + 1], values[2 * run + frame + 2]);
    }
}

// Parse the next runs, of up to `most_frames` frames. A barrier must be before and behind it.
__device__ __forceinline__ void parse_tile(Patches& patches, u32 most_frames) {
    const u32 begin = patches.runs, nbytes = min(patches.runs_end - begin, TILE_NBYTES);
    const u32 n_values = read_values(patches.stream + begin, nbytes);
    __syncthreads();
    if (threadIdx.x == 0) {  // find the frames that are whole, one after the other
        u32 frame = 0, n_runs = 0;
        first_run[0] = 0, runs_begin[0] = begin;
        for (u32 place = 0; frame < min(most_frames, TILE_FRAMES) && place < n_values; frame++) {
            const u32 count = values[place] & UNUSUAL;
            if (count > (n_values - place - 1) / 2) break;
            place += 1 + 2 * count;
            n_runs += count;
            first_run[frame + 1] = n_runs, runs_begin[frame + 1] = begin + (values[place - 1] >> 20) + 1;
        }
        tile_frames = frame;
    }
    __syncthreads();
    u64 sum = 0;  // of literals in the high half, of skips and literals in the low one
    const auto add = [&](u32 skip, u32 length) { sum += (skip & UNUSUAL) + (length & UNUSUAL) * ((1ull << 32) + 1); };
    const u32 n_runs = first_run[tile_frames];
    each_run(n_runs, add);
    sum = scan_block<Sum>(sum).before;
    each_run(n_runs, [&](u32& skip, u32& length) {
        add(skip, length);
        skip = static_cast<u32>(sum), length = static_cast<u32>(sum >> 32);
    });
    patches.runs = runs_begin[tile_frames], patches.n_frames = tile_frames, patches.frame = patches.moved = patches.used = 0;
}

// Turn the frame into the next one of the tile. Returns false, and leaves it as it is, if that has to be read run by run.
__device__ __forceinline__ bool next_of_tile(Patches& patches, u8* frame) {
    if (patches.frame == patches.n_frames) return false;
    const u32 first = first_run[patches.frame], end = first_run[patches.frame + 1];
    if (first == end) return true;  // the same frame again
    const u32* sums = values + patches.frame + 1;  // of each run, two: of positions and of literals
    const u32 moved = sums[2 * end - 2], used = sums[2 * end - 1], n_literals = used - patches.used;
    if (moved - patches.moved > MOST_MOVED || n_literals > patches.nbytes - patches.literals) return false;
    const u8* literals = patches.stream + patches.literals;
    const u32 log_lanes = max(__clz(end - first - 1) - 26, 0), lanes = 1 << log_lanes;  // for each run: the fewer, the more
    for (u32 run = first + (threadIdx.x >> log_lanes); run < end; run += THREADS >> log_lanes) {
        const u32 until = sums[2 * run + 1] - patches.used, to = sums[2 * run] - patches.moved - until;
        u32 i = (run == first ? 0 : sums[2 * run - 1] - patches.used) + threadIdx.x % lanes;
        for (; i < until; i += 2 * lanes) {
            const bool has_other = i + lanes < until;
            const u8 one = literals[i], other = has_other ? literals[i + lanes] : 0;  // both before a store, which may be to them
            frame[to + i] = one;
            if (has_other) frame[to + i + lanes] = other;
        }
    }
    patches.literals += n_literals, patches.moved = moved, patches.used = used;
    return true;
}

// Turn the frame into the next one, run by run. Returns what is wrong with its patch, the same to all threads.
__device__ __forceinline__ u32 next_by_runs(Patches& patches, u8* frame) {
    u64 n_runs, skip, length;
    u32 position = 0, code = read_varint(patches.stream, patches.runs, patches.runs_end, n_runs);
    for (; code == OK && n_runs; n_runs--) {
        if ((code = read_varint(patches.stream, patches.runs, patches.runs_end, skip)) != OK) return code;
        if ((code = read_varint(patches.stream, patches.runs, patches.runs_end, length)) != OK) return code;
        if (skip > FRAME_NBYTES - position || length > FRAME_NBYTES - position - skip) return OUTSIDE_FRAME;
        if (length > patches.nbytes - patches.literals) return NO_LITERALS;
        position += static_cast<u32>(skip);
        for (u32 i = threadIdx.x; i < length; i += THREADS) frame[position + i] = patches.stream[patches.literals + i];
        position += static_cast<u32>(length), patches.literals += static_cast<u32>(length);
    }
    return code;
}

// Make `n_frames` frames of a stream in `frame` and call put(k) for each, behind which no thread may be reading it; before all
// of this neither. references: u8[n_references][FRAME_NBYTES], aligned to 16. Returns what is wrong, the same to all threads;
// the frames before that were put. What is behind these frames is not looked at, or wrong if `to_end`.
template <typename Put>
__device__ __forceinline__ u32 read_frames(const u8* stream, u64 nbytes, const u8* references, u64 n_references, u32 n_frames,
                                           bool to_end, u8* frame, Put put) {
    if (nbytes >> 32) return TOO_LONG;
    Patches patches = {staged_stream(staged, stream, static_cast<u32>(nbytes)), static_cast<u32>(nbytes)};
    u32 code;
    u64 reference, runs_nbytes = 0;
    if ((code = read_varint(stream, patches.runs, patches.nbytes, reference)) != OK) return code;
    const bool has_patches = reference != NO_PATCHES;
    if (has_patches) {
        if ((code = read_varint(stream, patches.runs, patches.nbytes, runs_nbytes)) != OK) return code;
        if (runs_nbytes > patches.nbytes - patches.runs) return NO_SUCH_SECTION;
        if (reference >= n_references) return NO_SUCH_REFERENCE;
        typedef Sized<FRAME_NBYTES % 16 ? FRAME_NBYTES & -FRAME_NBYTES : 16>::Type Word;
        begin_copy<Word>(frame, references + reference * FRAME_NBYTES, FRAME_NBYTES);
    }
    patches.runs_end = patches.literals = patches.runs + static_cast<u32>(runs_nbytes);
    __syncthreads();
    for (u32 k = 0; k < n_frames; k++) {
        if (!has_patches) {  // the literals are the frames
            if (static_cast<u64>(patches.literals) + FRAME_NBYTES > patches.nbytes) return FEW_FRAMES;
            copy_bytes(frame, patches.stream + patches.literals, FRAME_NBYTES);
            patches.literals += FRAME_NBYTES;
        } else {
            if (patches.frame == patches.n_frames) {
                parse_tile(patches, n_frames - k);
                wait_for_copies();
                __syncthreads();
            }
            if (next_of_tile(patches, frame)) {
                patches.frame++;
            } else {
                patches.runs = runs_begin[patches.frame];
                if ((code = next_by_runs(patches, frame)) != OK) return code;
                patches.frame = patches.n_frames;
            }
        }
        __syncthreads();
        put(k);
    }
    return to_end && (patches.runs != patches.runs_end || patches.literals != patches.nbytes) ? LEFT_OVER : OK;
}
