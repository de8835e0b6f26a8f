// All threads of a warp, as a mask.
#pragma once
#include "types.cuh"

constexpr u32 ALL_LANES = 0xffffffff;
