// Items to streams of rle or delta-rle, see docs/formats: measure the runs of each frame, place them and the streams, write them.
// An item of rle is one frame. If its stream would be longer than itself and a byte, this byte and the item are the stream. All
// threads of a block work on one frame together; their number is a multiple of 32. Items and frames are below 2^31 bytes.
//
// WIDTH: bytes of an element of rle, 1, 2, 4 or 8; 0 for delta-rle.
#include "block_scan.cuh"
#include "bytes.cuh"

// Of a frame: the bytes of its runs and values, until encode_place turns them into where these begin among those of its item.
struct Part { u32 n_runs, runs, values; };

struct Item { u32 reference, runs_nbytes; };  // NO_PATCHES for an item that is kept as it is, of rle, too

// Of 32 bytes of a frame: where runs begin or end, and of which bytes the stream has values. A bit for each byte, and for the
// position behind the last one. A stream holds the distance of each edge from the one before it, the first one's from the begin
// of the frame, in units of 2^SHIFT bytes.
struct Marks { u32 edges, picks; };

constexpr u32 SHIFT = WIDTH == 8 ? 3 : WIDTH / 2;  // log2 of WIDTH
constexpr u32 RUN_EDGES = WIDTH ? 1 : 2, VALUE_NBYTES = WIDTH ? WIDTH : 1;
constexpr i32 VALUE_AT = -WIDTH;  // from its pick on

// Bit i: byte at + i of a frame is not that of the old one, for up to 16 bytes. For rle, the old one is the frame itself, an element
// later.
__device__ __forceinline__ u32 differences_of_16(const u8* old, const u8* frame, u32 at, u32 nbytes) {
    if (WIDTH) old = frame - WIDTH;
    const u32 first = at > 0 ? 0 : WIDTH;  // nothing is before the first element
    u32 bits = 0;
    if (at + 16 > nbytes) {
        for (u32 i = first; at + i < nbytes; ++i) bits |= static_cast<u32>(old[at + i] != frame[at + i]) << i;
        return bits;
    }
    const uint4 y = load_16(frame + at);
    uint4 x;
    if constexpr (WIDTH > 0) {
        const u32 words[6] = {at > 0 ? load_4(frame + at - 8) : 0, at > 0 ? load_4(frame + at - 4) : 0, y.x, y.y, y.z, y.w};
        constexpr u32 BACK = (WIDTH + 3) / 4, BITS = (32 - 8 * WIDTH) & 31;  // an element before, as words and bits
        const auto word_before = [&](u32 k) { return __funnelshift_r(words[k - BACK], words[k - BACK + 1], BITS); };
        x = make_uint4(word_before(2), word_before(3), word_before(4), word_before(5));
    } else {
        x = load_16(old + at);
    }
    bits = different_bytes(x.x, y.x) | different_bytes(x.y, y.y) << 4 | different_bytes(x.z, y.z) << 8 |
           different_bytes(x.w, y.w) << 12;
    return bits >> first << first;
}

// The marks of 32 bytes. Of rle, the edges are the ends of runs, at the position behind the last byte; the element before each is
// a value. The runs of a patch go on over three equal bytes or fewer: the differences are closed by four positions.
__device__ __forceinline__ Marks marks_of(const u8* old, const u8* frame, u32 word, u32 nbytes) {
    const u32 at = 32 * word;
#if WIDTH
    u32 bits = differences_of_16(old, frame, at, nbytes) | differences_of_16(old, frame, at + 16, nbytes) << 16;
    for (u32 n = 1; n < WIDTH; n *= 2) bits |= bits >> n;
    bits &= 0xffffffff / ((1ull << WIDTH) - 1);  // one bit for each element, at its first byte
    if (nbytes > 0 && word == nbytes / 32) bits |= 1u << nbytes % 32;
    return {bits, bits};
#else
    u64 bits = at > 0 ? different_bytes(load_4(old + at - 4), load_4(frame + at - 4)) : 0;
    for (u32 i = 0; i < 48; i += 16) bits |= static_cast<u64>(differences_of_16(old, frame, at + i, nbytes)) << (4 + i);
    bits |= bits << 1;
    bits |= bits << 2;
    bits &= bits >> 1;
    bits &= bits >> 2;
    return {static_cast<u32>((bits ^ bits << 1) >> 4), static_cast<u32>(bits >> 4)};
#endif
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

// Call visit(word, marks, before, size) for each word of marks: the edge before the word, and the bytes of its distances in the
// high half of `size`, its picks in the low one.
template <typename Visit>
__device__ __forceinline__ void each_word(const u8* old, const u8* frame, u32 nbytes, Visit visit) {
    u32 last = 0;  // edge of the words so far
    for (u32 first = 0; first <= nbytes / 32; first += blockDim.x) {
        const u32 word = first + threadIdx.x;
        const Marks marks = word <= nbytes / 32 ? marks_of(old, frame, word, nbytes) : Marks{0, 0};
        const Scanned<u32> edge = scan_block<Max>(marks.edges ? 32 * word + 31 - __clz(marks.edges) : 0);
        const u32 before = Max::of(edge.before, last);
        last = Max::of(edge.total, last);
        u64 size = __popc(marks.picks);
        if (marks.edges) {  // only the first distance of a word can take more than one byte
            const u32 distance = (32 * word + __ffs(marks.edges) - 1 - before) >> SHIFT;
            size += static_cast<u64>(varint_nbytes(distance) + __popc(marks.edges) - 1) << 32;
        }
        visit(word, marks, before, size);
    }
}

// One thread block for each frame; of delta-rle, it also finds the reference of the first frames.
extern "C" __global__ void __launch_bounds__(256, 4) encode_measure(
    const u8* frames, u32 nbytes, u32 n_frames, const u8* references, u32 n_references, Part* parts, Item* items) {
    const u64 number = blockIdx.x;
    const u8* frame = frames + number * nbytes;
    const u8* old = frame - nbytes;
    if (!WIDTH && number % n_frames == 0) {
        const u32 reference = nearest_reference(frame, references, n_references, nbytes);
        old = references + static_cast<u64>(reference) * nbytes;
        if (threadIdx.x == 0) items[number / n_frames].reference = reference;
    }
    u32 n_edges = 0;
    u64 sizes = 0;
    each_word(old, frame, nbytes, [&](u32, Marks marks, u32, u64 size) {
        n_edges += __popc(marks.edges);
        sizes += size;
    });
    const u32 n_runs = scan_block<Sum>(n_edges).total / RUN_EDGES;
    sizes = scan_block<Sum>(sizes).total;
    const u32 runs_nbytes = varint_nbytes(n_runs) + static_cast<u32>(sizes >> 32);
    if (threadIdx.x == 0) parts[number] = {n_runs, runs_nbytes, static_cast<u32>(sizes) * VALUE_NBYTES};
}

__device__ __forceinline__ u32 head_nbytes(Item item) {
    return WIDTH ? 0 : varint_nbytes(item.reference) + varint_nbytes(item.runs_nbytes);
}

// One thread block for each item.
extern "C" __global__ void __launch_bounds__(256, 4) encode_place(
    u32 nbytes, u32 n_frames, Part* parts, Item* items, i64* lengths) {
    Part* own = parts + static_cast<u64>(blockIdx.x) * n_frames;
    u64 done = 0;  // bytes of the runs in the high half, of the values in the low one
    for (u32 first = 0; first < n_frames; first += blockDim.x) {
        const u32 k = first + threadIdx.x;
        const u64 size = k < n_frames ? static_cast<u64>(own[k].runs) << 32 | own[k].values : 0;
        const Scanned<u64> place = scan_block<Sum>(size);
        if (k < n_frames) {
            own[k].runs = static_cast<u32>((done + place.before) >> 32);
            own[k].values = static_cast<u32>(done + place.before);
        }
        done += place.total;
    }
    if (threadIdx.x > 0) return;
    Item& item = items[blockIdx.x];
    if (WIDTH || n_frames == 0) item.reference = 0;
    item.runs_nbytes = static_cast<u32>(done >> 32);
    u64 length = head_nbytes(item) + (done >> 32) + static_cast<u32>(done);
    const u64 most = 1 + static_cast<u64>(nbytes) * n_frames;
    if (length > most) {
        length = most;
        item.reference = NO_PATCHES;
    }
    lengths[blockIdx.x] = length;
}

// Where the streams begin, one behind the other. One thread block.
extern "C" __global__ void __launch_bounds__(1024) encode_offsets(const i64* lengths, u64 n, i64* offsets) {
    u64 done = 0;
    for (u64 first = 0; first < n; first += blockDim.x) {
        const u64 i = first + threadIdx.x;
        const Scanned<u64> place = scan_block<Sum>(i < n ? static_cast<u64>(lengths[i]) : 0);
        if (i < n) offsets[i] = static_cast<i64>(done + place.before);
        done += place.total;
    }
}

// Write the values of a warp's picks, neighbouring lanes those of neighbouring positions. All lanes take part; their words follow
// each other, and `index` is that of the first value of each.
__device__ __forceinline__ void write_values(const u8* frame, u32 word, u32 picks, u32 index, u8* values) {
    const u32 lane = threadIdx.x % 32;
    for (u32 words = __ballot_sync(ALL_LANES, picks != 0); words; words &= words - 1) {
        const u32 from = __ffs(words) - 1;
        const u32 chosen = __shfl_sync(ALL_LANES, picks, from);
        const u32 first = __shfl_sync(ALL_LANES, index, from);
        if (!(chosen >> lane & 1)) continue;
        const u8* value = frame + 32 * (word - lane + from) + lane + VALUE_AT;
        const u32 place = first + __popc(chosen & ((1u << lane) - 1));
        for (u32 k = 0; k < VALUE_NBYTES; ++k) values[place * VALUE_NBYTES + k] = value[k];
    }
}

// One thread block for each frame, and one for each item without frames.
extern "C" __global__ void __launch_bounds__(256, 4) encode_write(
    const u8* frames, u32 nbytes, u32 n_frames, const u8* references, const Part* parts, const Item* items,
    const i64* offsets, u8* out) {
    const u64 number = blockIdx.x, place = n_frames ? number / n_frames : number;
    const bool is_first = n_frames == 0 || number % n_frames == 0;
    const Item item = items[place];
    const u8* frame = frames + number * nbytes;
    u8* runs = out + offsets[place];
    if (item.reference == NO_PATCHES) {  // as an item without frames is
        if (is_first && threadIdx.x == 0) *runs = WIDTH ? 0 : NO_PATCHES;
        copy_bytes(runs + 1 + (number - place * n_frames) * nbytes, frame, nbytes);
        return;
    }
    if (!WIDTH && is_first && threadIdx.x == 0) write_varint(write_varint(runs, item.reference), item.runs_nbytes);
    runs += head_nbytes(item);
    const Part part = parts[number];
    const u8* old = is_first ? references + static_cast<u64>(item.reference) * nbytes : frame - nbytes;
    u8* values = runs + item.runs_nbytes + part.values;
    runs += part.runs;
    if (threadIdx.x == 0) write_varint(runs, part.n_runs);
    runs += varint_nbytes(part.n_runs);
    each_word(old, frame, nbytes, [&](u32 word, Marks marks, u32 before, u64 size) {
        const Scanned<u64> done = scan_block<Sum>(size);
        u8* at = runs + (done.before >> 32);
        for (u32 edges = marks.edges; edges; edges &= edges - 1) {
            const u32 edge = 32 * word + __ffs(edges) - 1;
            at = write_varint(at, (edge - before) >> SHIFT);
            before = edge;
        }
        write_values(frame, word, marks.picks, static_cast<u32>(done.before), values);
        runs += done.total >> 32;
        values += static_cast<u32>(done.total) * VALUE_NBYTES;
    });
}
