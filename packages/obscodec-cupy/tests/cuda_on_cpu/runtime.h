// What fibers.cpp and memory.cpp know of each other.
#pragma once
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <ucontext.h>

namespace cuda {

static const size_t STACK_NBYTES = 64 << 10;
static const size_t DYNAMIC_NBYTES = 256 << 10;
static const unsigned MOST_THREADS = 1024;

enum State { READY, AT_BARRIER, IN_WARP, RETURNED };

struct Fiber {
    ucontext_t entry;
    jmp_buf at;
    bool entered;
    State state;
    int line;           // where it waits
    int value;          // what it gives to __syncthreads_or and its like
    unsigned mask;      // of the exchange that it waits in
    bool orders;        // whether that exchange orders accesses to memory: only __syncwarp does
    uint64_t given;     // to the exchange
    uint64_t seen[32];  // what all lanes gave
    char* stack;
};

extern Fiber fibers[MOST_THREADS];
extern unsigned current;                   // the thread that runs
extern uint16_t warp_syncs[MOST_THREADS];  // of each warp, since the last barrier
extern unsigned dynamic_nbytes;            // that the launch asked for

[[noreturn]] void leave(int why);
extern char error[1024];

#define FAIL(...) (snprintf(cuda::error, sizeof cuda::error, __VA_ARGS__), cuda::leave(2))

// How an access was made: it is in the order of others by its phase, the time between two barriers of a thread block.
struct Access {
    uint32_t phase;       // 0 for none
    uint16_t thread;      // or one of the marks in memory.cpp
    uint16_t warp_syncs;  // of its warp in that phase, until then
};

struct Shadow {  // of a byte
    Access write, read;
};

struct Region {  // of memory that kernels may touch, sorted by address
    uint64_t begin, end;
    Shadow* shadow;  // null if races are not looked for there
};

struct Memory {
    const Region* regions;
    uint64_t n_regions;
    uint32_t* phase;  // counted up, by the launches of all kernels
};

void begin_launch(Memory* memory);
void begin_block();
void next_phase();
void settle();  // what was written last

}  // namespace cuda
