// Where the frames of a batch go, and as what.
//
// Defines: THREADS, of a block; FRAME_NBYTES; DEPTH, frames of a stack; ITEM_NBYTES, of an element of a frame; OUT, see
// convert.cuh; UNIT_NBYTES, see units.cuh, of converted bytes, whole elements unless frames are copied as they are;
// CHANNELS, if frames are stacked along the last axis: their axes are (CHANNELS, pixels), those of the stack (pixels, DEPTH,
// CHANNELS), and UNIT_NBYTES is one element; HEIGHT, WIDTH and PIXEL_ITEMS, if frames are shifted.
#pragma once
#include "convert.cuh"
#include "types.cuh"
#include "units.cuh"

#if ITEM_NBYTES == 1
typedef u8 Item;
#elif ITEM_NBYTES == 2
typedef u16 Item;
#elif ITEM_NBYTES == 4
typedef u32 Item;
#elif ITEM_NBYTES == 8
typedef u64 Item;
#else
typedef uint4 Item;
#endif

#if OUT == 0
typedef Item OutItem;
__device__ __forceinline__ OutItem out_item(Item item, float scale) { return item; }
#else
typedef Converted OutItem;
__device__ __forceinline__ OutItem out_item(Item item, float scale) { return converted(item, scale); }
#endif

#define FRAME_ITEMS (FRAME_NBYTES / ITEM_NBYTES)
#define FRAME_OUT_NBYTES (static_cast<u64>(FRAME_ITEMS) * sizeof(OutItem))

#if OUT == 0 && !defined(HEIGHT) && !defined(CHANNELS)
#define AS_THEY_ARE 1
#else
#define AS_THEY_ARE 0
#endif

// Rows and columns that each pixel is taken from further down and to the right; the border is repeated.
struct Shift {
    i32 rows, columns;
};

__device__ __forceinline__ Shift shift_of(const i32* shifts, i64 sample) {
#ifdef HEIGHT
    return {shifts ? shifts[2 * sample] : 0, shifts ? shifts[2 * sample + 1] : 0};
#else
    return {0, 0};
#endif
}

#ifdef HEIGHT
__device__ __forceinline__ u32 moved(u32 place, i32 by, i32 length) {
    return static_cast<u32>(min(max(static_cast<i32>(place) + min(max(by, -length), length), 0), length - 1));
}

__device__ __forceinline__ u32 source_of(u32 item, Shift shift) {
    const u32 row = item / (PIXEL_ITEMS * WIDTH), column = item / PIXEL_ITEMS % WIDTH;
    const u32 from = moved(row % HEIGHT, shift.rows, HEIGHT) + row / HEIGHT * HEIGHT;
    return (from * WIDTH + moved(column, shift.columns, WIDTH)) * PIXEL_ITEMS + item % PIXEL_ITEMS;
}
#else
__device__ __forceinline__ u32 source_of(u32 item, Shift shift) { return item; }
#endif

#if !AS_THEY_ARE
#define UNIT_ITEMS (UNIT_NBYTES / sizeof(OutItem))

struct __align__(UNIT_NBYTES) OutItems {
    OutItem items[UNIT_ITEMS];
};
struct __align__(UNIT_ITEMS * ITEM_NBYTES) Items {
    Item items[UNIT_ITEMS];
};

__device__ __forceinline__ OutItems out_items(const u8* frame, u32 unit, Shift shift, float scale) {
    OutItems out;
#ifdef HEIGHT
#pragma unroll
    for (u32 i = 0; i < UNIT_ITEMS; i++) {
        const u32 from = source_of(unit * UNIT_ITEMS + i, shift);
        out.items[i] = out_item(reinterpret_cast<const Item*>(frame)[from], scale);
    }
#else
    const Items items = reinterpret_cast<const Items*>(frame)[unit];
#pragma unroll
    for (u32 i = 0; i < UNIT_ITEMS; i++) out.items[i] = out_item(items.items[i], scale);
#endif
    return out;
}
#endif

// Write a frame, or zeros if it is null, to its places in a stack: a bit for each, the oldest one the lowest.
__device__ __forceinline__ void put_frame(u8* stack, const u8* frame, u32 places, Shift shift, float scale) {
    for (u32 unit = threadIdx.x; unit < FRAME_OUT_NBYTES / UNIT_NBYTES; unit += THREADS) {
#if AS_THEY_ARE
        const Unit out = frame ? reinterpret_cast<const Unit*>(frame)[unit] : Unit();
#else
        const OutItems out = frame ? out_items(frame, unit, shift, scale) : OutItems();
#endif
        for (u32 rest = places; rest; rest &= rest - 1) {
            const u32 place = __ffs(rest) - 1;
#ifdef CHANNELS
            const u32 pixels = FRAME_ITEMS / CHANNELS;
            const u64 item = (static_cast<u64>(unit % pixels) * DEPTH + place) * CHANNELS + unit / pixels;
            reinterpret_cast<OutItems*>(stack)[item] = out;
#elif AS_THEY_ARE
            reinterpret_cast<Unit*>(stack + place * FRAME_OUT_NBYTES)[unit] = out;
#else
            reinterpret_cast<OutItems*>(stack + place * FRAME_OUT_NBYTES)[unit] = out;
#endif
        }
    }
}
