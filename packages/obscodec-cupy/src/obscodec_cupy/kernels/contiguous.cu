// Items that lie apart in memory, one behind the other: an array of any strides as a contiguous one.
#include "types.cuh"

// Geometry: ITEM_NBYTES of 1, 2, 4, 8 or 16, to which all addresses are aligned.
template <u32 NBYTES>
struct Item;
template <>
struct Item<1> { typedef u8 Type; };
template <>
struct Item<2> { typedef u16 Type; };
template <>
struct Item<4> { typedef u32 Type; };
template <>
struct Item<8> { typedef u64 Type; };
template <>
struct Item<16> { typedef uint4 Type; };

// axes: of each row, i64[n_axes][2] of (size, stride in bytes), the last one first. Every row is that of `tiles` thread
// blocks.
extern "C" __global__ void __launch_bounds__(256) gather_items(const u8* from, i64 row_stride, const i64* axes, u32 n_axes,
                                                               u32 row_items, u32 tiles, u8* out) {
    typedef Item<ITEM_NBYTES>::Type Type;
    const u64 row = blockIdx.x / tiles;
    const u8* begin = from + static_cast<i64>(row) * row_stride;
    Type* end = reinterpret_cast<Type*>(out) + row * row_items;
    for (u32 i = blockIdx.x % tiles * blockDim.x + threadIdx.x; i < row_items; i += tiles * blockDim.x) {
        i64 offset = 0;
        u32 rest = i;
        for (u32 axis = 0; axis < n_axes; ++axis) {
            const u32 size = static_cast<u32>(axes[2 * axis]);
            offset += static_cast<i64>(rest % size) * axes[2 * axis + 1];
            rest /= size;
        }
        end[i] = *reinterpret_cast<const Type*>(begin + offset);
    }
}
