// Where the frames of a batch go, and as what.
//
// Defines: THREADS, of a block; FRAME_NBYTES; DEPTH, frames of a stack; ITEM_NBYTES, of what is moved as a whole; OUT_NBYTES, of
// what is written for it: if they differ, bytes are looked up in a table; UNIT_ITEMS, that are written at once, 16 bytes or
// fewer; PIXELS, of a frame whose axes are (channels, PIXELS) and those of its stack (PIXELS, DEPTH, channels), 1 if it is
// written as it is; HEIGHT, WIDTH and PIXEL_ITEMS, if frames are shifted.
#include "basics.cuh"
#include "frame.cuh"

typedef Sized<ITEM_NBYTES>::Type Item;
typedef Sized<OUT_NBYTES>::Type OutItem;

struct __align__(OUT_NBYTES * UNIT_ITEMS) Unit {
    OutItem items[UNIT_ITEMS];
};

constexpr bool CONVERTS = OUT_NBYTES != ITEM_NBYTES;
constexpr u32 FRAME_ITEMS = FRAME_NBYTES / ITEM_NBYTES, FRAME_UNITS = FRAME_ITEMS / UNIT_ITEMS;

__shared__ OutItem converted[256];  // what each byte becomes

template <typename T>
__device__ __forceinline__ OutItem out_item(T item) {
    if constexpr (CONVERTS) return converted[item];
    else return item;
}

// The stack of a sample, and the rows and columns that each pixel is taken from further down and to the right; the border is
// repeated.
struct Stack {
    OutItem* out;
    const i32* shift;
};

__device__ __forceinline__ u32 shifted(u32 place, i32 by, i32 length) {
    return static_cast<u32>(min(max(static_cast<i32>(place) + min(max(by, -length), length), 0), length - 1));
}

// The item of a frame that is written as number `item`.
__device__ __forceinline__ u32 source_of(u32 item, const i32* shift) {
#ifdef HEIGHT
    const u32 row = item / (PIXEL_ITEMS * WIDTH), column = item / PIXEL_ITEMS % WIDTH;
    const u32 from = shifted(row % HEIGHT, shift[0], HEIGHT) + row / HEIGHT * HEIGHT;
    return (from * WIDTH + shifted(column, shift[1], WIDTH)) * PIXEL_ITEMS + item % PIXEL_ITEMS;
#else
    return item;
#endif
}

// Write a frame, or zeros if it is null, to its places in a stack: a bit for each, the oldest one the lowest.
__device__ __forceinline__ void put_frame(const Stack& stack, const u8* frame, u32 places) {
    const Item* items = reinterpret_cast<const Item*>(frame);
    for (u32 unit = threadIdx.x; unit < FRAME_UNITS; unit += THREADS) {
        Unit out = {};
        if (frame)
#pragma unroll
            for (u32 i = 0; i < UNIT_ITEMS; i++) out.items[i] = out_item(items[source_of(unit * UNIT_ITEMS + i, stack.shift)]);
        for (u32 rest = places; rest; rest &= rest - 1) {
            const u64 place = __ffs(rest) - 1;
            reinterpret_cast<Unit*>(stack.out)[(unit % PIXELS * DEPTH + place) * (FRAME_UNITS / PIXELS) + unit / PIXELS] = out;
        }
    }
}
