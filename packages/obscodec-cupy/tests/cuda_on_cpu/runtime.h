// What CUDA C++ gives to a kernel, for g++: each CUDA thread is a fiber, thread blocks run one after the other.
// A fiber runs until it reaches a barrier or an exchange within its warp; which one goes on is drawn from a seed.
// "kernel" is a macro that names the function; the source stands between this file and entry.h.
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __constant__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __attribute__((section("cuda_shared"), used))

extern char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct __attribute__((aligned(8))) uint2 { unsigned x, y; };
struct __attribute__((aligned(16))) uint4 { unsigned x, y, z, w; };
struct __attribute__((aligned(16))) ulonglong2 { unsigned long long x, y; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

namespace cuda {

enum State { READY, AT_BARRIER, IN_WARP, RETURNED };
enum Combine { NOTHING, ANY, ALL, COUNT };

struct Fiber {
    ucontext_t entry;
    jmp_buf at;
    bool entered;
    State state;
    int line;            // where it waits
    int value;           // what it gives to __syncthreads_or and its like
    unsigned mask;       // of the exchange that it waits in
    uint64_t given;      // to the exchange
    uint64_t seen[32];   // what all lanes gave
    char* stack;
};

static const size_t STACK_NBYTES = 64 << 10;
static const size_t DYNAMIC_NBYTES = 256 << 10;
static const unsigned MOST_THREADS = 1024;

static Fiber fibers[MOST_THREADS];
alignas(1024) static unsigned char dynamic[DYNAMIC_NBYTES];
static unsigned n_threads, current, n_ready, ready[MOST_THREADS];
static uint64_t state;  // of the random numbers
static bool in_turn;    // seed 0: fibers go on in the order of their numbers
static int combined;    // the result of the last barrier
static jmp_buf scheduler;
static ucontext_t scheduler_entry;
static char error[512];
static void (*body)(void**);
static void** body_arguments;

static uint64_t drawn(uint64_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % n;
}

[[noreturn]] static void leave(int why) { _longjmp(scheduler, why); }

#define FAIL(...) (snprintf(cuda::error, sizeof cuda::error, __VA_ARGS__), cuda::leave(2))

static void wait(State state, int line) {
    Fiber& self = fibers[current];
    self.state = state, self.line = line;
    if (_setjmp(self.at) == 0) leave(1);
}

// A fiber goes on with the next thread block where it ended with the last: starting one costs system calls.
static void begin() {
    for (;;) {
        body(body_arguments);
        wait(RETURNED, 0);
    }
}

static void make_ready(unsigned thread) {
    fibers[thread].state = READY;
    ready[n_ready++] = thread;
}

static int barrier(Combine combine, int value, int line) {
    fibers[current].value = value;
    fibers[current].given = combine;
    wait(AT_BARRIER, line);
    return combined;
}

static void exchange(unsigned mask, uint64_t value, int line) {
    Fiber& self = fibers[current];
    if (!(mask >> current % 32 & 1)) FAIL("line %d: lane %u is not in its own mask %08x", line, current % 32, mask);
    self.mask = mask, self.given = value;
    wait(IN_WARP, line);
}

// Let the lanes of a warp go on if all of a mask have come to the same exchange.
static void release_warp(unsigned thread) {
    const Fiber& last = fibers[thread];
    const unsigned first = thread / 32 * 32;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(last.mask >> lane & 1)) continue;
        if (first + lane >= n_threads || fibers[first + lane].state == RETURNED)
            FAIL("line %d: lane %u of the mask %08x has returned or is none", last.line, lane, last.mask);
        const Fiber& other = fibers[first + lane];
        if (other.state != IN_WARP) return;
        if (other.mask != last.mask || other.line != last.line)
            FAIL("divergent warp: a lane waits at line %d (mask %08x), another at line %d (mask %08x)", last.line, last.mask,
                 other.line, other.mask);
    }
    const unsigned mask = last.mask;
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) {
            for (unsigned from = 0; from < 32; from++)
                fibers[first + lane].seen[from] = mask >> from & 1 ? fibers[first + from].given : 0xdeadbeefdeadbeef;
            make_ready(first + lane);
        }
}

static void release_block() {
    int any = 0, all = 1, count = 0;
    for (unsigned i = 0; i < n_threads; i++) {
        if (fibers[i].state != AT_BARRIER || fibers[i].line != fibers[0].line) {
            const char* const names[] = {"runs", "waits at the barrier", "waits for its warp", "has returned"};
            FAIL("divergent barrier: thread 0 %s (line %d), thread %u %s (line %d)", names[fibers[0].state], fibers[0].line, i,
                 names[fibers[i].state], fibers[i].line);
        }
        any |= fibers[i].value != 0, all &= fibers[i].value != 0, count += fibers[i].value != 0;
    }
    combined = fibers[0].given == ANY ? any : fibers[0].given == ALL ? all : count;
    for (unsigned i = 0; i < n_threads; i++) make_ready(i);
}

static unsigned next_ready() {
    const unsigned at = in_turn ? 0 : drawn(n_ready);
    const unsigned thread = ready[at];
    if (in_turn)
        memmove(ready, ready + 1, --n_ready * sizeof *ready);
    else
        ready[at] = ready[--n_ready];
    return thread;
}

static void resume(unsigned thread) {
    current = thread;
    threadIdx = {thread, 0, 0};
    Fiber& fiber = fibers[thread];
    if (fiber.entered) _longjmp(fiber.at, 1);
    fiber.entered = true;
    getcontext(&fiber.entry);
    fiber.entry.uc_stack.ss_sp = fiber.stack;
    fiber.entry.uc_stack.ss_size = STACK_NBYTES;
    fiber.entry.uc_link = nullptr;
    makecontext(&fiber.entry, begin, 0);
    swapcontext(&scheduler_entry, &fiber.entry);
}

// One thread block, from the first thread's start to the last one's return.
static bool run_block() {
    memset(dynamic, 0xa5, sizeof dynamic);
    if (__start_cuda_shared) memset(__start_cuda_shared, 0xa5, __stop_cuda_shared - __start_cuda_shared);
    n_ready = 0;
    for (unsigned i = 0; i < n_threads; i++) make_ready(i);
    static volatile unsigned n_returned;
    n_returned = 0;
    const int why = _setjmp(scheduler);
    if (why == 2) return false;
    if (why == 1) {
        Fiber& last = fibers[current];
        if (last.state == RETURNED) n_returned = n_returned + 1;
        if (last.state == IN_WARP) release_warp(current);
        if (n_ready == 0 && n_returned < n_threads) release_block();
    }
    if (n_returned == n_threads) return true;
    resume(next_ready());
    return false;
}

static const char* run(void (*what)(void**), void** arguments, unsigned n_blocks, unsigned threads, uint64_t seed) {
    body = what, body_arguments = arguments;
    n_threads = threads, gridDim.x = n_blocks, blockDim.x = threads;
    in_turn = seed == 0, state = seed * 0x9e3779b97f4a7c15 | 1;
    error[0] = 0;
    for (unsigned i = 0; i < MOST_THREADS; i++) fibers[i].entered = false;
    for (unsigned i = 0; i < threads; i++)
        if (!fibers[i].stack) fibers[i].stack = static_cast<char*>(malloc(STACK_NBYTES));
    unsigned* order = static_cast<unsigned*>(malloc(n_blocks * sizeof(unsigned)));
    for (unsigned i = 0; i < n_blocks; i++) {
        const unsigned at = in_turn ? i : drawn(i + 1);
        order[i] = order[at], order[at] = i;
    }
    static volatile unsigned block;
    for (block = 0; block < n_blocks; block = block + 1) {
        blockIdx = {order[block], 0, 0};
        if (!run_block()) break;
    }
    free(order);
    return error[0] ? error : nullptr;
}

template <typename T>
static uint64_t bits_of(T value) {
    static_assert(sizeof(T) <= 8, "an exchange moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

template <typename T>
static T from_lane(unsigned lane, T own) {
    if (lane == current % 32) return own;
    T value;
    memcpy(&value, &fibers[current].seen[lane], sizeof value);
    return value;
}

template <typename T>
static T shuffled(unsigned mask, T value, unsigned lane, int line) {
    exchange(mask, bits_of(value), line);
    return from_lane(lane, value);
}

// The lane of a segment of width lanes that a shuffle reads, the own one where that lies outside.
static unsigned up(unsigned delta, int width) { unsigned l = current % 32; return l % width >= delta ? l - delta : l; }
static unsigned down(unsigned delta, int width) { unsigned l = current % 32; return l % width + delta < unsigned(width) ? l + delta : l; }
static unsigned across(unsigned bits, int width) { unsigned l = current % 32; return (l % width ^ bits) < unsigned(width) ? l ^ bits : l; }
static unsigned to(unsigned lane, int width) { return current % 32 / width * width + lane % width; }

static unsigned ballot(unsigned mask, bool value, int line) {
    exchange(mask, value, line);
    unsigned set = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1 && fibers[current].seen[lane]) set |= 1u << lane;
    return set;
}

template <typename T, typename Change>
static T changed(T* at, Change change) {
    const T before = *at;
    *at = change(before);
    return before;
}

template <typename T> using Same = typename std::common_type<T>::type;  // not deduced from this argument

}  // namespace cuda

#define __syncthreads() ((void)cuda::barrier(cuda::NOTHING, 0, __LINE__))
#define __syncthreads_or(x) cuda::barrier(cuda::ANY, (x) != 0, __LINE__)
#define __syncthreads_and(x) cuda::barrier(cuda::ALL, (x) != 0, __LINE__)
#define __syncthreads_count(x) cuda::barrier(cuda::COUNT, (x) != 0, __LINE__)
#define __syncwarp(...) cuda::exchange(cuda::mask_or_all(__VA_ARGS__), 0, __LINE__)
#define __ballot_sync(mask, x) cuda::ballot(mask, (x) != 0, __LINE__)
#define __any_sync(mask, x) (cuda::ballot(mask, (x) != 0, __LINE__) != 0)
#define __all_sync(mask, x) (cuda::ballot(mask, (x) != 0, __LINE__) == (mask))
#define __shfl_sync(mask, x, ...) cuda::shuffled(mask, x, cuda::to(cuda::lane_and_width{__VA_ARGS__}), __LINE__)
#define __shfl_up_sync(mask, x, ...) cuda::shuffled(mask, x, cuda::up(cuda::lane_and_width{__VA_ARGS__}), __LINE__)
#define __shfl_down_sync(mask, x, ...) cuda::shuffled(mask, x, cuda::down(cuda::lane_and_width{__VA_ARGS__}), __LINE__)
#define __shfl_xor_sync(mask, x, ...) cuda::shuffled(mask, x, cuda::across(cuda::lane_and_width{__VA_ARGS__}), __LINE__)
#define __activemask() unsupported_on_the_cpu_use_a_mask_that_is_known

namespace cuda {
static inline unsigned mask_or_all(unsigned mask = 0xffffffff) { return mask; }
struct lane_and_width { int64_t lane; int width = 32; };
static inline unsigned up(lane_and_width x) { return up(unsigned(x.lane), x.width); }
static inline unsigned down(lane_and_width x) { return down(unsigned(x.lane), x.width); }
static inline unsigned across(lane_and_width x) { return across(unsigned(x.lane), x.width); }
static inline unsigned to(lane_and_width x) { return to(unsigned(x.lane), x.width); }
}  // namespace cuda

template <typename T> static T atomicAdd(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return T(old + x); }); }
template <typename T> static T atomicSub(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return T(old - x); }); }
template <typename T> static T atomicOr(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return old | x; }); }
template <typename T> static T atomicAnd(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return old & x; }); }
template <typename T> static T atomicXor(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return old ^ x; }); }
template <typename T> static T atomicMax(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return old > x ? old : x; }); }
template <typename T> static T atomicMin(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T old) { return old < x ? old : x; }); }
template <typename T> static T atomicExch(T* at, cuda::Same<T> x) { return cuda::changed(at, [=](T) { return x; }); }
template <typename T> static T atomicCAS(T* at, cuda::Same<T> expected, cuda::Same<T> x) {
    return cuda::changed(at, [=](T old) { return old == expected ? x : old; });
}

template <typename T> static T __ldg(const T* at) { return *at; }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __uint2float_rn(unsigned x) { return float(x); }
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t bytes = uint64_t(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned nibble = selector >> 4 * i & 15;
        unsigned byte = unsigned(bytes >> 8 * (nibble & 7)) & 255;
        if (nibble & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned((uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
template <typename T> static T min(T x, T y) { return y < x ? y : x; }
template <typename T> static T max(T x, T y) { return x < y ? y : x; }
