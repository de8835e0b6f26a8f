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
#ifdef HEIGHT
constexpr bool SHIFTS = true;
#else
constexpr bool SHIFTS = false;
#endif
constexpr u32 FRAME_ITEMS = FRAME_NBYTES / ITEM_NBYTES, FRAME_UNITS = FRAME_ITEMS / UNIT_ITEMS;

__shared__ OutItem converted[256];  // what each byte becomes

template <typename T>
__device__ __forceinline__ OutItem out_item(T item) {
    if constexpr (CONVERTS) return converted[item];
    else return item;
}

__device__ __forceinline__ u32 shifted(u32 place, i32 by, i32 length) {
    return static_cast<u32>(min(max(static_cast<i32>(place) + min(max(by, -length), length), 0), length - 1));
}

// The item of a frame that is written as number `item`, if each pixel is taken from rows and columns further down and to the
// right; the border is repeated.
__device__ __forceinline__ u32 source_of(u32 item, const i32* shift) {
#ifdef HEIGHT
    const u32 row = item / (PIXEL_ITEMS * WIDTH), column = item / PIXEL_ITEMS % WIDTH;
    const u32 from = shifted(row % HEIGHT, shift[0], HEIGHT) + row / HEIGHT * HEIGHT;
    return (from * WIDTH + shifted(column, shift[1], WIDTH)) * PIXEL_ITEMS + item % PIXEL_ITEMS;
#else
    return item;
#endif
}

// Write a frame, or zeros if it is null, to some places: a bit for each, of which target(bit) is the Unit that comes first. Two
// at a time, and loads ahead of stores.
template <typename Target>
__device__ __forceinline__ void put_frame(const u8* frame, u32 places, const i32* shift, Target target) {
    constexpr u32 TURNS = (FRAME_UNITS + THREADS - 1) / THREADS, AT_ONCE = SHIFTS ? 1 : TURNS < 4 ? TURNS : 4;
    const Item* items = reinterpret_cast<const Item*>(frame);
    while (places) {
        Unit* const one = target(__ffs(places) - 1);
        places &= places - 1;
        Unit* const other = places ? target(__ffs(places) - 1) : nullptr;
        places &= places - 1;
#pragma unroll 1
        for (u32 first = threadIdx.x; first < FRAME_UNITS; first += AT_ONCE * THREADS) {
            Unit out[AT_ONCE] = {};
            if (frame)
#pragma unroll
                for (u32 k = 0; k < AT_ONCE; k++)
                    if (first + k * THREADS < FRAME_UNITS)
#pragma unroll
                        for (u32 i = 0; i < UNIT_ITEMS; i++)
                            out[k].items[i] = out_item(items[source_of((first + k * THREADS) * UNIT_ITEMS + i, shift)]);
#pragma unroll
            for (u32 k = 0; k < AT_ONCE; k++) {
                const u32 unit = first + k * THREADS, units_of_pixel = FRAME_UNITS / PIXELS;
                const u64 at = static_cast<u64>(unit % PIXELS) * DEPTH * units_of_pixel + unit / PIXELS;
                if (unit < FRAME_UNITS) {
                    one[at] = out[k];
                    if (other) other[at] = out[k];
                }
            }
        }
    }
}
