// The threads of a block as fibers. A fiber runs until it reaches a barrier or an exchange within its warp; which one
// goes on then is drawn from a seed. Thread blocks run one after the other, in an order that is drawn as well.
#include "cuda.h"
#include "runtime.h"

#include <stdlib.h>

extern char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));

namespace cuda {

static const int POISON = 0xa5;

Fiber fibers[MOST_THREADS];
unsigned current, dynamic_nbytes;
char error[1024];
alignas(1024) unsigned char dynamic[DYNAMIC_NBYTES];
uint16_t warp_syncs[MOST_THREADS];

static unsigned n_threads, n_blocks, block, n_ready, ready[MOST_THREADS], n_returned;
static uint64_t random_state;
static bool in_turn;  // seed 0: fibers go on in the order of their numbers
static int combined;  // the result of the last barrier
static jmp_buf scheduler;
static ucontext_t scheduler_entry;
static void (*body)(void**);
static void** body_arguments;

uint3 thread_index() { return {current, 0, 0}; }
uint3 block_index() { return {block, 0, 0}; }
uint3 block_size() { return {n_threads, 1, 1}; }
uint3 grid_size() { return {n_blocks, 1, 1}; }
unsigned own_lane() { return current % 32; }

static uint64_t drawn(uint64_t n) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return random_state % n;
}

void leave(int why) { _longjmp(scheduler, why); }

static void wait(State state, int line) {
    settle();
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

int barrier(Combine combine, int value, int line) {
    fibers[current].value = value;
    fibers[current].given = combine;
    wait(AT_BARRIER, line);
    return combined;
}

static void meet(unsigned mask, uint64_t value, bool orders, int line) {
    Fiber& self = fibers[current];
    if (!(mask >> own_lane() & 1)) FAIL("line %d: lane %u is not in its own mask %08x", line, own_lane(), mask);
    self.mask = mask, self.given = value, self.orders = orders;
    wait(IN_WARP, line);
}

void exchange(unsigned mask, uint64_t value, int line) { meet(mask, value, false, line); }
void sync_warp(unsigned mask, int line) { meet(mask, 0, true, line); }

uint64_t from_lane(unsigned lane) {
    const Fiber& self = fibers[current];
    return self.mask >> lane & 1 ? self.seen[lane] : 0xdeadbeefdeadbeef;
}

unsigned ballot(unsigned mask, bool value, int line) {
    exchange(mask, value, line);
    unsigned set = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1 && fibers[current].seen[lane]) set |= 1u << lane;
    return set;
}

// Let the lanes of a warp go on if all of a mask have come to the same exchange.
static void release_warp(unsigned thread) {
    const Fiber& last = fibers[thread];
    const unsigned mask = last.mask, first = thread / 32 * 32;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        const Fiber& other = fibers[first + lane];
        if (first + lane >= n_threads || other.state == RETURNED)
            FAIL("line %d: lane %u of the mask %08x has returned or is none", last.line, lane, mask);
        if (other.state != IN_WARP) return;
        if (other.mask != mask || other.line != last.line)
            FAIL("divergent warp: a lane waits at line %d (mask %08x), another one at line %d (mask %08x)", last.line, mask,
                 other.line, other.mask);
    }
    uint64_t given[32];
    for (unsigned lane = 0; lane < 32; lane++) given[lane] = fibers[first + lane].given;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        memcpy(fibers[first + lane].seen, given, sizeof given);
        make_ready(first + lane);
    }
    if (last.orders && mask == 0xffffffff) warp_syncs[first / 32]++;
}

static void release_block() {
    static const char* const names[] = {"runs", "waits at the barrier", "waits for its warp", "has returned"};
    int any = 0, all = 1, count = 0;
    for (unsigned i = 0; i < n_threads; i++) {
        const Fiber &fiber = fibers[i], &zeroth = fibers[0];
        if (fiber.state != AT_BARRIER || fiber.line != zeroth.line)
            FAIL("divergent barrier: thread 0 %s (line %d), thread %u %s (line %d)", names[zeroth.state], zeroth.line, i,
                 names[fiber.state], fiber.line);
        any |= fiber.value != 0, all &= fiber.value != 0, count += fiber.value != 0;
    }
    combined = fibers[0].given == ANY ? any : fibers[0].given == ALL ? all : count;
    memset(warp_syncs, 0, sizeof warp_syncs);
    next_phase();
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

// One thread block, from the first thread's start to the last one's return; false if it failed.
static bool run_block() {
    memset(dynamic, POISON, dynamic_nbytes);
    if (__start_cuda_shared) memset(__start_cuda_shared, POISON, __stop_cuda_shared - __start_cuda_shared);
    memset(warp_syncs, 0, sizeof warp_syncs);
    begin_block();
    n_ready = n_returned = 0;
    for (unsigned i = 0; i < n_threads; i++) make_ready(i);
    const int why = _setjmp(scheduler);
    if (why == 2) return false;
    if (why == 1) {
        if (fibers[current].state == RETURNED) n_returned++;
        if (fibers[current].state == IN_WARP) release_warp(current);
        if (n_ready == 0 && n_returned < n_threads) release_block();
    }
    if (n_returned < n_threads) resume(next_ready());
    return true;
}

const char* run(void (*what)(void**), void** arguments, unsigned blocks, unsigned threads, unsigned shared_nbytes, uint64_t seed,
                Memory* memory, char* stacks) {
    body = what, body_arguments = arguments;
    n_blocks = blocks, n_threads = threads, dynamic_nbytes = shared_nbytes;
    in_turn = seed == 0, random_state = seed * 0x9e3779b97f4a7c15 | 1;
    error[0] = 0;
    for (unsigned i = 0; i < threads; i++) {
        fibers[i].entered = false;
        fibers[i].stack = stacks + i * STACK_NBYTES;
    }
    begin_launch(memory);
    unsigned* order = static_cast<unsigned*>(malloc(blocks * sizeof(unsigned)));
    for (unsigned i = 0; i < blocks; i++) {
        const unsigned at = in_turn ? i : drawn(i + 1);
        order[i] = order[at], order[at] = i;
    }
    for (unsigned i = 0; i < blocks && !error[0]; i++) {
        block = order[i];
        run_block();
    }
    free(order);
    return error[0] ? error : nullptr;
}

}  // namespace cuda
