// Counts how often warps enter each basic block of a kernel, in place of tests/cuda_on_cpu/memory.cpp; see gpu_instructions.py.
// g++ calls __sanitizer_cov_trace_pc at the beginning of each block: -fsanitize-coverage=trace-pc.
#include "cuda.h"
#include "runtime.h"

static const unsigned MOST_BLOCKS = 4096;

static struct {
    uint64_t address;  // where the call returns to
    uint64_t n_warps;  // that entered it, until the last barrier
    uint32_t since[cuda::MOST_THREADS];  // how often each thread entered it since then
} blocks[MOST_BLOCKS];

extern "C" void __sanitizer_cov_trace_pc() {
    const uint64_t address = reinterpret_cast<uint64_t>(__builtin_return_address(0));
    unsigned at = address * 0x9e3779b97f4a7c15 >> 52;  // a hash table
    while (blocks[at].address && blocks[at].address != address) at = (at + 1) % MOST_BLOCKS;
    blocks[at].address = address;
    blocks[at].since[cuda::current]++;
}

namespace cuda {

// A warp enters a block as often as the one of its lanes that enters it most often.
void next_phase() {
    for (auto& block : blocks) {
        if (!block.address) continue;
        for (unsigned warp = 0; warp < MOST_THREADS; warp += 32) {
            uint32_t most = 0;
            for (unsigned lane = 0; lane < 32; lane++) most = max(most, block.since[warp + lane]);
            block.n_warps += most;
        }
        memset(block.since, 0, sizeof block.since);
    }
}

void begin_launch(Memory*) {}
void begin_block() { next_phase(); }
void settle() {}
void atomic_access(const volatile void*, unsigned, const void*) {}

}  // namespace cuda

// Write the address and the entries of each block that was entered; returns how many.
extern "C" __attribute__((visibility("default"))) unsigned cuda_counts(uint64_t (*out)[2]) {
    cuda::next_phase();
    unsigned n = 0;
    for (const auto& block : blocks)
        if (block.address) out[n][0] = block.address, out[n++][1] = block.n_warps;
    return n;
}
