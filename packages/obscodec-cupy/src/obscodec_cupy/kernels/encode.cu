// Items to streams of rle or delta-rle, see docs/formats: measure the runs of each frame, place them, write them. An item of
// rle is one frame. If its runs would take more bytes than itself, it has none and is copied.
//
// WIDTH: bytes of an element of rle, 1, 2, 4 or 8; 0 for delta-rle.
#include "encode.cuh"

// Of a frame: the bytes of its runs and values, until encode_place turns them into where these begin among those of its item.
struct Part { u32 n_runs, runs, values; };

struct Item { u32 reference, runs_nbytes; };

#if WIDTH

constexpr u32 SHIFT = WIDTH == 8 ? 3 : WIDTH / 2;  // log2 of WIDTH
constexpr u32 RUN_EDGES = 1, VALUE_NBYTES = WIDTH;
constexpr i32 VALUE_AT = -WIDTH;  // from its pick on

// Bit i: byte at + i differs from the byte of the element before, for up to 16 bytes.
__device__ __forceinline__ u32 changes_of_16(const u8* row, u32 at, u32 nbytes) {
    u32 bits = 0;
    if (at + 16 > nbytes) {
        for (u32 i = at > 0 ? 0 : WIDTH; at + i < nbytes; ++i)
            bits |= static_cast<u32>(row[at + i] != row[at + i - WIDTH]) << i;
        return bits;
    }
    const uint4 own = load_16(row + at);
    const u32 words[6] = {at > 0 ? load_4(row + at - 8) : 0, at > 0 ? load_4(row + at - 4) : 0, own.x, own.y, own.z, own.w};
    constexpr u32 BACK = (WIDTH + 3) / 4, BITS = (32 - 8 * WIDTH) & 31;  // an element before, as words and bits of the next one
#pragma unroll
    for (u32 k = 2; k < 6; ++k)
        bits |= different_bytes(words[k], __funnelshift_r(words[k - BACK], words[k - BACK + 1], BITS)) << 4 * (k - 2);
    return at > 0 ? bits : bits >> WIDTH << WIDTH;  // nothing is before the first element
}

// The edges are the ends of runs, at the position behind the last byte; the element before each is a value.
__device__ __forceinline__ Marks marks_of(const u8* frame, const u8*, u32 word, u32 nbytes) {
    u32 bits = changes_of_16(frame, 32 * word, nbytes) | changes_of_16(frame, 32 * word + 16, nbytes) << 16;
    for (u32 n = 1; n < WIDTH; n *= 2) bits |= bits >> n;
    bits &= 0xffffffff / ((1ull << WIDTH) - 1);  // one bit for each element, at its first byte
    if (nbytes > 0 && word == nbytes / 32) bits |= 1u << nbytes % 32;
    return {bits, bits};
}

#else

constexpr u32 SHIFT = 0, RUN_EDGES = 2, VALUE_NBYTES = 1;
constexpr i32 VALUE_AT = 0;

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
__device__ __forceinline__ Marks marks_of(const u8* frame, const u8* old, u32 word, u32 nbytes) {
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

#endif

// One thread block for each frame; of delta-rle, it also finds the reference of the first frames.
extern "C" __global__ void __launch_bounds__(256, 4) encode_measure(
    const u8* frames, u32 nbytes, u32 n_frames, const u8* references, u32 n_references, Part* parts, Item* items) {
    const u64 number = blockIdx.x;
    const u8* frame = frames + number * nbytes;
    const u8* old = frame - nbytes;
#if !WIDTH
    if (number % n_frames == 0) {
        const u32 reference = nearest_reference(frame, references, n_references, nbytes);
        old = references + static_cast<u64>(reference) * nbytes;
        if (threadIdx.x == 0) items[number / n_frames].reference = reference;
    }
#endif
    const RunSizes sizes = measure_runs<SHIFT>(nbytes, [=](u32 word) { return marks_of(frame, old, word, nbytes); });
    const u32 n_runs = sizes.n_edges / RUN_EDGES, runs_nbytes = varint_nbytes(n_runs) + sizes.distances_nbytes;
    if (threadIdx.x == 0) parts[number] = {n_runs, runs_nbytes, sizes.n_picks * VALUE_NBYTES};
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
    if (WIDTH && length > 1 + static_cast<u64>(nbytes)) {
        length = 1 + static_cast<u64>(nbytes);
        own->n_runs = 0;
    }
    lengths[blockIdx.x] = length;
}

// One thread block for each frame, and one for each item without frames.
extern "C" __global__ void __launch_bounds__(256, 4) encode_write(
    const u8* frames, u32 nbytes, u32 n_frames, const u8* references, const Part* parts, const Item* items,
    const i64* offsets, u8* out) {
    const u64 number = blockIdx.x, place = n_frames ? number / n_frames : number;
    const bool is_first = n_frames == 0 || number % n_frames == 0;
    const Item item = items[place];
    u8* runs = out + offsets[place];
    if (!WIDTH && is_first && threadIdx.x == 0) write_varint(write_varint(runs, item.reference), item.runs_nbytes);
    if (n_frames == 0) return;
    runs += head_nbytes(item);
    const Part part = parts[number];
    const u8* frame = frames + number * nbytes;
    if (WIDTH && part.n_runs == 0) {
        if (threadIdx.x == 0) *runs = 0;
        copy_bytes(runs + 1, frame, nbytes);
        return;
    }
    const u8* old = is_first ? references + static_cast<u64>(item.reference) * nbytes : frame - nbytes;
    u8* values = runs + item.runs_nbytes + part.values;
    write_runs<SHIFT>(nbytes, [=](u32 word) { return marks_of(frame, old, word, nbytes); }, part.n_runs, runs + part.runs,
                      [=](i32 pick, u32 index) {
        for (u32 k = 0; k < VALUE_NBYTES; ++k) values[index * VALUE_NBYTES + k] = frame[pick + VALUE_AT + k];
    });
}
