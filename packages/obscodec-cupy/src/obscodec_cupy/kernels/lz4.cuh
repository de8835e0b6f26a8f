// Patches that LZ4 has compressed, see docs/formats/frame-block.md: a warp decodes the block behind the dictionary of its
// version. It says of each block what the core's streams/lz4.py says.
//
// Defines: LZ4_NBYTES, the most bytes that the patches of a block can have, 0 if LZ4 compresses none; those of patches.cuh.
#include "bytes.cuh"
#include "patches.cuh"
#include "tables.cuh"

constexpr u64 LZ4_ROOM = (LZ4_NBYTES + 15ull) / 16 * 16;

// Add to a length whose half of a token is full. Returns whether its bytes are before `end`.
__device__ __forceinline__ bool read_length(const u8* block, u32& at, u32 end, u64& length) {
    for (u32 more = length < 15 ? 0 : 255; more == 255; length += more) {
        if (at >= end) return false;
        more = block[at++];
    }
    return true;
}

// Decode a block by one warp, behind a dictionary that ends at `dictionary`. Returns whether it fills the `nbytes` bytes at `out`.
__device__ __forceinline__ bool decode_lz4(const u8* block, u32 end, u8* out, u32 nbytes, const u8* dictionary, u64 dictionary_nbytes) {
    for (u32 at = 0, done = 0; at < end;) {
        const u32 token = block[at++];
        u64 n_literals = token / 16, n_match = token % 16;
        const bool is_short = n_literals < 15 && end - at >= 17 && nbytes - done >= 32;  // these may end later than others
        if (!read_length(block, at, end, n_literals) || n_literals > end - at || n_literals > nbytes - done) return false;
        for (u64 i = threadIdx.x; i < n_literals; i += 32) out[done + i] = block[at + i];
        at += static_cast<u32>(n_literals), done += static_cast<u32>(n_literals);
        if (at == end) return done == nbytes;
        if (!is_short && (end - at < 8 || nbytes - done < 12)) return false;
        const u32 offset = block[at] | block[at + 1] << 8;
        at += 2;
        const u32 left = is_short && n_match < 15 && offset >= 8 && offset <= done ? 0 : 5;  // bytes of output behind it
        if (!read_length(block, at, end - 4, n_match)) return false;
        n_match += 4;
        if (offset == 0 || offset > done + dictionary_nbytes || n_match + left > nbytes - done) return false;
        __syncwarp();  // what was written is there
        for (u64 i = threadIdx.x; i < n_match; i += 32) {
            const u64 from = done + (i < offset ? i : static_cast<u32>(i) % offset);
            out[done + i] = from < offset ? dictionary[static_cast<i64>(from - offset)] : out[from - offset];
        }
        done += static_cast<u32>(n_match);
    }
    return false;
}

// Turn a stored block into its patches, decoded into shared memory, or into `room` of LZ4_ROOM if they are long. Returns what
// is wrong with it, the same to all threads. A barrier must be before it.
__device__ __forceinline__ u32 read_lz4_block(const Tables* tables, u8* room, const u8*& stream, u64& nbytes) {
    u64 at = 0, version, plain_nbytes;
    u32 code = read_varint(stream, at, nbytes, version);
    stream += at, nbytes -= at, at = 0;
    if (code != OK || version == 0) return code;
    const u64* dictionary = tables->dictionaries[version];
    if (version >= tables->n_versions || dictionary[0] == 0) return OTHER_VERSION;
    if ((code = read_varint(stream, at, nbytes, plain_nbytes)) != OK) return code;
    if (plain_nbytes > LZ4_NBYTES) return LARGE;
    if (plain_nbytes >> 32 || nbytes >> 32) return TOO_LONG;
    const u32 block_nbytes = static_cast<u32>(nbytes - at);
    const u8* block = staged_stream(reinterpret_cast<u8*>(values), stream + at, block_nbytes);
    u8* out = plain_nbytes > STAGED_NBYTES ? room : staged;
    stream = out, nbytes = plain_nbytes;
    __syncthreads();
    const bool is_bad = threadIdx.x < 32 && !decode_lz4(block, block_nbytes, out, static_cast<u32>(nbytes),
                                                    reinterpret_cast<const u8*>(dictionary[0]), dictionary[1]);
    return __syncthreads_or(is_bad) ? BAD_LZ4 : OK;
}
