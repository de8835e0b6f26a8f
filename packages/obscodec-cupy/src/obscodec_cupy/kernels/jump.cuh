// Wanted frames of a stream of patches, see docs/formats/delta-rle.md, without those before the first one: what all patches up
// to it write is settled at once, as for each byte the literal with the highest number wins. Then one step for each frame.
//
// Two prefix sums over all varints, one of every second varint and one of the others, place the runs of all frames before it is
// known where the frames begin. Then a warp follows the counts. A bit marks the literal that each run begins with, and all
// literals look up how far they move, a range of them at a time.
//
// Whatever is unusual, damaged or too large is left to read_frames, which alone says what is wrong with a stream.
//
// Defines: THREADS, of a block, 128 to 512; BLOCK_FRAMES; JUMPS, 1 if the launch gives JUMP_FRAMES times FRAME_ROOM bytes of
// shared memory; those of patches.cuh.
#include "patches.cuh"
#include "tables.cuh"

constexpr u32 JUMP_FRAMES = 5;  // of shared memory: one, and four bytes for each of its bytes; or five
constexpr u32 N_WARPS = THREADS / 32;
constexpr u32 MOST_RUNS_NBYTES = 2040, MOST_VALUES = 2048, RANGE = 4096;
constexpr u32 WORDS_EACH = (MOST_VALUES / 4 + THREADS - 1) / THREADS;  // of the runs, for a thread
static_assert(!JUMPS || (BLOCK_FRAMES <= 32 && FRAME_NBYTES <= 16384 && FRAME_IN_SHARED), "left to read_frames");

// In the room of `values`: of each varint the two sums through it, and 2 bytes times the number of the count that follows if it is
// a count; then a bit for each literal of a range.
constexpr u32 NEXT_AT = 4 * MOST_VALUES, BEGINS_AT = NEXT_AT + 2 * (MOST_VALUES + 8);
static_assert(BEGINS_AT + RANGE / 8 <= sizeof(values), "room");

__shared__ u32 counts_of_warps[N_WARPS], sums_of_warps[2][N_WARPS];
__shared__ u32 count_of_frame[33], literals_of_frame[33];  // the number of its count, and its first literal; and the ends
__shared__ u16 moves[JUMPS ? RANGE : 1];                   // of literals: how far they are from their places in the frame

__device__ __forceinline__ u32 sum_of_warp(u32 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_add_sync(ALL_LANES, x);
#else
    for (u32 step = 16; step; step /= 2) x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
#endif
}

__device__ __forceinline__ u32 or_of_warp(u32 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_or_sync(ALL_LANES, x);
#else
    for (u32 step = 16; step; step /= 2) x |= __shfl_xor_sync(ALL_LANES, x, step);
    return x;
#endif
}

// The sum over this lane and those before it.
__device__ __forceinline__ u32 sum_through(u32 x) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 step = 1; step < 32; step *= 2) {
        const u32 other = __shfl_up_sync(ALL_LANES, x, step);
        if (lane >= step) x += other;
    }
    return x;
}

// Copy a frame to where it is aligned to 16, in whole words of 4 bytes; nothing behind it is read.
__device__ __forceinline__ void copy_frame(u8* to, const u8* from) {
    const u32 misaligned = static_cast<u32>(reinterpret_cast<u64>(from) % 4);
    const u32* words = reinterpret_cast<const u32*>(from - misaligned);
    constexpr u32 N = FRAME_NBYTES / 16;
    for (u32 i = threadIdx.x; i < N; i += THREADS) {
        u32 x[5];
#pragma unroll
        for (u32 k = 0; k < 4; k++) x[k] = words[4 * i + k];
        if (i + 1 < N || misaligned == 0) {
            x[4] = misaligned ? words[4 * i + 4] : 0;
        } else {
            x[4] = 0;
            for (u32 k = 0; k < misaligned; k++) x[4] |= static_cast<u32>(from[16 * i + 16 - misaligned + k]) << 8 * k;
        }
#pragma unroll
        for (u32 k = 0; k < 4; k++) x[k] = __funnelshift_r(x[k], x[k + 1], 8 * misaligned);
        reinterpret_cast<uint4*>(to)[i] = make_uint4(x[0], x[1], x[2], x[3]);
    }
    for (u32 i = 16 * N + threadIdx.x; i < FRAME_NBYTES; i += THREADS) to[i] = from[i];
}

// Frames that are kept as they are, some at a time.
template <typename Put>
__device__ __forceinline__ bool jump_to_plain(const u8* literals, u32 places, u8* frame, Put put) {
    while (places) {
        u32 some = places;
        for (u32 n = 0; n < JUMP_FRAMES && places; n++, places &= places - 1)
            copy_frame(frame + n * FRAME_ROOM, literals + (__ffs(places) - 1) * static_cast<u64>(FRAME_NBYTES));
        some &= ~places;
        __syncthreads();
        for (u32 n = 0; some; n++, some &= some - 1) put(__ffs(some) - 1, frame + n * FRAME_ROOM);
        __syncthreads();
    }
    return true;
}

// Make the frames at `places` of a stream, a bit for each, and call put(k, frame) for each, behind which no thread may be writing
// to it. The stream begins behind `n_before` bytes, which must be 0. Returns false, without any call, if it is left to
// read_frames. A barrier must be before it, one is behind it if it returns true.
template <typename Put>
__device__ __forceinline__ bool jump(const u8* stream, u64 nbytes, u32 n_before, const Tables* tables, u32 places, u8* frame, Put put) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = __ffs(places) - 1, n_frames = 32 - __clz(places);
    if (nbytes > static_cast<u64>(n_frames) * FRAME_NBYTES + n_before && stream[n_before] == NO_PATCHES)
        return (n_before == 0 || *stream == 0) && jump_to_plain(stream + n_before + 1, places, frame, put);
    if (nbytes < 8 || nbytes >> 30) return false;
    const u32 end = static_cast<u32>(nbytes), n_staged = min(end, STAGED_NBYTES);
    u32* owner = reinterpret_cast<u32*>(frame + FRAME_ROOM);  // of each byte of the frame, the last literal and one
    u8* const room = reinterpret_cast<u8*>(values);
    u32* sums = reinterpret_cast<u32*>(room);
    u32* begins = reinterpret_cast<u32*>(room + BEGINS_AT);
    u32 misaligned = 0;
    if (stream != staged) {
        misaligned = static_cast<u32>(reinterpret_cast<u64>(stream) % 16);
        const u32 head = min((16 - misaligned) % 16, n_staged), body = (n_staged - head) / 16 * 16;
        const u32 single = threadIdx.x < head ? threadIdx.x : threadIdx.x + body;
        begin_copy<uint4>(staged + misaligned + head, stream + head, body);
        if (single < n_staged) staged[misaligned + single] = stream[single];
    }
    const u8* references = tables->references;
    const u64 n_references = tables->n_references;
#pragma unroll
    for (u32 k = 0; k < FRAME_ROOM / 4; k += THREADS)
        if (k + threadIdx.x < FRAME_ROOM / 4) reinterpret_cast<uint4*>(owner)[k + threadIdx.x] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x < RANGE / 32) begins[threadIdx.x] = 0;
    wait_for_copies();
    __syncthreads();

    const u8* there = staged + misaligned;
    u32 at = n_before + 2, runs_nbytes = there[at - 1], last = runs_nbytes;
    const u32 reference = there[n_before], second = there[at], third = there[at + 1];
    if (runs_nbytes >= 0x80) runs_nbytes = (runs_nbytes & 0x7f) | (second & 0x7f) << 7, last = second, at++;
    if (last >= 0x80) runs_nbytes |= third << 14, last = third, at++;
    if (last >= 0x80 || (last == 0 && at > n_before + 2) || at + runs_nbytes > n_staged || runs_nbytes > MOST_RUNS_NBYTES) return false;
    if (reference >= NO_PATCHES || reference >= n_references || (n_before && *there != 0)) return false;
    typedef Sized<FRAME_NBYTES % 16 ? FRAME_NBYTES & -FRAME_NBYTES : 16>::Type Word;
    begin_copy<Word>(frame, references + reference * FRAME_NBYTES, FRAME_NBYTES);

    // Number the varints by the bytes that end one: a word or a few for each thread.
    const u8 *literals = there + at + runs_nbytes, *far_literals = stream + at + runs_nbytes;
    const bool is_staged = end == n_staged;
    const u32 offset = misaligned + at, skipped = offset % 4, until = skipped + runs_nbytes;
    const u32* words = reinterpret_cast<const u32*>(staged) + offset / 4;
    const u32 each = (until + 4 * THREADS - 1) / (4 * THREADS);
    u32 ends[WORDS_EACH], word[WORDS_EACH], before[WORDS_EACH], count = 0;
#pragma unroll
    for (u32 k = 0; k < WORDS_EACH; k++) {
        const u32 i = threadIdx.x * each + k;
        ends[k] = word[k] = before[k] = 0;
        if (k < each && 4 * i < until) {
            word[k] = words[i], before[k] = i ? words[i - 1] : 0;
            ends[k] = ~word[k] & 0x80808080;
            if (i == 0) ends[k] = ends[k] >> 8 * skipped << 8 * skipped;
            if (4 * i + 4 > until) ends[k] &= (1u << 8 * (until % 4)) - 1;
        }
        count += __popc(ends[k]);
    }
    const u32 through = sum_through(count);
    if (lane == 31) counts_of_warps[warp] = through;
    __syncthreads();
    const u32 of_warp = lane < N_WARPS ? counts_of_warps[lane] : 0, n_values = sum_of_warp(of_warp);
    const u32 number = sum_of_warp(lane < warp ? of_warp : 0) + through - count;
    u32 found[4 * WORDS_EACH], even = 0, odd = 0, n = number;
    bool is_bad = false;
#pragma unroll
    for (u32 w = 0; w < WORDS_EACH; w++) {
        if (w >= each) break;
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u32 bytes = k == 3 ? word[w] : __funnelshift_r(before[w], word[w], 8 * k + 8);  // up to this one, the highest
            const bool ends_one = ends[w] & 0x80u << 8 * k, has_two = bytes & 0x800000, has_three = has_two && bytes & 0x8000;
            u32 value = bytes >> 24;
            is_bad |= ends_one && has_two && (value == 0 || (has_three && bytes & 0x80));
            if (has_two) value = value << 7 | (bytes >> 16 & 0x7f);
            if (has_three) value = value << 7 | (bytes >> 8 & 0x7f);
            is_bad |= ends_one && value > FRAME_NBYTES;
            found[4 * w + k] = value;
            const u32 counted = ends_one ? value : 0;
            odd += n % 2 ? counted : 0, even += n % 2 ? 0 : counted, n += ends_one;
        }
    }
    const u32 even_through = sum_through(even), odd_through = sum_through(odd);
    if (lane == 31) sums_of_warps[0][warp] = even_through, sums_of_warps[1][warp] = odd_through;
    __syncthreads();
    even = even_through - even + sum_of_warp(lane < warp ? sums_of_warps[0][lane] : 0);
    odd = odd_through - odd + sum_of_warp(lane < warp ? sums_of_warps[1][lane] : 0);
    n = number;
    u16* const nexts = reinterpret_cast<u16*>(room + NEXT_AT);
#pragma unroll
    for (u32 w = 0; w < WORDS_EACH; w++) {
        if (w >= each) break;
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            if (ends[w] & 0x80u << 8 * k) {
                const u32 value = found[4 * w + k];
                odd += n % 2 ? value : 0, even += n % 2 ? 0 : value;
                sums[n] = __byte_perm(even + odd, n % 2 ? odd : even, 0x5410);
                nexts[n] = static_cast<u16>(2 * min(n + 1 + 2 * value, n_values + 1));
                n++;
            }
        }
    }
    if (threadIdx.x < 2) nexts[n_values + threadIdx.x] = 2 * (n_values + 1);
    __syncthreads();

    // Follow the counts from one frame to the next.
    if (warp == 0) {
        u32 place = 0, own_place = 0, own_next = 0;
#pragma unroll 1
        for (u32 k = 0; k < n_frames; k++) {
            const u32 next = nexts[place / 2];
            if (lane == k) own_place = place / 2, own_next = next / 2;
            place = next;
        }
        is_bad |= place / 2 > n_values;
        u32 used = 0;
        if (lane < n_frames && own_next <= n_values) used = ((sums[own_next - 1] >> 16) - (sums[own_place] >> 16)) & 0xffff;
        const u32 used_through = sum_through(used);
        is_bad |= used_through > end - at - runs_nbytes;
        count_of_frame[lane] = lane < n_frames ? own_place : place / 2;
        literals_of_frame[lane] = used_through - used;
        if (lane == 31) count_of_frame[32] = place / 2, literals_of_frame[32] = used_through;
    }
    if (__syncthreads_or(is_bad)) return wait_for_copies(), false;
    const u32 n_literals = literals_of_frame[n_frames], settled = literals_of_frame[first + 1];
    u32 k_next = first + 1;
    bool is_put = false;
    // What a frame hides that replaces all bytes need not be read.
    const u32 last_whole = lane <= first && literals_of_frame[lane + 1] - literals_of_frame[lane] == FRAME_NBYTES ? lane + 1 : 0;
    const u32 n_hidden = 32 - __clz(__ballot_sync(ALL_LANES, last_whole));
    for (u32 base = n_hidden ? literals_of_frame[n_hidden - 1] : 0;; base += RANGE) {
        for (u32 k = warp; k < n_frames; k += N_WARPS) {
            const u32 begin = count_of_frame[k], next = count_of_frame[k + 1], origin = sums[begin];
            const u32 before_it = literals_of_frame[k], used = literals_of_frame[k + 1] - before_it;
#pragma unroll 1
            for (u32 i = begin + 2 + 2 * lane; i < next; i += 64) {
                const u32 here = sums[i], length = ((here >> 16) - (sums[i - 2] >> 16)) & 0xffff;
                const u32 moved = (here - origin) & 0xffff, so_far = ((here >> 16) - (origin >> 16)) & 0xffff;
                if (moved > FRAME_NBYTES || length == 0 || length > so_far || so_far > used) {
                    is_bad = true;
                } else if (const u32 literal = before_it + so_far - length; literal + length > base && literal < base + RANGE) {
                    const u32 at_first = max(literal, base) - base;
                    moves[at_first] = static_cast<u16>(moved - length - literal);
                    atomicOr(begins + at_first / 32, 1u << at_first % 32);
                }
            }
        }
        if (__syncthreads_or(is_bad)) return wait_for_copies(), false;

        const u32 limit = min(base + RANGE, n_literals), n_words = (limit - base + 31) / 32;
        const u32 words_each = (n_words + N_WARPS - 1) / N_WARPS, first_word = warp * words_each;
        if (first_word < n_words) {
            u32 begun = first_word;  // at first the word, then the literal that the run begins with
            for (u32 found = 0; begun > 0 && found == 0;) {
                found = __ballot_sync(ALL_LANES, lane < begun && begins[begun - 1 - lane] != 0);
                begun = found ? begun - __ffs(found) + 1 : begun > 32 ? begun - 32 : 0;
            }
            if (begun > 0) begun = 32 * begun - 1 - __clz(begins[begun - 1]);
#pragma unroll 2
            for (u32 i = first_word; i < min(first_word + words_each, n_words); i++) {
                const u32 all = begins[i], some = all & ((2u << lane) - 1), literal = base + 32 * i + lane;
                const u32 move = moves[some ? 32 * i + 31 - __clz(some) : begun];
                if (all) begun = 32 * i + 31 - __clz(all);
                if (!(all >> lane & 1)) moves[32 * i + lane] = static_cast<u16>(move);  // nobody else reads it yet
                if (literal < settled) atomicMax(owner + ((literal + move) & 0xffff), literal + 1);
            }
        }
        wait_for_copies();
        __syncthreads();
#pragma unroll 4
        for (u32 i = base + threadIdx.x; i < min(limit, settled); i += THREADS) {
            const u32 to = (i + moves[i - base]) & 0xffff;
            if (owner[to] == i + 1) frame[to] = is_staged ? literals[i] : far_literals[i];
        }
        __syncthreads();
        if (limit >= settled) {
            if (!is_put) {
                put(first, frame);
                __syncthreads();
                is_put = true;
            }
            for (; k_next < n_frames; k_next++) {
                const u32 until = literals_of_frame[k_next + 1];
#pragma unroll 1
                for (u32 i = max(literals_of_frame[k_next], base) + threadIdx.x; i < min(until, limit); i += THREADS)
                    frame[(i + moves[i - base]) & 0xffff] = is_staged ? literals[i] : far_literals[i];
                if (until > limit) break;
                __syncthreads();
                if (places >> k_next & 1) {
                    put(k_next, frame);
                    __syncthreads();
                }
            }
        }
        if (limit == n_literals) break;
        if (threadIdx.x < RANGE / 32) begins[threadIdx.x] = 0;
        __syncthreads();
    }
    return true;
}
