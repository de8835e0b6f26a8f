// What can be wrong with a stream or an id: the statuses of the core's codecs/statuses.py, and those of device/status.py.
#pragma once
#include "types.cuh"

enum : u32 {
    OK = 0,
    SHORT = 1,
    LONG_VARINT = 2,
    OUTSIDE_FRAME = 3,
    NO_LITERALS = 4,
    NO_SUCH_REFERENCE = 16,
    NO_SUCH_SECTION = 17,
    LEFT_OVER = 18,
    OTHER_VERSION = 19,
    FEW_FRAMES = 20,
    BAD_ID = 32,
    OUTSIDE_BUFFER = 33,
    TOO_LONG = 34,
    WRONG_COUNT = 52,
    WRONG_LENGTH = 53,
    WRONG_SUM = 54,
    WRONG_SECTION = 55,
    WRONG_SIZE = 56,
};
